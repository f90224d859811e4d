#include "learner/statistics.h"

#include <algorithm>
#include <cmath>

#include "kernels/core/launch.h"
#include "kernels/ops/running_stats.h"

namespace millrace {
namespace {
constexpr int kBlock = 256;  // rows whose moments are taken together
constexpr size_t kHead = 3;  // mean, variance, count in front of RewardScaler's rows

RunningStats View(std::vector<double>& state, int dims) {
  return {dims, state.data(), state.data() + dims, state.data() + 2 * dims};
}
}  // namespace

ObsStatistics::ObsStatistics(bool enabled, int width, size_t groups, int threads) : width_(width) {
  if (!enabled) return;
  const auto w = static_cast<size_t>(width), n = static_cast<size_t>(threads);
  state_.resize(2 * w + 1);
  InitRunningStats(View(state_, width));
  partial_.assign(groups, state_);
  raw_.assign(n, std::vector<float>(kBlock * w));
  moments_.assign(n, std::vector<double>(2 * w));
}

void ObsStatistics::ObserveSegment(const SegmentView& segment, const ObsEncoder& encoder, size_t group,
                                   size_t thread) {
  const RunningStats partial = View(partial_[group], width_);
  InitRunningStats(partial, 0.0);
  float* raw = raw_[thread].data();
  double* mean = moments_[thread].data();
  const int total = segment.layout().samples();
  for (int first = 0; first < total; first += kBlock) {
    const int rows = std::min(kBlock, total - first);
    for (int i = 0; i < rows; ++i) {
      encoder.RawRow(segment, 1, first + i, raw + static_cast<size_t>(i) * static_cast<size_t>(width_));
    }
    RunSerial<BatchMoments>(
        {.rows = rows, .dims = width_, .x = raw, .ld = width_, .mean = mean, .variance = mean + width_});
    MergeInto(partial, mean, mean + width_, rows);
  }
}

void ObsStatistics::Observe(std::span<const SegmentView> segments, const ObsEncoder& encoder,
                            ThreadPool& threads) {
  threads.ParallelFor(static_cast<int>(segments.size()), [&](int group, int worker) {
    ObserveSegment(segments[static_cast<size_t>(group)], encoder, static_cast<size_t>(group),
                   static_cast<size_t>(worker));
  });
  for (auto& partial : partial_) {
    const RunningStats p = View(partial, width_);
    MergeInto(View(state_, width_), p.mean, p.variance, *p.count);
  }
}

RewardScaler::RewardScaler(const EnvSection& env, double gamma, const std::vector<int>& group_rows)
    : scale_(env.scale_reward), clip_(env.clip_reward), gamma_(gamma) {
  size_t rows = 0;
  for (int n : group_rows) {
    first_row_.push_back(rows);
    rows += static_cast<size_t>(n);
    scratch_.emplace_back(kHead + static_cast<size_t>(n));
    ended_.emplace_back(static_cast<size_t>(n));
  }
  state_.assign(kHead + rows, 0.0);
  InitRunningStats(View(state_, 1));
}

void RewardScaler::Observe(std::span<const SegmentView> segments, ThreadPool& threads) {
  if (!scale_) return;
  threads.ParallelFor(static_cast<int>(segments.size()), [&](int g, int) {
    const auto group = static_cast<size_t>(g);
    const SegmentView& segment = segments[group];
    const RunningStats partial = View(scratch_[group], 1);
    InitRunningStats(partial, 0.0);
    double* reward = scratch_[group].data() + kHead;
    double* discounted = state_.data() + kHead + first_row_[group];
    const int rows = segment.layout().rows();
    for (int t = 0; t < segment.layout().steps(); ++t) {
      const size_t at = static_cast<size_t>(t) * static_cast<size_t>(rows);
      for (int r = 0; r < rows; ++r) {
        const size_t i = at + static_cast<size_t>(r);
        reward[r] = segment.reward()[i];
        ended_[group][static_cast<size_t>(r)] = segment.terminated()[i] | segment.truncated()[i];
      }
      AccumulateReturns(rows, reward, gamma_, discounted);
      const ValueMoments moments = MomentsOfReturns(rows, discounted);
      MergeInto(partial, &moments.mean, &moments.variance, rows);
      ClearEndedReturns(rows, ended_[group].data(), discounted);
    }
  });
  for (auto& scratch : scratch_) {
    const RunningStats p = View(scratch, 1);
    MergeInto(View(state_, 1), p.mean, p.variance, *p.count);
  }
}

const float* RewardScaler::Scaled(const SegmentView& segment, float* scratch) const {
  if (!scale_ && clip_ <= 0) return segment.reward();
  const double clip = clip_ > 0 ? clip_ : INFINITY;
  const int n = segment.layout().samples();
  for (int i = 0; i < n; ++i) {
    const double reward = segment.reward()[i];
    scratch[i] =
        static_cast<float>(scale_ ? ScaleReward(reward, state_[1], clip) : std::clamp(reward, -clip, clip));
  }
  return scratch;
}

}  // namespace millrace
