#include "kernels/net/policy_view.h"

namespace millrace {

ActorCriticSpec NetSpecFor(const EnvSpec& env, const PolicySection& policy) {
  ActorCriticSpec spec;
  spec.inputs = env.observation_elements();
  spec.hidden.assign(policy.hidden.begin(), policy.hidden.end());
  spec.activation = policy.activation;
  spec.shared = policy.shared;
  spec.outputs = env.action.outputs();
  spec.gaussian = env.action.box();
  return spec;
}

}  // namespace millrace
