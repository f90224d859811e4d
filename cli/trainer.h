// Trainer: a source of rollouts and the learner joined, and the loop over them, one update at a time. The
// source is the environments of this process, or actors behind the trajectory service. No files, no
// terminal: those are cli/train_session.h's. Called from one thread.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "cli/evaluate.h"
#include "cli/run_state.h"
#include "common/metrics.h"
#include "common/options.h"
#include "common/status.h"
#include "kernels/core/thread_pool.h"
#include "learner/learner.h"
#include "learner/rollout_source.h"

namespace millrace {

// Checks that need the environment: what Validate could not know. InvalidArgument naming the key.
Status ValidateForEnv(const RunOptions& options, const EnvSpec& spec);

class Trainer {
 public:
  // The environments run in this process.
  static StatusOr<std::unique_ptr<Trainer>> Make(const RunOptions& options);
  // Over another source, whose batches have a segment of batch_rows[i] rows each. `spec` is the
  // environment's, after the wrappers.
  static StatusOr<std::unique_ptr<Trainer>> Make(const RunOptions& options, const EnvSpec& spec,
                                                 const std::vector<int>& batch_rows,
                                                 std::unique_ptr<RolloutSource> source);

  // One rollout and one update. DataLoss when a value was not finite and run.on_nonfinite is `stop`: of an
  // environment before anything was trained on it, of a loss with the minibatches before it applied.
  // Cancelled, with nothing done, when the source was told to stop. The row's `seconds` counts training only.
  StatusOr<MetricsRow> Iterate();

  // The run's steps are done, or the target that ends it early is reached.
  bool Done() const;
  // Evaluation by the run's seed; the same episodes every time, none of them a training episode.
  StatusOr<EvalResult> EvaluateNow(bool (*stop)() = nullptr);

  // Takes over what may change while a run goes on; between two updates. Errors as Learner::Apply's.
  Status Apply(const RunOptions& options);

  Learner& learner() { return *learner_; }
  RolloutSource& source() { return *source_; }
  RunState& state() { return state_; }
  const RunOptions& options() const { return options_; }
  int threads() const { return threads_->threads(); }
  // Episodes of the window that run.stop_at_return judges; 100 where it is not set.
  size_t window() const;
  // Mean return of that window; NaN before the first episode has ended.
  double RecentReturn() const;

 private:
  explicit Trainer(const RunOptions& options);
  void TakeEpisodes(std::span<const SegmentView> segments, MetricsRow& row);
  void NoteTarget();
  uint64_t StepsOf(std::span<const SegmentView> segments) const;

  RunOptions options_;
  std::unique_ptr<ThreadPool> threads_;
  std::unique_ptr<RolloutSource> source_;
  std::unique_ptr<Learner> learner_;
  RunState state_;
};

}  // namespace millrace
