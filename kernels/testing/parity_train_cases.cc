#include "absl/strings/str_cat.h"
#include "kernels/ops/all_ops.h"
#include "kernels/testing/parity_cases.h"

namespace millrace {
namespace {

using Use = Image::Use;

size_t Count(int a, int b) {
  return static_cast<size_t>(a) * static_cast<size_t>(b);
}

ParityCase GaeCase(int T, int N) {
  Image m(1);
  const size_t n = Count(T, N);
  const auto reward = m.Random("reward", n, -1, 1), value = m.Random("value", n, -2, 2);
  const auto next = m.Random("next_value", n, -2, 2);
  const auto terminated = m.Flags("terminated", n, 0.1), truncated = m.Flags("truncated", n, 0.1);
  const auto advantage = m.Output<float>("advantage", n), ret = m.Output<float>("ret", n);
  return OpCase<Gae>(absl::StrCat("Gae T ", T, " N ", N), std::move(m), [=](const ImageView& at) {
    return Gae::Params{T,     N,     at(reward),    at(value), at(next), at(terminated), at(truncated),
                       0.99f, 0.95f, at(advantage), at(ret)};
  });
}

ParityCase VtraceCase(int T, int N) {
  Image m(2);
  const size_t n = Count(T, N);
  const auto log_rho = m.Random("log_rho", n, -2, 2), reward = m.Random("reward", n, -1, 1);
  const auto value = m.Random("value", n, -2, 2), next = m.Random("next_value", n, -2, 2);
  const auto terminated = m.Flags("terminated", n, 0.1), truncated = m.Flags("truncated", n, 0.1);
  const auto vs = m.Output<float>("vs", n), advantage = m.Output<float>("pg_advantage", n);
  return OpCase<Vtrace>(absl::StrCat("Vtrace T ", T, " N ", N), std::move(m), [=](const ImageView& at) {
    return Vtrace::Params{
        T,     N,    at(log_rho), at(reward), at(value), at(next), at(terminated), at(truncated),
        0.99f, 0.9f, 1.0f,        1.2f,       1.1f,      at(vs),   at(advantage)};
  });
}

ParityCase GradReduceCase(int n, int shards) {
  Image m(3);
  const size_t stride = static_cast<size_t>(n) + 5;
  const auto from = m.Random("shard_gradients", stride * static_cast<size_t>(shards), -1, 1, Use::kBoth);
  const auto to = m.Output<float>("gradients", static_cast<size_t>(n));
  const auto squares = m.Output<double>("chunk_squares", static_cast<size_t>(GradReduce::Chunks(n)));
  return OpCase<GradReduce>(absl::StrCat("GradReduce n ", n, " shards ", shards), std::move(m),
                            [=](const ImageView& at) {
                              return GradReduce::Params{n, shards, at(from), stride, at(to), at(squares)};
                            });
}

ParityCase ClipCase(int chunks, float max_norm, double poison) {
  Image m(4);
  std::vector<double> squares(static_cast<size_t>(chunks));
  for (size_t i = 0; i < squares.size(); ++i) squares[i] = 0.37 * static_cast<double>(i % 11);
  squares[0] += poison;
  const auto in = m.Values("chunk_squares", squares);
  const auto step = m.Values("step", std::vector<AdamStep>(1), Use::kBoth);
  const auto norm = m.Output<float>("norm", 1);
  return OpCase<ClipGlobalNorm>(
      absl::StrCat("ClipGlobalNorm chunks ", chunks, " max ", max_norm, " and ", poison), std::move(m),
      [=](const ImageView& at) {
        return ClipGlobalNorm::Params{chunks, at(in), max_norm, at(step), at(norm)};
      });
}

ParityCase AdamCase(int n, bool zero, bool skip, double decay, float tau = 0.0f) {
  Image m(5);
  const size_t count = static_cast<size_t>(n);
  const auto w = m.Random("w", count, -1, 1, Use::kBoth), g = m.Random("g", count, -1, 1, Use::kBoth);
  const auto first = m.Random("m", count, -0.1f, 0.1f, Use::kBoth);
  const auto second = m.Random("v", count, 0, 0.1f, Use::kBoth);
  const auto target = tau > 0.0f ? m.Random("target", count, -1, 1, Use::kBoth) : Slot<float>{};
  std::vector<AdamStep> step(1);
  step[0].Set(0.9, 0.999, 1e-5, decay, 7);
  step[0].lr = 3e-4f;
  step[0].grad_scale = 0.43f;
  step[0].skip = skip ? 1 : 0;
  const auto s = m.Values("step", step);
  return OpCase<Adam>(
      absl::StrCat("Adam n ", n, zero ? " zero" : "", skip ? " skip" : "", " decay ", decay, " tau ", tau),
      std::move(m), [=](const ImageView& at) {
        return Adam::Params{at(w), at(g), at(first), at(second), n, at(s), zero, at(target), tau};
      });
}

void AddLayerNorm(std::vector<ParityCase>* cases, int rows, int dims) {
  const int ld = dims + 3;
  const size_t n = Count(rows, ld), r = static_cast<size_t>(rows), d = static_cast<size_t>(dims);
  const std::string size = absl::StrCat(" rows ", rows, " dims ", dims);
  {
    Image m(6);
    const auto x = m.Random("x", n, -2, 3), gamma = m.Random("gamma", d, 0.5f, 2),
               beta = m.Random("beta", d, -1, 1);
    const auto y = m.Output<float>("y", n), mean = m.Output<float>("mean", r),
               rstd = m.Output<float>("rstd", r);
    cases->push_back(OpCase<LayerNorm>("LayerNorm" + size, std::move(m), [=](const ImageView& at) {
      return LayerNorm::Params{rows, dims, at(x), ld, at(gamma), at(beta), at(y), ld, at(mean), at(rstd)};
    }));
  }
  {
    Image m(7);
    const auto x = m.Random("x", n, -2, 3), gamma = m.Random("gamma", d, 0.5f, 2),
               mean = m.Random("mean", r, -1, 1);
    const auto rstd = m.Random("rstd", r, 0.5f, 2), dy = m.Random("dy", n, -1, 1);
    const auto dx = m.Output<float>("dx", n);
    cases->push_back(
        OpCase<LayerNormBackward>("LayerNormBackward" + size, std::move(m), [=](const ImageView& at) {
          return LayerNormBackward::Params{rows,     dims,   at(x), ld,     at(gamma), at(mean),
                                           at(rstd), at(dy), ld,    at(dx), ld};
        }));
  }
  Image m(8);
  const auto x = m.Random("x", n, -2, 3), mean = m.Random("mean", r, -1, 1),
             rstd = m.Random("rstd", r, 0.5f, 2);
  const auto dy = m.Random("dy", n, -1, 1), dgamma = m.Random("dgamma", d, -1, 1, Use::kBoth);
  const auto dbeta = m.Random("dbeta", d, -1, 1, Use::kBoth);
  cases->push_back(
      OpCase<LayerNormParamGrad>("LayerNormParamGrad" + size, std::move(m), [=](const ImageView& at) {
        return LayerNormParamGrad::Params{rows,     dims,   at(x), ld,         at(mean),
                                          at(rstd), at(dy), ld,    at(dgamma), at(dbeta)};
      }));
}

}  // namespace

void AddTrainCases(std::vector<ParityCase>* cases, int T, int N, int rows, int dims, int n) {
  cases->push_back(GaeCase(T, N));
  cases->push_back(VtraceCase(T, N));
  cases->push_back(GradReduceCase(n, 1));
  cases->push_back(GradReduceCase(n, 4));
  const int chunks = GradReduce::Chunks(n);
  cases->push_back(ClipCase(chunks, 0.5f, 0.0));
  cases->push_back(ClipCase(chunks, 0.0f, 0.0));
  cases->push_back(ClipCase(chunks, 0.5f, HUGE_VAL));
  cases->push_back(AdamCase(n, true, false, 0.0));
  cases->push_back(AdamCase(n, false, false, 0.01));
  cases->push_back(AdamCase(n, true, true, 0.0));
  cases->push_back(AdamCase(n, false, false, 0.0, 0.005f));
  cases->push_back(AdamCase(n, false, true, 0.0, 0.005f));
  AddLayerNorm(cases, rows, dims);
}

}  // namespace millrace
