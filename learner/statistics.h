// Running statistics that the learner keeps of what actors send raw: moments of observations, over fresh
// frames only, and the deviation of the discounted return that scales rewards. Merged in row-group order, so
// threads and actors do not change a bit. Part of the checkpoint. Called from the learner's thread, which
// spreads work over the pool.
#pragma once

#include <span>
#include <vector>

#include "common/options.h"
#include "common/segment.h"
#include "kernels/core/thread_pool.h"
#include "kernels/net/obs_encoder.h"

namespace millrace {

class ObsStatistics {
 public:
  // Holds memory only when `enabled`; a block of rows a thread.
  ObsStatistics(bool enabled, int width, size_t groups, int threads);

  // Merges the observations of steps 1 .. T: those of step 0 were the last rollout's T.
  void Observe(std::span<const SegmentView> segments, const ObsEncoder& encoder, ThreadPool& threads);

  const double* mean() const { return state_.data(); }
  const double* variance() const { return state_.data() + width_; }
  std::span<double> State() { return state_; }  // mean [D], variance [D], count [1]

 private:
  void ObserveSegment(const SegmentView& segment, const ObsEncoder& encoder, size_t group, size_t thread);

  int width_;
  std::vector<double> state_;
  std::vector<std::vector<double>> partial_;  // [group]: as state_
  std::vector<std::vector<float>> raw_;       // [thread]: a block of rows, [kBlock, D] f32
  std::vector<std::vector<double>> moments_;  // [thread]: mean and variance of a block
};

class RewardScaler {
 public:
  RewardScaler(const EnvSection& env, double gamma, const std::vector<int>& group_rows);

  // Takes in a rollout's rewards; nothing when scaling is off.
  void Observe(std::span<const SegmentView> segments, ThreadPool& threads);
  // The rewards to train on, [T, N]: the segment's own where nothing is to do, else `scratch`, filled.
  const float* Scaled(const SegmentView& segment, float* scratch) const;

  std::span<double> State() {
    return state_;
  }  // mean, variance, count, then the discounted return of each row

 private:
  bool scale_;
  double clip_, gamma_;
  std::vector<size_t> first_row_;
  std::vector<double> state_;
  std::vector<std::vector<double>>
      scratch_;                              // [group]: partial mean, variance, count, then rewards of a step
  std::vector<std::vector<uint8_t>> ended_;  // [group]: [N]
};

}  // namespace millrace
