#include "actor/segment_collector.h"

#include <algorithm>
#include <chrono>

namespace millrace {
namespace {
constexpr int kTimedEvery = 8;  // steps between two whose inference is timed
using Clock = std::chrono::steady_clock;
}  // namespace

SegmentCollector::Result SegmentCollector::Collect(RowGroup& group, const SegmentView& next,
                                                   const SegmentView& previous, const Keys& keys,
                                                   absl::FunctionRef<PolicyView()> policy) {
  const int steps = next.layout().steps();
  Result result;
  group.BeginSegment(next, previous);
  for (int t = 0; t < steps; ++t) {
    const PolicyView view = policy();
    if (view.net == nullptr) {
      result.whole = false;
      return result;
    }
    const bool timed = t % kTimedEvery == 0;
    const Clock::time_point begin = timed ? Clock::now() : Clock::time_point();
    const uint64_t step = keys.first_step + static_cast<uint64_t>(t);
    const uint64_t of_run = view.version * static_cast<uint64_t>(steps) + static_cast<uint64_t>(t);
    runner_.Act(view, next, t, {keys.seed, Purpose::kAction, group.first_row(), step},
                keys.deterministic        ? PolicyRunner::How::kMode
                : of_run < uniform_steps_ ? PolicyRunner::How::kUniform
                                          : PolicyRunner::How::kSample);
    if (timed) {
      result.inference_seconds +=
          std::chrono::duration<double>(Clock::now() - begin).count() * std::min(kTimedEvery, steps - t);
    }
    group.Step(next, t);
  }
  return result;
}

}  // namespace millrace
