// UniformActions: actions drawn uniformly over the action space, with which off-policy learning begins. Keyed
// as the policy's own are, so threads and actors change nothing. Station: policy_runner. Immutable; any
// thread.
#pragma once

#include "common/segment.h"
#include "common/spec.h"
#include "kernels/ops/philox.h"

namespace millrace {

class UniformActions {
 public:
  // A Box must have finite bounds to be drawn from.
  explicit UniformActions(const ActionSpec& action);

  // Fills action and log_prob of step t for all rows of the segment, masks respected; as PolicyRunner::Act.
  void Act(const SegmentView& segment, int t, uint64_t seed, Purpose purpose, uint32_t first_row,
           uint64_t step) const;

 private:
  ActionSpec action_;
  float log_density_ = 0;  // Box
};

}  // namespace millrace
