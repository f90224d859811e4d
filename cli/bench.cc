#include "cli/bench.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "actor/env_pool.h"
#include "cli/bench_replay.h"
#include "cli/bench_sac.h"
#include "cli/bench_timing.h"
#include "cli/bench_transport.h"
#include "common/nearest.h"
#include "common/resource_usage.h"
#include "common/row_groups.h"
#include "kernels/core/cpu_kernel_set.h"
#include "kernels/core/fma_peak.h"
#include "kernels/ops/philox.h"
#include "learner/ppo.h"

namespace millrace {
namespace {

using bench::Clock;
using bench::Median;
using bench::Since;
using bench::Summarize;

// GFLOP/s of all threads at once.
double FmaPeakOfAll(ThreadPool& threads) {
  std::vector<double> each(static_cast<size_t>(threads.threads()), 0.0);
  threads.ParallelFor(threads.threads(),
                      [&](int task, int) { each[static_cast<size_t>(task)] = FmaPeakGflops(0.02); });
  double sum = 0;
  for (double g : each) sum += g;
  return sum;
}

// Bytes a second that all threads can copy, reads and writes counted, from buffers past the caches.
double CopyBandwidthOfAll(ThreadPool& threads) {
  constexpr size_t kBytes = 64u << 20;
  std::vector<std::vector<char>> from(static_cast<size_t>(threads.threads()), std::vector<char>(kBytes, 1)),
      to = from;
  const Clock::time_point begin = Clock::now();
  threads.ParallelFor(threads.threads(), [&](int task, int) {
    const auto i = static_cast<size_t>(task);
    std::memcpy(to[i].data(), from[i].data(), kBytes);
  });
  return 2.0 * static_cast<double>(kBytes) * threads.threads() / Since(begin);
}

struct PpoWork {
  const char *name, *summary;
  int obs, actions, rows, horizon, minibatch, epochs;
  std::vector<uint32_t> hidden;
  bool shared;
};

const std::vector<PpoWork>& PpoWorks() {
  static const std::vector<PpoWork> works = {
      {"ppo-heavy",
       "PPO, 118 obs, 3 actions, separate 2x128 tanh, 1024 rows x 64, minibatch 16384, 1 epoch",
       118,
       3,
       1024,
       64,
       16384,
       1,
       {128, 128},
       false},
      {"ppo-shared", "the same with one shared layer of 128", 118, 3, 1024, 64, 16384, 1, {128}, true},
      {"ppo-light",
       "PPO, 4 obs, 2 actions, separate 2x64 tanh, 8 rows x 128, minibatch 256, 10 epochs",
       4,
       2,
       8,
       128,
       256,
       10,
       {64, 64},
       false},
  };
  return works;
}

RunOptions OptionsFor(const PpoWork& work) {
  RunOptions options;
  options.env.id = "Null";
  options.env.rows = static_cast<uint32_t>(work.rows);
  options.env.params = {{"obs", absl::StrCat(work.obs)}, {"actions", absl::StrCat(work.actions)}};
  options.policy.hidden = work.hidden;
  options.policy.shared = work.shared;
  options.ppo.horizon = static_cast<uint32_t>(work.horizon);
  options.ppo.minibatch_size = static_cast<uint32_t>(work.minibatch);
  options.ppo.epochs = static_cast<uint32_t>(work.epochs);
  return options;
}

// Rollout and update, again and again; the FMA peak is measured between them, so that both see the same
// neighbours.
StatusOr<BenchResult> RunPpo(const PpoWork& work, const BenchOptions& bench, ThreadPool& threads) {
  const RunOptions options = OptionsFor(work);
  MILL_ASSIGN_OR_RETURN(auto pool, EnvPool::Make(options.env, 1, work.horizon, threads));
  const std::vector<int> groups = GroupRows(work.rows, 0);
  MILL_ASSIGN_OR_RETURN(auto learner, PpoLearner::Make(options, pool->spec(), groups, threads));
  const double steps = static_cast<double>(work.rows) * work.horizon;
  const int inner =
      std::max(1, static_cast<int>(65536 / steps));  // so that one sample is long enough to time
  std::vector<double> rates, peaks, rollout_shares;
  uint64_t agent_steps = 0;
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < 4 || Since(begin) < bench.seconds; ++i) {
    if (i > 0) peaks.push_back(FmaPeakOfAll(threads));
    double rollout = 0;
    const Clock::time_point start = Clock::now();
    for (int k = 0; k < inner; ++k) {
      const Clock::time_point collect = Clock::now();
      pool->Collect(learner->policy(), agent_steps);
      rollout += Since(collect);
      agent_steps += static_cast<uint64_t>(work.horizon);
      MILL_RETURN_IF_ERROR(learner->Update(pool->segments(), 0.0).status());
    }
    const double seconds = Since(start);
    if (i == 0) continue;  // the first touches memory
    rates.push_back(steps * inner / seconds);
    rollout_shares.push_back(rollout / seconds);
  }
  BenchResult result{work.name, "steps/s", CpuKernelSet(), 0, 0, 0, 0, 0, {}};
  Summarize(rates, result);
  const double flops = 2 * (learner->net().ForwardMacs() + work.epochs * learner->net().TrainMacs());
  const double peak = Median(peaks);
  result.floor = peak * 1e9 / flops;
  result.fraction = result.rate / result.floor;
  result.details = {{"flops_per_step", flops},
                    {"fma_peak_gflops", peak},
                    {"rollout_share", Median(rollout_shares)},
                    {"threads", static_cast<double>(threads.threads())},
                    {"repetitions", static_cast<double>(rates.size())}};
  return result;
}

void RandomActions(EnvPool& pool) {
  const ActionSpec& action = pool.spec().action;
  uint64_t counter = 0;
  for (const SegmentView& segment : pool.segments()) {
    for (int i = 0; i < segment.layout().samples() * action.width(); ++i) {
      const float u = UniformFloat(PhiloxAt(1, Purpose::kTest, 0, counter++).v[0]);
      const auto d = static_cast<size_t>(i % action.width());
      if (action.box()) {
        const float low = std::max(action.low[d], -1e3f), high = std::min(action.high[d], 1e3f);
        static_cast<float*>(segment.action())[i] = low + u * (high - low);
      } else {
        static_cast<int32_t*>(segment.action())[i] =
            static_cast<int32_t>(u * static_cast<float>(action.nvec[d]));
      }
    }
  }
}

// Steps with random actions through the pool: auto-reset, statistics and checks included, no inference.
StatusOr<BenchResult> RunEnv(const std::string& id, const BenchOptions& bench, ThreadPool& threads) {
  EnvSection env;
  env.id = id;
  env.rows = 1024;
  constexpr int kHorizon = 64;
  MILL_ASSIGN_OR_RETURN(auto pool, EnvPool::Make(env, 1, kHorizon, threads));
  RandomActions(*pool);
  std::vector<double> rates, bandwidths;
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < 4 || Since(begin) < bench.seconds; ++i) {
    const int inner = 4;
    const Clock::time_point start = Clock::now();
    for (int k = 0; k < inner; ++k) pool->StepOnly();
    if (i > 0) rates.push_back(1024.0 * kHorizon * inner / Since(start));
  }
  for (int i = 0; i < 3; ++i) bandwidths.push_back(CopyBandwidthOfAll(threads));
  BenchResult result{absl::StrCat("env:", id), "steps/s", CpuKernelSet(), 0, 0, 0, 0, 0, {}};
  Summarize(rates, result);
  double bytes =
      sizeof(float) + 3 + 4.0 * pool->spec().action.width();  // reward and flags written, actions read
  for (const ArraySpec& array : pool->spec().observations) bytes += static_cast<double>(array.bytes());
  const double bandwidth = Median(bandwidths);
  result.floor = bandwidth / bytes;
  result.fraction = result.rate / result.floor;
  result.details = {{"bytes_per_step", bytes},
                    {"copy_gb_per_second", bandwidth / 1e9},
                    {"threads", static_cast<double>(threads.threads())},
                    {"repetitions", static_cast<double>(rates.size())}};
  return result;
}

}  // namespace

