#include <numeric>

#include "absl/strings/str_cat.h"
#include "kernels/ops/all_ops.h"
#include "kernels/testing/parity_cases.h"

namespace millrace {
namespace {

using Use = Image::Use;

size_t Count(int a, int b) {
  return static_cast<size_t>(a) * static_cast<size_t>(b);
}

ParityCase SampleCase(int rows, int dims, bool deterministic) {
  Image m(31);
  const int ld = 2 * dims + 1, action_ld = dims + 2;
  const auto out = m.Random("out", Count(rows, ld), -3, 3);  // beyond the upper clamp
  const auto action = m.Random("action", Count(rows, action_ld), -1, 1, Use::kBoth);
  const auto log_prob = m.Output<float>("log_prob", static_cast<size_t>(rows));
  const auto noise = m.Output<float>("noise", Count(rows, dims));
  return OpCase<SampleSquashed>(
      absl::StrCat("SampleSquashed rows ", rows, " dims ", dims, deterministic ? " deterministic" : ""),
      std::move(m), [=](const ImageView& at) {
        SampleSquashed::Params p{};
        p.rows = rows, p.out = at(out), p.ld = ld, p.dims = dims;
        p.seed = 77, p.purpose = Purpose::kTest, p.first_row = 3, p.step = 9;
        p.deterministic = deterministic;
        p.action = at(action), p.action_ld = action_ld, p.log_prob = at(log_prob), p.noise = at(noise);
        return p;
      });
}

ParityCase BackwardCase(int rows, int dims, int critics) {
  Image m(32);
  const int ld = 2 * dims + 1, action_ld = dims + 2;
  const size_t stride = Count(rows, dims) + 3;
  const auto out = m.Random("out", Count(rows, ld), -3, 3);
  const auto noise = m.Random("noise", Count(rows, dims), -2, 2);
  const auto action = m.Random("action", Count(rows, action_ld), -1, 1);
  const auto daction = m.Random("daction", stride * static_cast<size_t>(critics), -1, 1);
  const auto log_alpha = m.Random("log_alpha", 1, -2, 1);
  const auto dout = m.Random("dout", Count(rows, ld), -1, 1, Use::kBoth);
  return OpCase<SquashedBackward>(
      absl::StrCat("SquashedBackward rows ", rows, " dims ", dims, " critics ", critics), std::move(m),
      [=](const ImageView& at) {
        SquashedBackward::Params p{};
        p.rows = rows, p.out = at(out), p.ld = ld, p.dims = dims, p.noise = at(noise);
        p.action = at(action), p.action_ld = action_ld, p.critics = critics;
        p.daction = at(daction), p.daction_stride = stride, p.log_alpha = at(log_alpha);
        p.inv_count = 0.01f, p.dout = at(dout);
        return p;
      });
}

ParityCase TargetCase(int rows, int critics) {
  Image m(33);
  const size_t n = static_cast<size_t>(rows), stride = n + 5;
  const auto q = m.Random("q", stride * static_cast<size_t>(critics), -9, 9);
  const auto subset = m.Values("subset", std::vector<int32_t>{critics - 1, 0});
  const auto log_prob = m.Random("log_prob", n, -3, 2), reward = m.Random("reward", n, -1, 1);
  const auto discount = m.Random("discount", n, 0, 1), log_alpha = m.Random("log_alpha", 1, -2, 1);
  const auto y = m.Output<float>("y", n);
  return OpCase<SacTarget>(
      absl::StrCat("SacTarget rows ", rows, " critics ", critics), std::move(m), [=](const ImageView& at) {
        return SacTarget::Params{rows,         2,          at(subset),   at(q),         stride,
                                 at(log_prob), at(reward), at(discount), at(log_alpha), at(y)};
      });
}

ParityCase CriticCase(int rows, int critics, int columns) {
  Image m(34);
  const size_t n = static_cast<size_t>(rows), stride = Count(rows, columns) + 5;
  const auto q = m.Random("q", stride * static_cast<size_t>(critics), -9, 9);
  const auto y = m.Random("y", n, -9, 9), weight = m.Random("weight", n, 0, 1);
  const Slot<int32_t> action = columns > 1 ? m.Ints("action", n, 0, columns) : Slot<int32_t>{};
  const auto dq = m.Random("dq", stride * static_cast<size_t>(critics), -1, 1, Use::kBoth);
  const auto td = m.Output<float>("td_abs", n);
  const int tiles = CeilDiv(rows, kSacRows);
  const auto stats = m.Output<double>("stats", static_cast<size_t>(tiles) * sizeof(SacCriticStats) / 8);
  return OpCase<CriticLoss>(
      absl::StrCat("CriticLoss rows ", rows, " critics ", critics, " columns ", columns), std::move(m),
      [=](const ImageView& at) {
        return CriticLoss::Params{rows,       critics, columns, at(action),
                                  at(q),      at(dq),  stride,  at(y),
                                  at(weight), 0.01f,   at(td),  reinterpret_cast<SacCriticStats*>(at(stats))};
      });
}

ParityCase PolicyCase(int rows, int critics, bool mean) {
  Image m(35);
  const size_t n = static_cast<size_t>(rows), stride = n + 5;
  const auto q = m.Random("q", stride * static_cast<size_t>(critics), -9, 9);
  const auto log_prob = m.Random("log_prob", n, -3, 2), log_alpha = m.Random("log_alpha", 1, -2, 1);
  const auto dq = m.Random("dq", stride * static_cast<size_t>(critics), -1, 1, Use::kBoth);
  const int tiles = CeilDiv(rows, kSacRows);
  const auto stats = m.Output<double>("stats", static_cast<size_t>(tiles) * sizeof(SacPolicyStats) / 8);
  return OpCase<PolicyQ>(
      absl::StrCat("PolicyQ rows ", rows, " critics ", critics, mean ? " mean" : ""), std::move(m),
      [=](const ImageView& at) {
        return PolicyQ::Params{
            rows,   critics,      mean,          at(q), at(dq),
            stride, at(log_prob), at(log_alpha), 0.01f, reinterpret_cast<SacPolicyStats*>(at(stats))};
      });
}

ParityCase TemperatureCase(int parts) {
  Image m(36);
  std::vector<double> sums(static_cast<size_t>(parts) * sizeof(SacPolicyStats) / 8);
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = 0.7 * static_cast<double>(i % 5) - 1.1;
  const auto stats = m.Values("stats", sums);
  const auto gradient = m.Output<float>("gradient", 1);
  return OpCase<TemperatureGradient>(
      absl::StrCat("TemperatureGradient parts ", parts), std::move(m), [=](const ImageView& at) {
        return TemperatureGradient::Params{parts, reinterpret_cast<const SacPolicyStats*>(at(stats)), 100.0,
                                           -6.0, at(gradient)};
      });
}

// The first action of each row is always allowed.
Slot<uint8_t> Mask(Image& m, int rows, int actions, bool masked) {
  if (!masked) return {};
  const auto mask = m.Flags("mask", Count(rows, actions), 0.6);
  for (int r = 0; r < rows; ++r) m.Host(mask)[Count(r, actions)] = 1;
  return mask;
}

ParityCase DiscreteTargetCase(int rows, int actions, bool masked) {
  Image m(37);
  const int ld = actions + 1;
  const size_t n = static_cast<size_t>(rows), stride = Count(rows, actions) + 5;
  const auto logits = m.Random("logits", Count(rows, ld), -4, 4);
  const auto mask = Mask(m, rows, actions, masked);
  const auto subset = m.Values("subset", std::vector<int32_t>{1, 0});
  const auto q = m.Random("q", 2 * stride, -9, 9), reward = m.Random("reward", n, -1, 1);
  const auto discount = m.Random("discount", n, 0, 1), log_alpha = m.Random("log_alpha", 1, -2, 1);
  const auto weight = m.Scratch<float>("weight", Count(rows, actions));
  const auto y = m.Output<float>("y", n);
  return OpCase<DiscreteSacTarget>(
      absl::StrCat("DiscreteSacTarget rows ", rows, " actions ", actions, masked ? " masked" : ""),
      std::move(m), [=](const ImageView& at) {
        DiscreteSacTarget::Params p{};
        p.rows = rows, p.actions = actions, p.logits = at(logits), p.ld = ld, p.mask = at(mask);
        p.critics = 2, p.subset = at(subset), p.q = at(q), p.stride = stride;
        p.reward = at(reward), p.discount = at(discount), p.log_alpha = at(log_alpha);
        p.weight = at(weight), p.y = at(y);
        return p;
      });
}

ParityCase DiscretePolicyCase(int rows, int actions, bool masked, bool mean) {
  Image m(38);
  const int ld = actions + 1;
  const size_t stride = Count(rows, actions) + 5;
  const auto logits = m.Random("logits", Count(rows, ld), -4, 4);
  const auto mask = Mask(m, rows, actions, masked);
  const auto all = m.Values("all", std::vector<int32_t>{0, 1});
  const auto q = m.Random("q", 2 * stride, -9, 9), log_alpha = m.Random("log_alpha", 1, -2, 1);
  const auto weight = m.Scratch<float>("weight", Count(rows, actions));
  const auto dlogits = m.Random("dlogits", Count(rows, ld), -1, 1, Use::kBoth);
  const int tiles = CeilDiv(rows, kSacRows);
  const auto stats = m.Output<double>("stats", static_cast<size_t>(tiles) * sizeof(SacPolicyStats) / 8);
  return OpCase<DiscretePolicyLoss>(
      absl::StrCat("DiscretePolicyLoss rows ", rows, " actions ", actions, masked ? " masked" : "",
                   mean ? " mean" : ""),
      std::move(m), [=](const ImageView& at) {
        DiscretePolicyLoss::Params p{};
        p.rows = rows, p.actions = actions, p.logits = at(logits), p.ld = ld, p.mask = at(mask);
        p.critics = 2, p.mean = mean, p.q = at(q), p.stride = stride, p.all = at(all);
        p.log_alpha = at(log_alpha), p.inv_count = 0.01f, p.weight = at(weight), p.dlogits = at(dlogits);
        p.stats = reinterpret_cast<SacPolicyStats*>(at(stats));
        return p;
      });
}

}  // namespace

void AddSacCases(std::vector<ParityCase>* cases, int rows) {
  for (const bool deterministic : {false, true}) cases->push_back(SampleCase(rows, 6, deterministic));
  cases->push_back(SampleCase(rows, 1, false));
  cases->push_back(BackwardCase(rows, 6, 2));
  cases->push_back(BackwardCase(rows, 1, 1));
  cases->push_back(TargetCase(rows, 5));
  for (const int columns : {1, 4}) cases->push_back(CriticCase(rows, 2, columns));
  for (const bool mean : {false, true}) cases->push_back(PolicyCase(rows, 3, mean));
  cases->push_back(TemperatureCase(rows));
  for (const bool masked : {false, true}) {
    cases->push_back(DiscreteTargetCase(rows, 5, masked));
    cases->push_back(DiscretePolicyCase(rows, 5, masked, masked));
  }
}

}  // namespace millrace
