// Each op's time beside what the machine cannot undercut: the bytes it must touch over memcpy's bandwidth,
// measured in the same run on a buffer of about the same size. Counters: ns a row (or element), floor_ns, and
// their ratio `floor`.
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "kernels/ops/action_log_prob.h"
#include "kernels/ops/adam.h"
#include "kernels/ops/categorical.h"
#include "kernels/ops/gae.h"
#include "kernels/ops/gather.h"
#include "kernels/ops/gaussian.h"
#include "kernels/ops/grad_reduce.h"
#include "kernels/ops/layer_norm.h"
#include "kernels/ops/moments.h"
#include "kernels/ops/ppo_loss.h"
#include "kernels/ops/running_stats.h"
#include "kernels/ops/sac_discrete.h"
#include "kernels/ops/sac_loss.h"
#include "kernels/ops/shuffle.h"
#include "kernels/ops/tanh_gaussian.h"
#include "kernels/ops/vtrace.h"

namespace millrace {
namespace {

using Floats = std::vector<float>;

// Of this thread's own CPU time, so that neighbours on a shared machine count for little.
double Seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Bytes a second (read and written both counted) of memcpy on a working set of `bytes`; the best of several.
double CopyBandwidth(size_t bytes) {
  static std::map<size_t, double> known;
  const size_t half = std::max<size_t>(bytes / 2, 4096);
  double& best = known[half];
  if (best > 0.0) return best;
  std::vector<char> from(half, 1), to(half);
  const int repeats = static_cast<int>(std::max<size_t>(1, (size_t{8} << 20) / half));
  for (int trial = 0; trial < 5; ++trial) {
    const double start = Seconds();
    for (int i = 0; i < repeats; ++i) {
      std::memcpy(to.data(), from.data(), half);
      benchmark::DoNotOptimize(to.data());
      benchmark::ClobberMemory();
    }
    best = std::max(best, 2.0 * static_cast<double>(half) * repeats / (Seconds() - start));
  }
  return best;
}

// Runs the op; `items` rows or elements and `bytes` touched, both of one run.
template <class Op>
void Measure(benchmark::State& state, const typename Op::Params& params, double items, double bytes) {
  const double floor = bytes / CopyBandwidth(static_cast<size_t>(bytes));
  const double start = Seconds();
  for (auto _ : state) {
    RunSerial<Op>(params);
    benchmark::ClobberMemory();
  }
  const double each = (Seconds() - start) / static_cast<double>(state.iterations());
  state.counters["ns"] = 1e9 * each / items;
  state.counters["floor_ns"] = 1e9 * floor / items;
  state.counters["floor"] = floor / each;
}

Floats Noise(size_t n, uint32_t row, float lo = -1.0f, float hi = 1.0f) {
  Floats x(n);
  for (size_t i = 0; i < n; ++i)
    x[i] = lo + (hi - lo) * UniformFloat(PhiloxAt(1, Purpose::kTest, row, i).v[0]);
  return x;
}

void BM_Gae(benchmark::State& state) {
  const int T = 64, N = static_cast<int>(state.range(0));
  const size_t n = static_cast<size_t>(T) * N;
  const Floats reward = Noise(n, 0), value = Noise(n, 1), next = Noise(n, 2);
  std::vector<uint8_t> flags(n);
  Floats advantage(n), ret(n);
  Measure<Gae>(state,
               {T, N, reward.data(), value.data(), next.data(), flags.data(), flags.data(), 0.99f, 0.95f,
                advantage.data(), ret.data()},
               static_cast<double>(n), 22.0 * static_cast<double>(n));
}
BENCHMARK(BM_Gae)->Arg(8)->Arg(1024);

void BM_Vtrace(benchmark::State& state) {
  const int T = 64, N = static_cast<int>(state.range(0));
  const size_t n = static_cast<size_t>(T) * N;
  const Floats log_rho = Noise(n, 3), reward = Noise(n, 0), value = Noise(n, 1), next = Noise(n, 2);
  std::vector<uint8_t> flags(n);
  Floats vs(n), pg(n);
  Measure<Vtrace>(state,
                  {T, N, log_rho.data(), reward.data(), value.data(), next.data(), flags.data(), flags.data(),
                   0.99f, 1.0f, 1.0f, 1.0f, 1.0f, vs.data(), pg.data()},
                  static_cast<double>(n), 26.0 * static_cast<double>(n));
}
BENCHMARK(BM_Vtrace)->Arg(1024);

void BM_Moments(benchmark::State& state) {
  const int n = 16384;
  const bool gathered = state.range(0) != 0;
  const Floats x = Noise(65536, 0);
  std::vector<int32_t> index(n);
  RunSerial<FillPermutation>({MakePermutation(65536, Philox4{}), 0, n, index.data()});
  MomentsResult out;
  Measure<Moments>(state, {n, x.data(), gathered ? index.data() : nullptr, &out}, n,
                   (gathered ? 8.0 : 4.0) * n);
}
BENCHMARK(BM_Moments)->Arg(0)->Arg(1);

void BM_BatchMoments(benchmark::State& state) {
  const int rows = 256, dims = static_cast<int>(state.range(0));
  const Floats x = Noise(static_cast<size_t>(rows) * dims, 0);
  std::vector<double> mean(dims), variance(dims);
  Measure<BatchMoments>(state, {rows, dims, x.data(), dims, mean.data(), variance.data()}, rows,
                        4.0 * rows * dims);
}
BENCHMARK(BM_BatchMoments)->Arg(118);

void BM_SampleCategorical(benchmark::State& state) {
  const int rows = 1024;
  const int32_t n = static_cast<int32_t>(state.range(0));
  const Floats logits = Noise(static_cast<size_t>(rows) * n, 0, -2.0f, 2.0f);
  std::vector<int32_t> action(rows);
  Floats log_prob(rows);
  Measure<SampleCategorical>(state,
                             {rows, logits.data(), n, nullptr, 1, &n, 1, Purpose::kAction, 0, 1, false,
                              action.data(), log_prob.data(), nullptr},
                             rows, (4.0 * n + 8.0) * rows);
}
BENCHMARK(BM_SampleCategorical)->Arg(2)->Arg(3)->Arg(18)->Arg(64);

void BM_SampleGaussian(benchmark::State& state) {
  const int rows = 1024, dims = static_cast<int>(state.range(0));
  const Floats mean = Noise(static_cast<size_t>(rows) * dims, 0), log_std(dims, -0.5f);
  Floats action(mean.size()), log_prob(rows);
  Measure<SampleGaussian>(state,
                          {rows, mean.data(), dims, log_std.data(), dims, 1, Purpose::kAction, 0, 1, false,
                           action.data(), log_prob.data(), nullptr},
                          rows, (8.0 * dims + 4.0) * rows);
}
BENCHMARK(BM_SampleGaussian)->Arg(1)->Arg(8);

void BM_ActionLogProb(benchmark::State& state) {
  const int rows = 64;
  const int32_t n = static_cast<int32_t>(state.range(0));
  const Floats logits = Noise(static_cast<size_t>(rows) * n, 0, -2.0f, 2.0f);
  std::vector<int32_t> action(rows);
  for (int r = 0; r < rows; ++r) action[static_cast<size_t>(r)] = r % n;
  Floats log_prob(rows);
  Measure<ActionLogProb>(state,
                         {rows, logits.data(), n, nullptr, 1, &n, nullptr, action.data(), log_prob.data()},
                         rows, (4.0 * n + 8.0) * rows);
}
BENCHMARK(BM_ActionLogProb)->Arg(2)->Arg(3)->Arg(18)->Arg(64);

// range(0): logits, or dimensions of a Box when range(1) is 1. A minibatch in blocks of 64 rows, as the
// learner cuts it.
void BM_PpoLoss(benchmark::State& state) {
  const int rows = 64, n = static_cast<int>(state.range(0));
  const bool box = state.range(1) != 0;
  const size_t size = static_cast<size_t>(rows) * n;
  const Floats logits = Noise(size, 0), old_log_prob = Noise(rows, 1, -1.4f, -0.8f),
               advantage = Noise(rows, 2), value = Noise(rows, 3), ret = Noise(rows, 4),
               box_action = Noise(size, 5), log_std(n, -0.5f);
  std::vector<int32_t> action(rows);
  for (int r = 0; r < rows; ++r) action[static_cast<size_t>(r)] = r % n;
  const int32_t nvec = n;
  const PpoCoefs coefs{0.2f, 0.2f, 0.01f, 0.5f, 1.0f / rows, 0.0f, 1.0f};
  Floats dlogits(size), dvalue(rows), dlog_std(n);
  PpoStats stats;
  Measure<PpoLoss>(state,
                   {.rows = rows,
                    .logits = logits.data(),
                    .ld = n,
                    .mask = nullptr,
                    .heads = box ? n : 1,
                    .nvec = &nvec,
                    .log_std = box ? log_std.data() : nullptr,
                    .action = box ? static_cast<const void*>(box_action.data()) : action.data(),
                    .old_log_prob = old_log_prob.data(),
                    .advantage = advantage.data(),
                    .old_value = value.data(),
                    .ret = ret.data(),
                    .value = value.data(),
                    .value_ld = 1,
                    .coefs = &coefs,
                    .dlogits = dlogits.data(),
                    .dvalue = dvalue.data(),
                    .dlog_std = dlog_std.data(),
                    .stats = &stats},
                   rows, (8.0 * n + (box ? 4.0 * n : 4.0) + 24.0) * rows);
}
BENCHMARK(BM_PpoLoss)->Args({2, 0})->Args({3, 0})->Args({18, 0})->Args({64, 0})->Args({1, 1})->Args({6, 1});

void BM_GradReduce(benchmark::State& state) {
  const int n = 65536, shards = static_cast<int>(state.range(0));
  Floats buffers = Noise(static_cast<size_t>(n) * shards, 0), sum(n);
  std::vector<double> squares(static_cast<size_t>(GradReduce::Chunks(n)));
  Measure<GradReduce>(state, {n, shards, buffers.data(), static_cast<size_t>(n), sum.data(), squares.data()},
                      n, (8.0 * shards + 4.0) * n);
}
BENCHMARK(BM_GradReduce)->Arg(1)->Arg(4)->Arg(16);

void BM_Adam(benchmark::State& state) {
  const int n = static_cast<int>(state.range(0));
  Floats w = Noise(n, 0), g = Noise(n, 1), m(n, 0.1f), v(n, 0.1f);
  AdamStep step;
  step.lr = 1e-6f;
  step.Set(0.9, 0.999, 1e-8, 0.0, 10);
  Measure<Adam>(state, {w.data(), g.data(), m.data(), v.data(), n, &step, false}, n, 28.0 * n);
}
BENCHMARK(BM_Adam)->Arg(9000)->Arg(100000)->Arg(4000000);

// With a target network's average in the same pass, as SAC's critics have it.
void BM_AdamWithTarget(benchmark::State& state) {
  const int n = static_cast<int>(state.range(0));
  Floats w = Noise(n, 0), g = Noise(n, 1), m(n, 0.1f), v(n, 0.1f), target = Noise(n, 2);
  AdamStep step;
  step.lr = 1e-6f;
  step.Set(0.9, 0.999, 1e-8, 0.0, 10);
  Measure<Adam>(state,
                {.w = w.data(),
                 .g = g.data(),
                 .m = m.data(),
                 .v = v.data(),
                 .n = n,
                 .step = &step,
                 .zero_grad = false,
                 .target = target.data(),
                 .tau = 0.005f},
                n, 36.0 * n);
}
BENCHMARK(BM_AdamWithTarget)->Arg(9000)->Arg(140000)->Arg(4000000);

void BM_LayerNorm(benchmark::State& state) {
  const int rows = 256, dims = static_cast<int>(state.range(0));
  const size_t n = static_cast<size_t>(rows) * dims;
  const Floats x = Noise(n, 0), gamma(dims, 1.0f), beta(dims);
  Floats y(n), mean(rows), rstd(rows);
  Measure<LayerNorm>(
      state,
      {rows, dims, x.data(), dims, gamma.data(), beta.data(), y.data(), dims, mean.data(), rstd.data()}, rows,
      8.0 * static_cast<double>(n));
}
BENCHMARK(BM_LayerNorm)->Arg(64)->Arg(256);

void BM_LayerNormBackward(benchmark::State& state) {
  const int rows = 256, dims = static_cast<int>(state.range(0));
  const size_t n = static_cast<size_t>(rows) * dims;
  const Floats x = Noise(n, 0), dy = Noise(n, 1), gamma(dims, 1.0f), mean(rows), rstd(rows, 1.0f);
  Floats dx(n);
  Measure<LayerNormBackward>(
      state,
      {rows, dims, x.data(), dims, gamma.data(), mean.data(), rstd.data(), dy.data(), dims, dx.data(), dims},
      rows, 12.0 * static_cast<double>(n));
}
BENCHMARK(BM_LayerNormBackward)->Arg(64)->Arg(256);

void BM_LayerNormParamGrad(benchmark::State& state) {
  const int rows = 256, dims = static_cast<int>(state.range(0));
  const size_t n = static_cast<size_t>(rows) * dims;
  const Floats x = Noise(n, 0), dy = Noise(n, 1), mean(rows), rstd(rows, 1.0f);
  Floats dgamma(dims), dbeta(dims);
  Measure<LayerNormParamGrad>(
      state,
      {rows, dims, x.data(), dims, mean.data(), rstd.data(), dy.data(), dims, dgamma.data(), dbeta.data()},
      rows, 8.0 * static_cast<double>(n));
}
BENCHMARK(BM_LayerNormParamGrad)->Arg(64)->Arg(256);

void BM_GatherRows(benchmark::State& state) {
  const int rows = 256, dims = static_cast<int>(state.range(0));
  const int source = 65536;
  const Floats src = Noise(static_cast<size_t>(source) * dims, 0), mean(dims), inv_std(dims, 1.0f);
  std::vector<int32_t> index(rows);
  RunSerial<FillPermutation>({MakePermutation(source, Philox4{}), 0, rows, index.data()});
  Floats dst(static_cast<size_t>(rows) * dims);
  Measure<GatherRows>(state,
                      {rows, dims, src.data(), DType::kF32, static_cast<size_t>(dims) * sizeof(float),
                       index.data(), mean.data(), inv_std.data(), 10.0f, dst.data(), dims},
                      rows, 8.0 * rows * dims);
}
BENCHMARK(BM_GatherRows)->Arg(4)->Arg(118);

void BM_FillPermutation(benchmark::State& state) {
  const int n = static_cast<int>(state.range(0));
  std::vector<int32_t> out(n);
  Measure<FillPermutation>(state, {MakePermutation(static_cast<uint32_t>(n), Philox4{}), 0, n, out.data()}, n,
                           4.0 * n);
}
BENCHMARK(BM_FillPermutation)->Arg(1024)->Arg(65536)->Arg(100000);

// ---- SAC: a batch of 256 and two critics ----

constexpr int kBatch = 256, kCritics = 2;
constexpr int32_t kBoth[kCritics] = {0, 1};
constexpr float kLogAlpha = -1.5f;
constexpr float kInvBatch = 1.0f / kBatch;

// range(0): dimensions of a Box. The noise is kept, as for the policy's own step.
void BM_SampleSquashed(benchmark::State& state) {
  const int dims = static_cast<int>(state.range(0));
  const size_t n = static_cast<size_t>(kBatch) * dims;
  const Floats out = Noise(2 * n, 0);
  Floats action(n), log_prob(kBatch), noise(n);
  Measure<SampleSquashed>(state,
                          {.rows = kBatch,
                           .out = out.data(),
                           .ld = 2 * dims,
                           .dims = dims,
                           .seed = 1,
                           .purpose = Purpose::kSacPolicy,
                           .first_row = 0,
                           .step = 1,
                           .deterministic = false,
                           .action = action.data(),
                           .action_ld = dims,
                           .log_prob = log_prob.data(),
                           .noise = noise.data()},
                          kBatch, (16.0 * dims + 4.0) * kBatch);
}
BENCHMARK(BM_SampleSquashed)->Arg(1)->Arg(6)->Arg(17);

void BM_SquashedBackward(benchmark::State& state) {
  const int dims = static_cast<int>(state.range(0));
  const size_t n = static_cast<size_t>(kBatch) * dims;
  const Floats out = Noise(2 * n, 0), noise = Noise(n, 1), action = Noise(n, 2, -0.99f, 0.99f),
               daction = Noise(kCritics * n, 3);
  Floats dout(2 * n);
  Measure<SquashedBackward>(state,
                            {.rows = kBatch,
                             .out = out.data(),
                             .ld = 2 * dims,
                             .dims = dims,
                             .noise = noise.data(),
                             .action = action.data(),
                             .action_ld = dims,
                             .critics = kCritics,
                             .daction = daction.data(),
                             .daction_stride = n,
                             .log_alpha = &kLogAlpha,
                             .inv_count = kInvBatch,
                             .dout = dout.data()},
                            kBatch, (24.0 + 4.0 * kCritics) * dims * kBatch);
}
BENCHMARK(BM_SquashedBackward)->Arg(1)->Arg(6)->Arg(17);

void BM_SacTarget(benchmark::State& state) {
  const Floats q = Noise(kCritics * kBatch, 0), log_prob = Noise(kBatch, 1), reward = Noise(kBatch, 2),
               discount(kBatch, 0.99f);
  Floats y(kBatch);
  Measure<SacTarget>(state,
                     {.rows = kBatch,
                      .critics = kCritics,
                      .subset = kBoth,
                      .q = q.data(),
                      .stride = kBatch,
                      .log_prob = log_prob.data(),
                      .reward = reward.data(),
                      .discount = discount.data(),
                      .log_alpha = &kLogAlpha,
                      .y = y.data()},
                     kBatch, (16.0 + 4.0 * kCritics) * kBatch);
}
BENCHMARK(BM_SacTarget);

// range(0): a critic's values in a row; 1: of a Box, else one for each discrete action.
void BM_CriticLoss(benchmark::State& state) {
  const int columns = static_cast<int>(state.range(0));
  const size_t n = static_cast<size_t>(kBatch) * columns;
  const Floats q = Noise(kCritics * n, 0), y = Noise(kBatch, 1), weight(kBatch, 1.0f);
  std::vector<int32_t> action(kBatch);
  for (int r = 0; r < kBatch; ++r) action[static_cast<size_t>(r)] = r % columns;
  Floats dq(kCritics * n), td_abs(kBatch);
  std::vector<SacCriticStats> stats(kBatch / kSacRows);
  Measure<CriticLoss>(state,
                      {.rows = kBatch,
                       .critics = kCritics,
                       .columns = columns,
                       .action = columns > 1 ? action.data() : nullptr,
                       .q = q.data(),
                       .dq = dq.data(),
                       .stride = n,
                       .y = y.data(),
                       .weight = weight.data(),
                       .inv_count = kInvBatch,
                       .td_abs = td_abs.data(),
                       .stats = stats.data()},
                      kBatch, (kCritics * (4.0 + 4.0 * columns) + (columns > 1 ? 16.0 : 12.0)) * kBatch);
}
BENCHMARK(BM_CriticLoss)->Arg(1)->Arg(2)->Arg(18);

// range(0): 1 for the critics' mean instead of their minimum.
void BM_PolicyQ(benchmark::State& state) {
  const Floats q = Noise(kCritics * kBatch, 0), log_prob = Noise(kBatch, 1);
  Floats dq(kCritics * kBatch);
  std::vector<SacPolicyStats> stats(kBatch / kSacRows);
  Measure<PolicyQ>(state,
                   {.rows = kBatch,
                    .critics = kCritics,
                    .mean = state.range(0) != 0,
                    .q = q.data(),
                    .dq = dq.data(),
                    .stride = kBatch,
                    .log_prob = log_prob.data(),
                    .log_alpha = &kLogAlpha,
                    .inv_count = kInvBatch,
                    .stats = stats.data()},
                   kBatch, (8.0 * kCritics + 4.0) * kBatch);
}
BENCHMARK(BM_PolicyQ)->Arg(0)->Arg(1);

void BM_DiscreteSacTarget(benchmark::State& state) {
  const int actions = static_cast<int>(state.range(0));
  const size_t n = static_cast<size_t>(kBatch) * actions;
  const Floats logits = Noise(n, 0, -2.0f, 2.0f), q = Noise(kCritics * n, 1), reward = Noise(kBatch, 2),
               discount(kBatch, 0.99f);
  Floats weight(n), y(kBatch);
  Measure<DiscreteSacTarget>(state,
                             {.rows = kBatch,
                              .actions = actions,
                              .logits = logits.data(),
                              .ld = actions,
                              .mask = nullptr,
                              .critics = kCritics,
                              .subset = kBoth,
                              .q = q.data(),
                              .stride = n,
                              .reward = reward.data(),
                              .discount = discount.data(),
                              .log_alpha = &kLogAlpha,
                              .weight = weight.data(),
                              .y = y.data()},
                             kBatch, ((4.0 + 4.0 * kCritics) * actions + 12.0) * kBatch);
}
BENCHMARK(BM_DiscreteSacTarget)->Arg(2)->Arg(18);

void BM_DiscretePolicyLoss(benchmark::State& state) {
  const int actions = static_cast<int>(state.range(0));
  const size_t n = static_cast<size_t>(kBatch) * actions;
  const Floats logits = Noise(n, 0, -2.0f, 2.0f), q = Noise(kCritics * n, 1);
  Floats weight(n), dlogits(n);
  std::vector<SacPolicyStats> stats(kBatch / kSacRows);
  Measure<DiscretePolicyLoss>(state,
                              {.rows = kBatch,
                               .actions = actions,
                               .logits = logits.data(),
                               .ld = actions,
                               .mask = nullptr,
                               .critics = kCritics,
                               .mean = false,
                               .q = q.data(),
                               .stride = n,
                               .all = kBoth,
                               .log_alpha = &kLogAlpha,
                               .inv_count = kInvBatch,
                               .weight = weight.data(),
                               .dlogits = dlogits.data(),
                               .stats = stats.data()},
                              kBatch, (8.0 + 4.0 * kCritics) * actions * kBatch);
}
BENCHMARK(BM_DiscretePolicyLoss)->Arg(2)->Arg(18);

}  // namespace
}  // namespace millrace
