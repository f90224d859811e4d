// PolicyRunner: acts for a block of rows - encodes observations, runs the network, samples actions - and
// writes actions, log-probs and values straight into the segment. Station: policy_runner. One a thread; it
// holds that thread's scratch.
#pragma once

#include <vector>

#include "actor/uniform_actions.h"
#include "common/segment.h"
#include "kernels/net/policy_view.h"
#include "kernels/ops/philox.h"

namespace millrace {

class PolicyRunner {
 public:
  PolicyRunner(const ActorCritic& net, const EnvSpec& spec, int max_rows);

  // What keys the random numbers of row r: (seed, purpose, first_row + r, step).
  struct Keys {
    uint64_t seed = 0;
    Purpose purpose = Purpose::kAction;
    uint32_t first_row = 0;
    uint64_t step = 0;
  };
  enum class How : uint8_t { kSample, kMode, kUniform };
  // Fills action, log_prob and value of step t for all rows of the segment: drawn from the policy, its mode,
  // or uniformly over the action space. A squashed policy's actions are scaled from the unit box to the
  // bounds, and its log-probs are of the scaled ones. Values are 0 where the network has none.
  void Act(const PolicyView& policy, const SegmentView& segment, int t, const Keys& keys, How how);

 private:
  void ActBox(const PolicyView& policy, const SegmentView& segment, size_t offset, const Keys& keys,
              bool mode);
  void ActSquashed(const SegmentView& segment, size_t offset, const Keys& keys, bool mode);
  void ActDiscrete(const SegmentView& segment, size_t offset, const Keys& keys, bool mode);

  ActorCritic::Workspace workspace_;
  ActionSpec action_;
  UniformActions uniform_;
  std::vector<float> scale_, shift_;  // [A] Box: action = unit * scale + shift
  float log_scale_ = 0;               // the sum of their logarithms
  std::vector<float> encoded_;        // [max_rows, width]
};

}  // namespace millrace