std::vector<BenchWork> BenchWorks() {
  std::vector<BenchWork> works;
  for (const PpoWork& work : PpoWorks()) works.push_back({work.name, work.summary});
  for (const std::string& id : EnvIds())
    works.push_back({absl::StrCat("env:", id), "1024 rows, random actions"});
  for (BenchWork& work : SacWorks()) works.push_back(std::move(work));
  for (BenchWork& work : ReplayWorks()) works.push_back(std::move(work));
  for (BenchWork& work : TransportWorks()) works.push_back(std::move(work));
  return works;
}

StatusOr<BenchResult> RunBench(const std::string& work, const BenchOptions& options) {
  std::vector<std::string> names;
  for (const BenchWork& known : BenchWorks()) names.push_back(known.name);
  if (std::find(names.begin(), names.end(), work) == names.end()) {
    const std::string near = NearestName(work, names);
    return absl::InvalidArgumentError(
        absl::StrCat("unknown work ", work, near.empty() ? "" : absl::StrCat("; did you mean ", near, "?"),
                     "; `millrace bench list` names all"));
  }
  if (absl::StartsWith(work, "replay:")) return RunReplay(work, options);
  if (absl::StartsWith(work, "transport:")) return RunTransport(work, options);
  ThreadPool threads(static_cast<int>(options.threads > 0 ? options.threads : AvailableCpus()));
  if (absl::StartsWith(work, "env:")) return RunEnv(work.substr(4), options, threads);
  if (IsSacWork(work)) return RunSac(work, options, threads, FmaPeakOfAll);
  for (const PpoWork& known : PpoWorks()) {
    if (work == known.name) return RunPpo(known, options, threads);
  }
  return absl::InternalError(absl::StrCat("work ", work, " is listed but has no body"));
}

std::string ToJson(const BenchResult& r) {
  nlohmann::ordered_json json = {{"work", r.work},        {"rate", r.rate},         {"unit", r.unit},
                                 {"floor", r.floor},      {"fraction", r.fraction}, {"rate_min", r.rate_min},
                                 {"rate_max", r.rate_max}};
  json["cpu_kernels"] = r.cpu_kernels;
  for (const auto& [name, value] : r.details) json[name] = value;
  return json.dump();
}

std::string ToText(const BenchResult& r) {
  const auto number = [&](double x) {
    return r.rate < 100 ? absl::StrFormat("%.3f", x) : absl::StrFormat("%.0f", x);
  };
  std::string text =
      absl::StrFormat("%-26s %12s %s   floor %12s   %5.1f%% of it   (%s to %s)\n", r.work, number(r.rate),
                      r.unit, number(r.floor), 100 * r.fraction, number(r.rate_min), number(r.rate_max));
  absl::StrAppendFormat(&text, "    %-24s %s\n", "cpu_kernels", r.cpu_kernels);
  for (const auto& [name, value] : r.details) absl::StrAppendFormat(&text, "    %-24s %.6g\n", name, value);
  return text;
}

}  // namespace millrace
