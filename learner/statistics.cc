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

ObsStatistics::ObsStatistics(bool enabled, int width, size_t segments, int threads) : width_(width) {
  if (!enabled) return;
  const auto w = static_cast<size_t>(width), n = static_cast<size_t>(threads);
  state_.resize(2 * w + 1);
  InitRunningStats(View(state_, width));
  partial_.assign(segments, state_);
  raw_.assign(n, std::vector<float>(kBlock * w));
  moments_.assign(n, std::vector<double>(2 * w));
}

void ObsStatistics::ObserveSegment(const SegmentView& segment, const ObsEncoder& encoder, size_t slot,
                                   size_t thread) {
  const RunningStats partial = View(partial_[slot], width_);
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
  while (!segments.empty()) {
    const auto part = segments.first(std::min(segments.size(), partial_.size()));
    segments = segments.subspan(part.size());
    threads.ParallelFor(static_cast<int>(part.size()), [&](int i, int worker) {
      const auto at = static_cast<size_t>(i);
      ObserveSegment(part[at], encoder, at, static_cast<size_t>(worker));
    });
    for (size_t i = 0; i < part.size(); ++i) {
      const RunningStats p = View(partial_[i], width_);
      MergeInto(View(state_, width_), p.mean, p.variance, *p.count);
    }
  }
}

RewardScaler::RewardScaler(const EnvSection& env, double gamma, const std::vector<int>& group_rows)
    : scale_(env.scale_reward), clip_(env.clip_reward), gamma_(gamma) {
  size_t widest = 0;
  for (int n : group_rows) {
    first_row_.push_back(block_rows_);
    block_rows_ += static_cast<size_t>(n);
    widest = std::max(widest, static_cast<size_t>(n));
  }
  const size_t segments = group_rows.size();
  scratch_.assign(segments, std::vector<double>(kHead + widest));
  ended_.assign(segments, std::vector<uint8_t>(widest));
  next_.resize(segments);
  later_.resize(segments);
  latest_.assign(segments, -1);
  state_.assign(kHead + block_rows_, 0.0);
  InitRunningStats(View(state_, 1));
}

size_t RewardScaler::FirstRow(uint32_t group) const {
  return group / first_row_.size() * block_rows_ + first_row_[group % first_row_.size()];
}

void RewardScaler::Resize(size_t elements) {
  if (elements < kHead + block_rows_ || (elements - kHead) % block_rows_ != 0) return;
  state_.resize(elements, 0.0);
}

void RewardScaler::LinkSegments(size_t segments, std::span<const uint32_t> groups) {
  std::fill_n(next_.begin(), segments, -1);
  std::fill_n(later_.begin(), segments, uint8_t{0});
  if (groups.empty()) return;
  const uint32_t last = *std::max_element(groups.begin(), groups.end());
  if (last >= latest_.size()) latest_.resize(last + size_t{1}, -1);
  const size_t rows = (last / first_row_.size() + 1) * block_rows_;
  if (state_.size() < kHead + rows) state_.resize(kHead + rows, 0.0);
  for (size_t i = 0; i < segments; ++i) {
    int& latest = latest_[groups[i]];
    later_[i] = latest >= 0;
    if (latest >= 0) next_[static_cast<size_t>(latest)] = static_cast<int>(i);
    latest = static_cast<int>(i);
  }
  for (uint32_t group : groups) latest_[group] = -1;
}

void RewardScaler::Observe(std::span<const SegmentView> segments, std::span<const uint32_t> groups,
                           ThreadPool& threads) {
  if (!scale_) return;
  LinkSegments(segments.size(), groups);
  threads.ParallelFor(static_cast<int>(segments.size()), [&](int first, int) {
    const auto at = static_cast<size_t>(first);
    if (later_[at] != 0) return;
    const size_t row = FirstRow(groups.empty() ? static_cast<uint32_t>(first) : groups[at]);
    for (int i = first; i >= 0; i = next_[static_cast<size_t>(i)]) {
      ObserveSegment(segments[static_cast<size_t>(i)], static_cast<size_t>(i), row);
    }
  });
  for (size_t i = 0; i < segments.size(); ++i) {
    const RunningStats p = View(scratch_[i], 1);
    MergeInto(View(state_, 1), p.mean, p.variance, *p.count);
  }
}

void RewardScaler::ObserveSegment(const SegmentView& segment, size_t scratch, size_t first_row) {
  const RunningStats partial = View(scratch_[scratch], 1);
  InitRunningStats(partial, 0.0);
  double* reward = scratch_[scratch].data() + kHead;
  uint8_t* ended = ended_[scratch].data();
  double* discounted = state_.data() + kHead + first_row;
  const int rows = segment.layout().rows();
  for (int t = 0; t < segment.layout().steps(); ++t) {
    const size_t at = static_cast<size_t>(t) * static_cast<size_t>(rows);
    for (int r = 0; r < rows; ++r) {
      const size_t i = at + static_cast<size_t>(r);
      reward[r] = segment.reward()[i];
      ended[r] = segment.terminated()[i] | segment.truncated()[i];
    }
    AccumulateReturns(rows, reward, gamma_, discounted);
    const ValueMoments moments = MomentsOfReturns(rows, discounted);
    MergeInto(partial, &moments.mean, &moments.variance, rows);
    ClearEndedReturns(rows, ended, discounted);
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
