// Running statistics that the learner keeps of what actors send raw: moments of observations, over fresh
// frames only, and the deviation of the discounted return that scales rewards. Merged in the order of the
// batch, which in sync mode is that of row groups, so threads and actors do not change a bit. Part of the
// checkpoint. Called from the learner's thread, which spreads work over the pool.
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
  // Holds memory only when `enabled`; a block of rows a thread. `segments` are worked on at a time.
  ObsStatistics(bool enabled, int width, size_t segments, int threads);

  // Merges the observations of steps 1 .. T: those of step 0 were the last rollout's T. Only when enabled.
  void Observe(std::span<const SegmentView> segments, const ObsEncoder& encoder, ThreadPool& threads);

  const double* mean() const { return state_.data(); }
  const double* variance() const { return state_.data() + width_; }
  std::span<double> State() { return state_; }  // mean [D], variance [D], count [1]

 private:
  void ObserveSegment(const SegmentView& segment, const ObsEncoder& encoder, size_t slot, size_t thread);

  int width_;
  std::vector<double> state_;
  std::vector<std::vector<double>> partial_;  // [segment at a time]: as state_
  std::vector<std::vector<float>> raw_;       // [thread]: a block of rows, [kBlock, D] f32
  std::vector<std::vector<double>> moments_;  // [thread]: mean and variance of a block
};

// A row's discounted return goes on from one segment of it to the next, so it is kept by global row. Row
// groups come in blocks: a run in sync mode has one, in async mode each actor has one. Block b has the groups
// from b * group_rows.size() on and as many rows as group_rows adds up to; the state grows by blocks as they
// appear.
class RewardScaler {
 public:
  RewardScaler(const EnvSection& env, double gamma, const std::vector<int>& group_rows);

  // Takes in a batch's rewards; nothing when scaling is off. groups: the global row group of each segment, in
  // the order in which it made them where one has several; empty: segment i is of group i.
  void Observe(std::span<const SegmentView> segments, std::span<const uint32_t> groups, ThreadPool& threads);
  // The rewards to train on, [T, N]: the segment's own where nothing is to do, else `scratch`, filled.
  const float* Scaled(const SegmentView& segment, float* scratch) const;

  // Mean, variance, count, then the discounted return of each row. Valid until the next Observe.
  std::span<double> State() { return state_; }
  // Makes State() as large as a checkpoint's, where that is of whole blocks; else leaves it as it is.
  void Resize(size_t elements);

 private:
  size_t FirstRow(uint32_t group) const;
  void LinkSegments(size_t segments, std::span<const uint32_t> groups);
  void ObserveSegment(const SegmentView& segment, size_t scratch, size_t first_row);

  bool scale_;
  double clip_, gamma_;
  std::vector<size_t> first_row_;  // of each group of a block, in it
  size_t block_rows_ = 0;
  std::vector<double> state_;
  std::vector<std::vector<double>>
      scratch_;  // [segment of a batch]: partial mean, variance, count, then rewards of a step
  std::vector<std::vector<uint8_t>> ended_;  // [segment of a batch]: [N]
  // Segments of one group are taken one after another: the first of them in the batch leads to the others.
  std::vector<int> next_;       // [segment of a batch] of the same group; -1: none
  std::vector<uint8_t> later_;  // [segment of a batch] it is not the first of its group
  std::vector<int> latest_;     // [global group] its last segment so far; -1 between calls
};

}  // namespace millrace
