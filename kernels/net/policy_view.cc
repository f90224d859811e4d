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

ActorCriticSpec NetSpecFor(const EnvSpec& env, const RunOptions& options) {
  ActorCriticSpec spec = NetSpecFor(env, options.policy);
  if (!IsSac(options)) return spec;
  spec.squashed = spec.gaussian;
  spec.gaussian = spec.shared = spec.value = false;
  return spec;
}

}  // namespace millrace
