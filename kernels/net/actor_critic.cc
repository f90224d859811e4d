#include "kernels/net/actor_critic.h"

#include <algorithm>

#include "common/status.h"

namespace millrace {
namespace {

MlpSpec TowersOf(const ActorCriticSpec& spec) {
  MILL_CHECK(!(spec.squashed && spec.gaussian) && (spec.value || !spec.shared));
  MlpSpec mlp;
  mlp.inputs = spec.inputs;
  mlp.hidden = spec.hidden;
  mlp.activation = spec.activation;
  if (spec.shared) {
    mlp.towers = {{"shared", spec.policy_columns() + 1}};
  } else {
    mlp.towers = {{"policy", spec.policy_columns()}};
    if (spec.value) mlp.towers.push_back({"value", 1});
  }
  return mlp;
}

}  // namespace

ActorCritic::ActorCritic(const ActorCriticSpec& spec)
    : spec_(spec), mlp_(TowersOf(spec)), tensors_(mlp_.tensors()), parameters_(mlp_.parameter_floats()) {
  if (!spec.gaussian) return;
  constexpr size_t kAlignFloats = 16;
  log_std_ = parameters_;
  tensors_.push_back({"log_std", log_std_, 1, spec.outputs});
  parameters_ += (static_cast<size_t>(spec.outputs) + kAlignFloats - 1) / kAlignFloats * kAlignFloats;
}

const float* ActorCritic::log_std(const float* parameters) const {
  return spec_.gaussian ? parameters + log_std_ : nullptr;
}
float* ActorCritic::log_std(float* parameters) const {
  return spec_.gaussian ? parameters + log_std_ : nullptr;
}

void ActorCritic::Initialize(uint64_t seed, const PolicySection& gains, float* parameters) const {
  std::fill(parameters, parameters + parameters_, 0.0f);
  mlp_.Clear(parameters);
  uint32_t stream = 0;
  for (size_t tower = 0; tower < mlp_.towers(); ++tower) {
    for (size_t i = 0; i + 1 < mlp_.layers(); ++i)
      mlp_.Orthogonal(tower, i, 0, spec_.hidden[i], seed, stream++, gains.gain_hidden, parameters);
    const size_t head = mlp_.layers() - 1;
    const int policy_columns = tower == 0 ? spec_.policy_columns() : 0;
    if (policy_columns > 0)
      mlp_.Orthogonal(tower, head, 0, policy_columns, seed, stream++, gains.gain_policy, parameters);
    if (spec_.shared || tower > 0)
      mlp_.Orthogonal(tower, head, policy_columns, 1, seed, stream++, gains.gain_value, parameters);
  }
  if (spec_.gaussian) {
    std::fill_n(parameters + log_std_, spec_.outputs, static_cast<float>(gains.log_std_init));
  }
}

void ActorCritic::PackAll(const float* parameters, float* packed, bool with_gradients) const {
  for (int task = 0; task < pack_tasks(with_gradients); ++task) Pack(task, parameters, packed);
}

void ActorCritic::Forward(const float* parameters, const float* packed, const float* x, int ldx, int rows,
                          Workspace& w) const {
  for (size_t tower = 0; tower < mlp_.towers(); ++tower)
    mlp_.Forward(tower, parameters, packed, x, ldx, {0, rows}, w.mlp_);
}

void ActorCritic::ForwardValue(const float* parameters, const float* packed, const float* x, int ldx,
                               int rows, Workspace& w) const {
  MILL_CHECK(spec_.value);
  mlp_.Forward(mlp_.towers() - 1, parameters, packed, x, ldx, {0, rows}, w.mlp_);
}

void ActorCritic::Backward(const float* packed, const float* x, int ldx, int rows, Workspace& w,
                           float* gradients) const {
  for (size_t tower = 0; tower < mlp_.towers(); ++tower)  // no normalisation, so no parameter is read
    mlp_.Backward(tower, nullptr, packed, x, ldx, {0, rows}, w.mlp_, gradients);
}

ActorCritic::Workspace::Workspace(const ActorCritic& net, int max_rows)
    : mlp_(net.mlp_, max_rows, Mlp::Keep::kActivations) {
  const ActorCriticSpec& spec = net.spec_;
  logits = mlp_.output(0);
  dlogits = mlp_.doutput(0);
  logits_ld = spec.policy_columns() + (spec.shared ? 1 : 0);
  if (!spec.value) return;
  const size_t tower = net.mlp_.towers() - 1;
  const int column = spec.shared ? spec.policy_columns() : 0;
  value_ld = column + 1;
  value = mlp_.output(tower) + column;
  dvalue = mlp_.doutput(tower) + column;
}

}  // namespace millrace
