// RolloutBuffer: one slot a row group, each a whole Segment, in one 64-byte aligned allocation. Station:
// rollout_buffer. Owner: EnvPool. Slots are disjoint, so threads may fill different ones at once.
#pragma once

#include <cstdlib>
#include <memory>
#include <vector>

#include "common/segment.h"
#include "common/status.h"

namespace millrace {

class RolloutBuffer {
 public:
  // A slot for each of `group_rows`; ResourceExhausted with the bytes when memory does not suffice.
  static StatusOr<RolloutBuffer> Make(const EnvSpec& spec, int steps, const std::vector<int>& group_rows);

  const std::vector<SegmentView>& slots() const { return slots_; }
  size_t bytes() const { return bytes_; }

 private:
  RolloutBuffer() = default;
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::vector<std::unique_ptr<SegmentLayout>> layouts_;  // stable addresses: views point at them
  std::unique_ptr<std::byte, Free> memory_;
  std::vector<SegmentView> slots_;
  size_t bytes_ = 0;
};

}  // namespace millrace
