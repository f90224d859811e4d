// ReportPolicyLag: how old the policies were that acted in a batch. Station: train_step. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>

#include "common/segment.h"
#include "learner/learner.h"

namespace millrace {

// Fills policy_lag_mean and policy_lag_max, in updates, over all steps of the rows: `version` less the
// version that acted, 0 where that is newer (it acted before the learner went back to a checkpoint).
inline void ReportPolicyLag(std::span<const SegmentView> segments, uint64_t version, LearnerReport& report) {
  uint64_t most = 0;
  double sum = 0, samples = 0;
  for (const SegmentView& segment : segments) {
    uint64_t of_rows = 0;
    for (int t = 0; t < segment.layout().steps(); ++t) {
      const uint64_t acted = segment.policy_version()[t], lag = acted < version ? version - acted : 0;
      of_rows += lag;
      most = lag > most ? lag : most;
    }
    sum += static_cast<double>(of_rows) * segment.layout().rows();
    samples += segment.layout().samples();
  }
  report.policy_lag_mean = samples > 0 ? sum / samples : 0;
  report.policy_lag_max = static_cast<double>(most);
}

}  // namespace millrace
