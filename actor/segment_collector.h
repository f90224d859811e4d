// SegmentCollector: fills one segment of one row group - acts and steps T times, with the policy asked for
// anew before each step. Station: policy_runner and env_pool, over one segment. The one way in which segments
// are made, in one process and in the service's actors. One a thread; it holds that thread's scratch.
#pragma once

#include "absl/functional/function_ref.h"
#include "actor/policy_runner.h"
#include "actor/row_group.h"

namespace millrace {

class SegmentCollector {
 public:
  // For groups of at most max_rows rows of this spec. While the run is no further than `uniform_steps` agent
  // steps of each row, they are acted uniformly at random. How far it is, the policy's version tells: each
  // update behind it took a segment of every row. So the actors of async mode, which have rows of their own,
  // count together, and one that comes later does not begin anew.
  SegmentCollector(const ActorCritic& net, const EnvSpec& spec, int max_rows, uint64_t uniform_steps = 0)
      : runner_(net, spec, max_rows), uniform_steps_(uniform_steps) {}

  // What keys the actions' randomness besides the row.
  struct Keys {
    uint64_t seed = 0, first_step = 0;  // agent steps that these rows have done
    bool deterministic = false;
  };

  struct Result {
    bool whole = true;             // false: given up half-way; the group has to begin anew
    double inference_seconds = 0;  // that went into the network; an estimate from every 8th step
  };
  // Fills `next`, whose first observations are the last of `previous` (which may be the same memory).
  // `policy` is called before each step; what it gives is used for that step, and must stand that long. Where
  // it has no network, the segment is given up.
  Result Collect(RowGroup& group, const SegmentView& next, const SegmentView& previous, const Keys& keys,
                 absl::FunctionRef<PolicyView()> policy);

 private:
  PolicyRunner runner_;
  uint64_t uniform_steps_;
};

}  // namespace millrace
