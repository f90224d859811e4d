// SacLearner: soft actor-critic over a replay. Station: train_step. It owns the networks (sac_step.h), the
// replay, the limiter and the statistics. Called from one thread; it spreads its work over the ThreadPool.
// An Update adds its segments to the replay and takes as many gradient steps as the limiter then allows,
// maybe none, and a thousand or twice its own share at most: what is left stays due, on the limiter's
// account. A step allocates nothing.
//
// Prefetch: while the critics of a step work, the rows of the next step's batch are gathered by the same
// threads, into the second of two buffers. Its draws happen before the step's priorities are written, so a
// batch is drawn by the priorities that the step before last has left. The last step of an Update gathers
// nothing and the first one of the next gathers its own batch: so no batch is older than what was added, or
// encoded by other statistics than its neighbours.
//
// Observations are normalised by statistics of fresh frames only, each merged once, when it comes in and
// before it is trained on; batches are encoded by the newest of them.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/options.h"
#include "common/segment.h"
#include "common/status.h"
#include "kernels/core/thread_pool.h"
#include "kernels/net/obs_encoder.h"
#include "learner/learner.h"
#include "learner/replay/batch_memory.h"
#include "learner/replay/rate_limiter.h"
#include "learner/replay/replay.h"
#include "learner/sac_step.h"
#include "learner/statistics.h"

namespace millrace {

class SacLearner : public Learner {
 public:
  // group_rows: the rows of each row group, of the whole run in sync mode, of one actor in async mode.
  // InvalidArgument for an environment or settings that SAC does not
  // cover; ResourceExhausted with the figures when networks or replay do not fit the memory.
  static StatusOr<std::unique_ptr<SacLearner>> Make(const RunOptions& options, const EnvSpec& spec,
                                                    const std::vector<int>& group_rows, ThreadPool& threads);
  ~SacLearner() override;

  PolicyView policy() const override;
  // DataLoss names the tensor and the gradient step where one is not finite, or the bound that Q or alpha is
  // beyond, when run.on_nonfinite is `stop`. A step has two halves, critics and policy: the bad half is not
  // taken. With `skip` bad halves are dropped and counted, Q's bound is only counted, and alpha is held at
  // its bound.
  StatusOr<LearnerReport> Update(std::span<const SegmentView> segments, double progress,
                                 std::span<const uint32_t> groups = {}) override;
  void SkipUpdate(std::span<const SegmentView> segments, std::span<const uint32_t> groups = {}) override;
  // What may change: the three learning rates.
  Status Apply(const RunOptions& changed) override;
  uint64_t updates() const override { return updates_; }
  // Gradient steps that the critics took.
  uint64_t optimizer_steps() const override;
  // As many as the replay holds.
  uint64_t most_rows() const override { return replay_->most_rows(); }
  // With the replay's content where checkpoint.replay asks for it.
  std::vector<StateTensor> State() override;
  // The copy is of the replay's content; its memory is there from the start.
  std::vector<StateTensor> Snapshot() override;
  Status ResizeState(std::string_view name, uint64_t first) override;
  Status Loaded(uint64_t updates, uint64_t optimizer_steps) override;

  Replay& replay() { return *replay_; }
  const RateLimiter& limiter() const { return limiter_; }
  const SacStep& step() const { return *step_; }
  double gather_seconds() const;  // of all threads, since the start
  // Since the run began: steps whose Q or alpha was beyond its bound.
  int64_t exploded() const { return counters_[kExploded]; }
  int64_t alpha_limited() const { return counters_[kAlphaLimited]; }

 private:
  enum Counter : size_t {
    kTried,  // gradient steps begun: the number of the next one, which keys its draws and its noise
    kCriticSteps,
    kPolicySteps,
    kExploded,
    kAlphaLimited,
    kInserted,  // from here on the limiter's
    kSampled,
    kBalance,
    kUp,
    kDown,
    kCounters
  };
  class Gather;
  struct Sums;

  SacLearner(const RunOptions& options, const EnvSpec& spec, const std::vector<int>& group_rows,
             ThreadPool& threads);
  Status AddSegments(std::span<const SegmentView> segments, std::span<const uint32_t> groups);
  int NextBatch() const;
  Status TakeStep(int rows, int next, Sums& sums);
  Status Judge(const SacStepResult& result, Sums& sums);
  Status Watch(const SacStepResult& result);
  std::vector<StateTensor> StateButReplay();
  Status CheckLoaded() const;
  void Fill(const Sums& sums, double begin, double gradient_seconds, LearnerReport& report);
  std::string Name() const;

  RunOptions options_;
  const EnvSpec spec_;
  ThreadPool& threads_;
  ObsEncoder encoder_;
  ObsStatistics obs_statistics_;
  std::unique_ptr<SacStep> step_;
  std::unique_ptr<Replay> replay_;
  std::unique_ptr<ReplayShadow> shadow_;  // of checkpoint.replay
  RateLimiter limiter_;
  uint64_t most_steps_ = 0;  // of one Update
  std::array<std::unique_ptr<ReplayBatchMemory>, 2> batches_;
  std::unique_ptr<Gather> gather_;
  std::vector<float> td_abs_;
  int at_ = 0;           // of batches_, the present one
  int gathered_ = 0;     // rows that are already in it; 0: none
  float beta_ = 0;       // of the importance weights
  double largest_ = 0;   // |reward| and the entropy's bonus of a step, the largest so far
  double last_end_ = 0;  // seconds, when the last Update ended
  double gathered_before_ = 0;
  bool loads_replay_ = false;  // between ResizeState and Loaded
  std::array<int64_t, kCounters> counters_{};
  uint64_t updates_ = 0;
};

}  // namespace millrace
