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
// learner.correction says what is made of that: `vtrace` takes V-trace's targets and advantages under the
// weights that the update begins with, `ratio` leaves generalised advantage estimation as it is. Either way
// the loss's ratio is against the log-prob that was acted with.
#pragma once

#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "common/options.h"
#include "common/segment.h"
#include "common/status.h"
#include "kernels/core/arena.h"
#include "kernels/core/thread_pool.h"
#include "kernels/net/policy_view.h"
#include "kernels/ops/adam.h"
#include "kernels/ops/moments.h"
#include "kernels/ops/ppo_loss.h"
#include "learner/batch_assembler.h"
#include "learner/statistics.h"

namespace millrace {

// Means over the minibatches of one update.
struct PpoReport {
  double policy_loss = 0, value_loss = 0, entropy = 0, approx_kl_k1 = 0, approx_kl = 0, clip_fraction = 0;
  double explained_variance = 0, grad_norm = 0, learning_rate = 0, clip_range = 0;
  // Share of the samples whose importance weight is above rho_bar; NaN without V-trace.
  double rho_clip_fraction = std::numeric_limits<double>::quiet_NaN();
  // Updates between acting and this one, over the samples; NaN in sync mode.
  double policy_lag_mean = std::numeric_limits<double>::quiet_NaN();
  double policy_lag_max = std::numeric_limits<double>::quiet_NaN();
  int minibatches = 0;  // that were run; fewer than planned when target_kl ended the update
  int skipped = 0;      // minibatches dropped because a loss or gradient was not finite
};

class PpoLearner {
 public:
  ~PpoLearner();
  // group_rows: the rows of each row group, of the whole run in sync mode, of one actor in async mode; a
  // batch has at most so many segments. ResourceExhausted when memory does not suffice, InvalidArgument for a
  // network of 2^31 parameters or more.
  static StatusOr<std::unique_ptr<PpoLearner>> Make(const RunOptions& options, const EnvSpec& spec,
                                                    const std::vector<int>& group_rows, ThreadPool& threads);

  // The current policy; valid until the next Update.
  PolicyView policy() const;

  // One update on a batch: a segment of every row group, in row order; or in async mode segments of any
  // groups, whose global numbers `groups` has (statistics.h says which rows are theirs), the older of one
  // group first. Empty: segment i is of group i. progress in [0, 1] drives the schedules. DataLoss naming the
  // op when a loss or a gradient is not finite and run.on_nonfinite is `stop`; the weights are then those of
  // before the bad minibatch.
  StatusOr<PpoReport> Update(std::span<const SegmentView> segments, double progress,
                             std::span<const uint32_t> groups = {});

  // Counts an update whose batch is not to be trained on; running statistics of rewards go on.
  void SkipUpdate(std::span<const SegmentView> segments, std::span<const uint32_t> groups = {});

  // Takes over, between two updates, what may change while a run goes on: ppo.learning_rate, entropy_coef,
  // clip_range, target_kl and max_grad_norm of these (valid) options. InvalidArgument, and nothing changes,
  // when they differ in another setting of ppo; sections that the learner does not read are not looked at.
  Status Apply(const RunOptions& changed);

  uint64_t updates() const { return updates_; }
  const ActorCritic& net() const { return net_; }

  // Everything that Update changes, for checkpoints: names and memory. Written to by a loader, who then calls
  // Loaded.
  struct StateTensor {
    std::string name;
    std::vector<int> shape;
    float* f32 = nullptr;  // one of the two is set
    double* f64 = nullptr;
  };
  std::vector<StateTensor> State();
  // Before State, for each tensor of a checkpoint: the state that grows with the actors of async mode becomes
  // as large as it was. Nothing for other tensors, and nothing in sync mode.
  void ResizeState(std::string_view name, size_t elements);
  void Loaded(uint64_t updates, uint64_t optimizer_steps);
  uint64_t optimizer_steps() const { return optimizer_steps_; }

 private:
  PpoLearner(const RunOptions& options, const EnvSpec& spec, const std::vector<int>& group_rows,
             ThreadPool& threads);
  Status Allocate();

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
  void NoteAge(size_t index);
  void ReportAge(PpoReport& report) const;
  void ListSamples();
  void ExplainedVariance(PpoReport& report) const;
  void BeginEpoch(uint32_t epoch);
  int Minibatches() const;
  Status RunMinibatch(int minibatch, PpoReport& report, bool& stop);
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
  float *value_ = nullptr, *log_rho_ = nullptr;  // [capacity]

  // How far the policies that acted a segment are behind.
  struct Age {
    uint64_t lag_sum = 0, lag_max = 0;  // over its steps
    int clipped = 0;                    // samples whose importance weight is above rho_bar
  };

  size_t groups_;   // segments of a batch, at most
  int stride_ = 0;  // sample ids of segment g are g * stride_ + t * N + n
  std::span<const SegmentView> segments_;
  std::vector<int32_t> samples_, order_;     // valid sample ids; as the epoch visits them
  std::vector<ShiftScale> advantage_scale_;  // [minibatches]
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Age> ages_;  // [groups]
  std::vector<PpoStats> shard_stats_;
  std::vector<double> chunk_squares_;
  PpoCoefs coefs_{};
  AdamStep adam_step_{};
  int32_t stop_ = 0;  // set where target_kl ends an update
  uint64_t updates_ = 0, optimizer_steps_ = 0;
};

}  // namespace millrace
