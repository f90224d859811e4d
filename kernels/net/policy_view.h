// PolicyView: what one needs to act by a policy, borrowed from its owner (learner or weight_subscriber).
// Valid until the owner changes the weights; sharing it between threads is safe until then.
#pragma once

#include <cstdint>

#include "kernels/net/actor_critic.h"
#include "kernels/net/obs_encoder.h"

namespace millrace {

struct PolicyView {
  const ActorCritic* net = nullptr;
  const ObsEncoder* encoder = nullptr;
  const float* parameters = nullptr;  // [net->parameter_floats()]
  const float* packed = nullptr;      // [net->packed_floats()], forward form at least
  uint64_t version = 0;               // updates behind these weights
};

// The network that a policy section asks for in an environment of this spec.
ActorCriticSpec NetSpecFor(const EnvSpec& env, const PolicySection& policy);
// The one that the run's algorithm acts by: sac's is squashed where actions are a Box, and has no value.
ActorCriticSpec NetSpecFor(const EnvSpec& env, const RunOptions& options);

}  // namespace millrace
