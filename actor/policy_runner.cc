#include "actor/policy_runner.h"

#include "kernels/core/launch.h"
#include "kernels/ops/categorical.h"
#include "kernels/ops/gaussian.h"

namespace millrace {

PolicyRunner::PolicyRunner(const ActorCritic& net, const EnvSpec& spec, int max_rows)
    : workspace_(net, max_rows),
      action_(spec.action),
      encoded_(static_cast<size_t>(max_rows) * static_cast<size_t>(spec.observation_elements())) {}

void PolicyRunner::Act(const PolicyView& policy, const SegmentView& segment, int t, uint64_t seed,
                       Purpose purpose, uint32_t first_row, uint64_t step, bool deterministic) {
  const int rows = segment.layout().rows();
  const size_t offset = static_cast<size_t>(t) * static_cast<size_t>(rows);
  const float* x = policy.encoder->Encode(segment, t, encoded_.data());
  policy.net->Forward(policy.parameters, policy.packed, x, policy.encoder->width(), rows, workspace_);
  const size_t action_offset = offset * static_cast<size_t>(action_.width());
  if (action_.box()) {
    RunSerial<SampleGaussian>({.rows = rows,
                               .mean = workspace_.logits,
                               .ld = workspace_.logits_ld,
                               .log_std = policy.net->log_std(policy.parameters),
                               .dims = action_.width(),
                               .seed = seed,
                               .purpose = purpose,
                               .first_row = first_row,
                               .step = step,
                               .deterministic = deterministic,
                               .action = static_cast<float*>(segment.action()) + action_offset,
                               .log_prob = segment.log_prob() + offset});
  } else {
    const uint8_t* mask = segment.mask();
    if (mask != nullptr) mask += offset * static_cast<size_t>(action_.outputs());
    RunSerial<SampleCategorical>({.rows = rows,
                                  .logits = workspace_.logits,
                                  .ld = workspace_.logits_ld,
                                  .mask = mask,
                                  .heads = action_.width(),
                                  .nvec = action_.nvec.data(),
                                  .seed = seed,
                                  .purpose = purpose,
                                  .first_row = first_row,
                                  .step = step,
                                  .deterministic = deterministic,
                                  .action = static_cast<int32_t*>(segment.action()) + action_offset,
                                  .log_prob = segment.log_prob() + offset,
                                  .entropy = nullptr});
  }
  float* value = segment.value() + offset;
  for (int r = 0; r < rows; ++r)
    value[r] = workspace_.value[static_cast<size_t>(r) * static_cast<size_t>(workspace_.value_ld)];
  segment.policy_version()[t] = policy.version;
}

}  // namespace millrace
