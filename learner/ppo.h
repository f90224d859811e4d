// PpoLearner: proximal policy optimisation (Schulman et al. 2017) over a batch of segments. Station:
// train_step. It owns the weights, gradients, optimizer state and statistics: one flat buffer each in one
// arena, allocated once; an update allocates nothing. Called from one thread; it spreads its work over the
// ThreadPool.
//
// An update is cut into shards whose number depends on the minibatch alone. A shard takes blocks of rows
// through forward, loss and backward while they are in its core's caches and adds gradients into a buffer of
// its own; buffers are added in shard order. So the bits do not depend on the number of threads.
//
// In async mode the segments were acted by older policies than the one that is updated, and
// learner.correction says what is made of that: `vtrace` takes V-trace's targets and weighted advantages
// under the weights that the update begins with, and the loss's ratio against those weights, so that its clip
// bounds this update alone (the decoupled objective of Hilton et al., "Batch size-invariance for policy
// optimization", 2022); `ratio` leaves generalised advantage estimation and the ratio against the log-prob
// that was acted with.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "common/options.h"
#include "common/resource_usage.h"
#include "common/segment.h"
#include "common/status.h"
#include "kernels/core/arena.h"
#include "kernels/core/thread_pool.h"
#include "kernels/net/policy_view.h"
#include "kernels/ops/adam.h"
#include "kernels/ops/moments.h"
#include "kernels/ops/ppo_loss.h"
#include "learner/batch_assembler.h"
#include "learner/learner.h"
#include "learner/statistics.h"

namespace millrace {

class PpoLearner final : public Learner {
 public:
  ~PpoLearner() override;
  // As MakeLearner. ResourceExhausted with the figures, before anything large is allocated, when `available`
  // bytes do not suffice.
  static StatusOr<std::unique_ptr<PpoLearner>> Make(const RunOptions& options, const EnvSpec& spec,
                                                    const std::vector<int>& group_rows, ThreadPool& threads,
                                                    uint64_t available = AvailableMemory());

  PolicyView policy() const override;
  // The report has means over the minibatches.
  StatusOr<LearnerReport> Update(std::span<const SegmentView> segments, double progress,
                                 std::span<const uint32_t> groups = {}) override;
  void SkipUpdate(std::span<const SegmentView> segments, std::span<const uint32_t> groups = {}) override;
  // Takes over ppo.learning_rate, entropy_coef, clip_range, target_kl and max_grad_norm.
  Status Apply(const RunOptions& changed) override;

  uint64_t updates() const override { return updates_; }
  uint64_t optimizer_steps() const override { return optimizer_steps_; }
  const ActorCritic& net() const { return net_; }

  std::vector<StateTensor> State() override;
  // The rewards' statistics grow with the actors of async mode.
  Status ResizeState(std::string_view name, uint64_t first) override;
  Status Loaded(uint64_t updates, uint64_t optimizer_steps) override;

 private:
  PpoLearner(const RunOptions& options, const EnvSpec& spec, const std::vector<int>& group_rows,
             ThreadPool& threads);
  Status Allocate(uint64_t available);

  struct Worker;
  bool vtrace() const {
    return options_.mode == RunMode::kAsync && options_.learner.correction == Correction::kVtrace;
  }
  void PrepareSegment(size_t index, Worker& worker);
  void ScoreSteps(const SegmentView& segment, size_t at, Worker& worker);
  void BootstrapValues(const SegmentView& segment, const float* value, float* next_value, Worker& worker);
  void IsolateInvalidSteps(const SegmentView& segment, const float* reward, const float* value,
                           float* next_value) const;
  void RunGae(const SegmentView& segment, size_t at, const float* reward) const;
  void RunVtrace(const SegmentView& segment, size_t at, const float* reward) const;
  void NoteClipped(size_t index);
  void ReportAge(LearnerReport& report) const;
  void ListSamples();
  void ExplainedVariance(LearnerReport& report) const;
  void BeginEpoch(uint32_t epoch);
  int Minibatches() const;
  Status RunMinibatch(int minibatch, LearnerReport& report, bool& stop);
  void TrainShard(int shard, int first, int count, Worker& worker);
  void LossAndGradients(int rows, Worker& worker, PpoStats& stats, float* gradients);
  double ReduceGradients(int shards, double kl_sum, double kl_limit);
  void Step();

  RunOptions options_;
  const EnvSpec spec_;
  ThreadPool& threads_;
  ActorCritic net_;
  ObsEncoder encoder_;
  BatchAssembler assembler_;
  ObsStatistics obs_statistics_;
  RewardScaler reward_scaler_;

  Arena arena_;
  float *parameters_ = nullptr, *gradients_ = nullptr, *adam_m_ = nullptr,
        *adam_v_ = nullptr;                          // [parameter_floats]
  float* packed_ = nullptr;                          // [packed_floats]
  float* shard_gradients_ = nullptr;                 // [shards of a minibatch, parameter_floats]
  float *advantage_ = nullptr, *ret_ = nullptr;      // [capacity], a stride a segment
  float *next_value_ = nullptr, *reward_ = nullptr;  // [capacity]
  float* error_ = nullptr;  // [capacity] return - value; of GAE that is the advantage itself
  // V-trace only, else null: under the weights that the update begins with.
  float *value_ = nullptr, *log_prob_ = nullptr, *log_rho_ = nullptr;  // [capacity]

  size_t groups_;   // segments of a batch, at most
  int stride_ = 0;  // sample ids of segment g are g * stride_ + t * N + n
  std::span<const SegmentView> segments_;
  std::vector<int32_t> samples_, order_;     // valid sample ids; as the epoch visits them
  std::vector<ShiftScale> advantage_scale_;  // [minibatches]
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<int> clipped_;  // [groups] samples whose importance weight is above rho_bar
  std::vector<PpoStats> shard_stats_;
  std::vector<double> chunk_squares_;
  PpoCoefs coefs_{};
  AdamStep adam_step_{};
  int32_t stop_ = 0;  // set where target_kl ends an update
  uint64_t updates_ = 0, optimizer_steps_ = 0;
};

}  // namespace millrace
