#include "actor/policy_runner.h"

#include <algorithm>
#include <cmath>

#include "kernels/core/launch.h"
#include "kernels/ops/categorical.h"
#include "kernels/ops/gaussian.h"
#include "kernels/ops/tanh_gaussian.h"

namespace millrace {

PolicyRunner::PolicyRunner(const ActorCritic& net, const EnvSpec& spec, int max_rows)
    : workspace_(net, max_rows),
      action_(spec.action),
      uniform_(spec.action),
      encoded_(static_cast<size_t>(max_rows) * static_cast<size_t>(spec.observation_elements())) {
  for (size_t d = 0; net.spec().squashed && d < action_.low.size(); ++d) {
    // Halved first: the width of wide bounds would overflow.
    scale_.push_back(0.5f * action_.high[d] - 0.5f * action_.low[d]);
    shift_.push_back(0.5f * action_.high[d] + 0.5f * action_.low[d]);
    log_scale_ += std::log(scale_.back());
  }
}

void PolicyRunner::Act(const PolicyView& policy, const SegmentView& segment, int t, const Keys& keys,
                       How how) {
  const int rows = segment.layout().rows();
  const size_t offset = static_cast<size_t>(t) * static_cast<size_t>(rows);
  float* value = segment.value() + offset;
  segment.policy_version()[t] = policy.version;
  if (how == How::kUniform) {
    uniform_.Act(segment, t, keys.seed, keys.purpose, keys.first_row, keys.step);
    std::fill_n(value, rows, 0.0f);
    return;
  }
  const float* x = policy.encoder->Encode(segment, t, encoded_.data());
  policy.net->Forward(policy.parameters, policy.packed, x, policy.encoder->width(), rows, workspace_);
  const bool mode = how == How::kMode;
  if (!action_.box()) {
    ActDiscrete(segment, offset, keys, mode);
  } else if (policy.net->spec().squashed) {
    ActSquashed(segment, offset, keys, mode);
  } else {
    ActBox(policy, segment, offset, keys, mode);
  }
  if (workspace_.value == nullptr) {
    std::fill_n(value, rows, 0.0f);
    return;
  }
  for (int r = 0; r < rows; ++r)
    value[r] = workspace_.value[static_cast<size_t>(r) * static_cast<size_t>(workspace_.value_ld)];
}

void PolicyRunner::ActBox(const PolicyView& policy, const SegmentView& segment, size_t offset,
                          const Keys& keys, bool mode) {
  RunSerial<SampleGaussian>(
      {.rows = segment.layout().rows(),
       .mean = workspace_.logits,
       .ld = workspace_.logits_ld,
       .log_std = policy.net->log_std(policy.parameters),
       .dims = action_.width(),
       .seed = keys.seed,
       .purpose = keys.purpose,
       .first_row = keys.first_row,
       .step = keys.step,
       .deterministic = mode,
       .action = static_cast<float*>(segment.action()) + offset * static_cast<size_t>(action_.width()),
       .log_prob = segment.log_prob() + offset});
}

void PolicyRunner::ActSquashed(const SegmentView& segment, size_t offset, const Keys& keys, bool mode) {
  const int rows = segment.layout().rows();
  const auto width = static_cast<size_t>(action_.width());
  float* action = static_cast<float*>(segment.action()) + offset * width;
  float* log_prob = segment.log_prob() + offset;
  RunSerial<SampleSquashed>({.rows = rows,
                             .out = workspace_.logits,
                             .ld = workspace_.logits_ld,
                             .dims = action_.width(),
                             .seed = keys.seed,
                             .purpose = keys.purpose,
                             .first_row = keys.first_row,
                             .step = keys.step,
                             .deterministic = mode,
                             .action = action,
                             .action_ld = action_.width(),
                             .log_prob = log_prob});
  for (int r = 0; r < rows; ++r, action += width) {
    for (size_t d = 0; d < width; ++d) {
      action[d] = std::clamp(action[d] * scale_[d] + shift_[d], action_.low[d], action_.high[d]);
    }
    log_prob[r] -= log_scale_;
  }
}

void PolicyRunner::ActDiscrete(const SegmentView& segment, size_t offset, const Keys& keys, bool mode) {
  const uint8_t* mask = segment.mask();
  if (mask != nullptr) mask += offset * static_cast<size_t>(action_.outputs());
  RunSerial<SampleCategorical>(
      {.rows = segment.layout().rows(),
       .logits = workspace_.logits,
       .ld = workspace_.logits_ld,
       .mask = mask,
       .heads = action_.width(),
       .nvec = action_.nvec.data(),
       .seed = keys.seed,
       .purpose = keys.purpose,
       .first_row = keys.first_row,
       .step = keys.step,
       .deterministic = mode,
       .action = static_cast<int32_t*>(segment.action()) + offset * static_cast<size_t>(action_.width()),
       .log_prob = segment.log_prob() + offset,
       .entropy = nullptr});
}

}  // namespace millrace
