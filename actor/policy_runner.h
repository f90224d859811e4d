// PolicyRunner: acts for a block of rows - encodes observations, runs the network, samples actions - and
// writes actions, log-probs and values straight into the segment. Station: policy_runner. One a thread; it
// holds that thread's scratch.
#pragma once

#include <vector>

#include "common/segment.h"
#include "kernels/net/policy_view.h"
#include "kernels/ops/philox.h"

namespace millrace {

class PolicyRunner {
 public:
  PolicyRunner(const ActorCritic& net, const EnvSpec& spec, int max_rows);

  // Fills action, log_prob and value of step t for all rows of the segment. Random numbers are keyed by
  // (seed, purpose, first_row + row, step); `deterministic` takes the mode instead.
  void Act(const PolicyView& policy, const SegmentView& segment, int t, uint64_t seed, Purpose purpose,
           uint32_t first_row, uint64_t step, bool deterministic);

 private:
  ActorCritic::Workspace workspace_;
  ActionSpec action_;
  std::vector<float> encoded_;  // [max_rows, width]
};

}  // namespace millrace
