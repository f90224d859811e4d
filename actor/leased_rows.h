// LeasedRows: a row group of an actor process with the observations that it carries from one segment to the
// next, whose memory lies elsewhere each time and may be used again as soon as the learner has it. Station:
// env_pool, in the service's actors. Owner: actor_session; one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "actor/segment_collector.h"
#include "common/aligned_bytes.h"

namespace millrace {

class LeasedRows {
 public:
  // Rows first_row .. first_row + rows - 1 of the run; segments have `horizon` steps. Begin must come before
  // Collect.
  static StatusOr<std::unique_ptr<LeasedRows>> Make(const EnvSection& env, uint64_t seed, uint32_t first_row,
                                                    int rows, int horizon);

  // What a segment of this group looks like, its snapshot included.
  const SegmentLayout& layout() const { return layout_; }
  const RowGroup& group() const { return *group_; }
  uint64_t next_step() const { return next_step_; }

  // Goes on from a state that SaveRows wrote, or, where it is empty, with the run's first episodes; then only
  // once, for the episodes' numbers go on. InvalidArgument when the state is not of this environment's size.
  Status Begin(std::string_view state, uint64_t next_step);

  // Fills `segment`, of layout(), with its snapshot. The environment's fault goes to `fault`, which is empty
  // where there was none. As SegmentCollector::Collect; after a segment that was given up, Begin comes first.
  SegmentCollector::Result Collect(SegmentCollector& collector, const SegmentView& segment,
                                   absl::FunctionRef<PolicyView()> policy, std::string* fault);

 private:
  LeasedRows(std::unique_ptr<RowGroup> group, uint64_t seed, int horizon);

  std::unique_ptr<RowGroup> group_;
  SegmentLayout layout_, carry_layout_;  // of a segment; of one without steps, which has one observation
  AlignedBytes carry_memory_;
  SegmentView carry_;
  uint64_t seed_ = 0, next_step_ = 0;
};

}  // namespace millrace
