#include "cli/tune_measure.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actor/env_pool.h"
#include "cli/bench_timing.h"
#include "cli/trainer.h"
#include "common/row_groups.h"
#include "learner/make_learner.h"

namespace millrace {
namespace {

using bench::Clock;
using bench::Since;

constexpr int kRounds = 5;                // through all sizes
constexpr double kSampleSeconds = 0.03;   // of updates that give one rate; at least one gradient step
constexpr uint64_t kMostFilled = 65'536;  // transitions of the replay, beyond which its size changes little
constexpr uint64_t kFillChunk = 8'192;    // of them, collected at once
constexpr double kMostStepsOfAnUpdate = 16;  // gradient steps

// The rate that the fastest quarter of the measurements reaches, and how far the middle half spreads.
TunedSize Summary(uint32_t batch, double samples_per_update, std::vector<double> rates) {
  std::sort(rates.begin(), rates.end());
  const size_t last = rates.size() - 1, quarter = last / 4;
  const double rate = rates[last - quarter];
  return {batch, rate, rate * samples_per_update, (rate - rates[quarter]) / rate};
}

// The run's options, with what would write, wait, stop or change the weights turned off.
RunOptions ForMeasuring(RunOptions o) {
  o.mode = RunMode::kSync;
  o.env.step_wait_us = 0;
  o.checkpoint.replay = false;
  o.replay.file.clear();
  o.replay.error_band = 0;
  o.ppo.learning_rate = o.ppo.target_kl = 0;
  o.sac.actor_learning_rate = o.sac.critic_learning_rate = o.sac.alpha_learning_rate = 0;
  o.sac.max_q_ratio = 0;
  o.sac.batch_min = o.sac.batch_max = 0;
  if (IsSac(o)) {
    const double inserts = static_cast<double>(o.env.rows) * o.sac.horizon;
    o.sac.updates_per_step = std::clamp(UpdatesPerStep(o) * inserts, 1.0, kMostStepsOfAnUpdate) / inserts;
    o.replay.samples_per_insert = 0;
  }
  return o;
}

// The learner at one size with the steps that it is fed.
class OneSize {
 public:
  static StatusOr<std::unique_ptr<OneSize>> Make(const RunOptions& options, ThreadPool& threads) {
    auto one = std::unique_ptr<OneSize>(new OneSize(ForMeasuring(options), threads));
    MILL_RETURN_IF_ERROR(IsSac(options) ? one->PrepareSac() : one->PreparePpo());
    return one;
  }

  // Adds the rates, in gradient steps a second, of about `seconds` of updates: one at least.
  Status Measure(double seconds, std::vector<double>& rates) {
    MILL_RETURN_IF_ERROR(Update().status());  // touches memory
    const double enough = std::min(kSampleSeconds, seconds / 2);
    for (double total = 0; total < seconds;) {
      double sample = 0;
      int steps = 0;
      while (steps == 0 || sample < enough) {
        MILL_ASSIGN_OR_RETURN(const Timed timed, Update());
        sample += timed.seconds;
        steps += timed.steps;
      }
      rates.push_back(steps / sample);
      total += sample;
    }
    return absl::OkStatus();
  }

  // Of a gradient step; of PPO's, where an epoch's last one may have fewer, the mean.
  double samples_per_update() const {
    if (IsSac(options_)) return options_.sac.batch_size;
    const double rollout = static_cast<double>(options_.env.rows) * options_.ppo.horizon;
    return rollout / std::ceil(rollout / options_.ppo.minibatch_size);
  }

 private:
  struct Timed {
    double seconds = 0;
    int steps = 0;  // gradient steps
  };

  OneSize(const RunOptions& options, ThreadPool& threads) : options_(options), threads_(threads) {}

  StatusOr<std::unique_ptr<EnvPool>> MakePool(uint64_t horizon, uint64_t uniform_steps) {
    return EnvPool::Make(options_.env, options_.run.seed, static_cast<int>(horizon), threads_, uniform_steps);
  }

