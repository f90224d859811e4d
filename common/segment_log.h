// SegmentLog: segments.jsonl, a line for each segment that an update was trained on. It shows where data came
// from, and with an environment like Ledger it proves that none was lost or taken twice. Owner: the run's
// loop. Threads: one. Station: behind the update. In the steady state nothing is allocated.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/file_system.h"
#include "common/segment.h"
#include "common/status.h"
#include "common/update_lines.h"

namespace millrace {

struct SegmentEntry {
  uint32_t group = 0;
  uint64_t first_step = 0;  // agent steps that the group's rows had done before it
  uint64_t policy_version_min = 0, policy_version_max = 0;
  double reward_sum = 0;  // raw, over all rows and steps
  uint32_t steps = 0, rows = 0;
  std::string_view actor = {};  // empty: none, the run is one process
};

// What the segment's own columns say.
SegmentEntry DescribeSegment(const SegmentView& segment, uint32_t group, uint64_t first_step,
                             std::string_view actor);

class SegmentLog {
 public:
  // As MetricsWriter's: lines of updates after `last_update` are cut off.
  static StatusOr<SegmentLog> Open(FileSystem& fs, const std::string& path, uint64_t last_update);

  // One line an entry, all in one write. Of an actor's name what is not printable ASCII becomes `?`, and what
  // is beyond 128 characters is left out: names come from outside, and the file must stay JSON.
  Status Append(uint64_t update, std::span<const SegmentEntry> entries);

 private:
  explicit SegmentLog(UpdateLines lines) : lines_(std::move(lines)) {}

  UpdateLines lines_;
  std::vector<char> buffer_;
};

}  // namespace millrace
