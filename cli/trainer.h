// Trainer: the stations of one process joined - environment pool, policy runner, learner - and the loop over
// them, one update at a time. No files, no terminal: those are cli/train.cc's. Called from one thread.
#pragma once

#include <memory>

#include "actor/env_pool.h"
#include "cli/evaluate.h"
#include "cli/run_state.h"
#include "common/metrics.h"
#include "common/options.h"
#include "common/status.h"
#include "kernels/core/thread_pool.h"
#include "learner/ppo.h"

namespace millrace {

// Checks that need the environment: what Validate could not know. InvalidArgument naming the key.
Status ValidateForEnv(const RunOptions& options, const EnvSpec& spec);

class Trainer {
 public:
  static StatusOr<std::unique_ptr<Trainer>> Make(const RunOptions& options);

  // One rollout and one update. DataLoss when a value was not finite and run.on_nonfinite is `stop`: of an
  // environment before anything was trained on it, of a loss with the minibatches before it applied. The
  // row's `seconds` counts training only.
  StatusOr<MetricsRow> Iterate();

  // The run's steps are done, or the target that ends it early is reached.
  bool Done() const;
  // Evaluation by the run's seed; the same episodes every time, none of them a training episode.
  StatusOr<EvalResult> EvaluateNow(bool (*stop)() = nullptr);

  PpoLearner& learner() { return *learner_; }
  EnvPool& pool() { return *pool_; }
  RunState& state() { return state_; }
  const RunOptions& options() const { return options_; }
  int threads() const { return threads_->threads(); }
  // Episodes of the window that run.stop_at_return judges; 100 where it is not set.
  size_t window() const;
  // Mean return of that window; NaN before the first episode has ended.
  double RecentReturn() const;

 private:
  explicit Trainer(const RunOptions& options);
  void TakeEpisodes(MetricsRow& row);
  Status CheckFaults(bool& drop);

  const RunOptions options_;
  std::unique_ptr<ThreadPool> threads_;
  std::unique_ptr<EnvPool> pool_;
  std::unique_ptr<PpoLearner> learner_;
  RunState state_;
};

}  // namespace millrace