  Status MakeLearnerFor(const EnvSpec& spec) {
    MILL_RETURN_IF_ERROR(ValidateForEnv(options_, spec));
    const std::vector<int> groups =
        GroupRows(static_cast<int>(options_.env.rows), static_cast<int>(options_.env.group_rows));
    MILL_ASSIGN_OR_RETURN(learner_, MakeLearner(options_, spec, groups, threads_));
    return absl::OkStatus();
  }

  Status Collect(EnvPool& pool) {
    pool.Collect(learner_->policy(), agent_steps_);
    agent_steps_ += static_cast<uint64_t>(pool.horizon());
    const EnvFault* fault = pool.fault();
    return fault == nullptr ? absl::OkStatus() : fault->ToStatus();
  }

  Status PreparePpo() {
    MILL_ASSIGN_OR_RETURN(pool_, MakePool(options_.ppo.horizon, 0));
    MILL_RETURN_IF_ERROR(MakeLearnerFor(pool_->spec()));
    return Collect(*pool_);
  }

  // The replay is filled by long segments; from there on each update has one of the run's.
  Status PrepareSac() {
    constexpr uint64_t kAlways = std::numeric_limits<uint64_t>::max();
    const uint64_t rows = options_.env.rows;
    const uint64_t wanted = std::min(kMostFilled, options_.replay.capacity * 9 / 10);
    const uint64_t horizon = std::max<uint64_t>(1, std::min(wanted, kFillChunk) / rows);
    const uint64_t chunks = std::max<uint64_t>(1, wanted / (rows * horizon));
    options_.replay.min_size = std::min(options_.replay.capacity, chunks * rows * horizon);
    MILL_ASSIGN_OR_RETURN(const auto filler, MakePool(horizon, kAlways));
    MILL_RETURN_IF_ERROR(MakeLearnerFor(filler->spec()));
    for (uint64_t i = 0; i < chunks; ++i) {
      MILL_RETURN_IF_ERROR(Collect(*filler));
      MILL_RETURN_IF_ERROR(learner_->Update(filler->segments(), 0).status());
    }
    MILL_ASSIGN_OR_RETURN(pool_, MakePool(options_.sac.horizon, kAlways));
    return absl::OkStatus();
  }

  StatusOr<Timed> Update() {
    if (IsSac(options_)) MILL_RETURN_IF_ERROR(Collect(*pool_));
    const Clock::time_point begin = Clock::now();
    MILL_ASSIGN_OR_RETURN(const LearnerReport report, learner_->Update(pool_->segments(), 0));
    return Timed{Since(begin), report.minibatches};
  }

  RunOptions options_;
  ThreadPool& threads_;
  std::unique_ptr<Learner> learner_;
  std::unique_ptr<EnvPool> pool_;
  uint64_t agent_steps_ = 0;
};

}  // namespace

StatusOr<std::vector<TunedSize>> MeasureSizes(const RunOptions& options, const std::vector<uint32_t>& sizes,
                                              double seconds, ThreadPool& threads) {
  std::vector<std::vector<double>> rates(sizes.size());
  std::vector<double> samples_per_update(sizes.size());
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      const auto one = OneSize::Make(WithBatchSize(options, sizes[i]), threads);
      const Status status = one.ok() ? (*one)->Measure(seconds / kRounds, rates[i]) : one.status();
      if (!status.ok()) {
        return Status(status.code(), absl::StrCat(BatchSetting(options), "=", sizes[i], ": ",
                                                  std::string(status.message())));
      }
      samples_per_update[i] = (*one)->samples_per_update();
    }
  }
  std::vector<TunedSize> tuned;
  for (size_t i = 0; i < sizes.size(); ++i) {
    tuned.push_back(Summary(sizes[i], samples_per_update[i], std::move(rates[i])));
  }
  return tuned;
}

}  // namespace millrace
