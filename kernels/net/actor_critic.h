// ActorCritic: the policy and value network, an MLP of any sizes, with one trunk each or one for both.
// Rollout and update run this same code. It owns no tensor: parameters, gradients and packed weights are flat
// buffers of the caller, activations a Workspace a thread. Immutable after construction, safe to share
// between threads.
//
// Towers and layout are those of Mlp. Separate networks are two towers (policy with `outputs` columns, value
// with 1); a shared one is a single tower with outputs + 1 columns, the value last, so that its backward pass
// is one chain as well. A squashed policy has twice the columns, means and then log-deviations. A policy
// without a value is its own tower only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/options.h"
#include "kernels/net/mlp.h"

namespace millrace {

struct ActorCriticSpec {
  int inputs = 0;
  std::vector<int> hidden;
  Activation activation = Activation::kTanh;
  bool shared = false;
  int outputs = 0;        // logits, or a Gaussian's means
  bool gaussian = false;  // adds the parameter vector log_std [outputs]
  bool squashed = false;  // a tanh-Gaussian: log_std is the network's, too; excludes `gaussian`
  bool value = true;      // false: no value; excludes `shared`
  int policy_columns() const { return squashed ? 2 * outputs : outputs; }
};

class ActorCritic {
 public:
  // What one thread needs for a block of at most max_rows rows.
  class Workspace {
   public:
    Workspace(const ActorCritic& net, int max_rows);
    // Of such a workspace, without making it.
    static size_t Bytes(const ActorCritic& net, int max_rows) {
      return Mlp::Workspace::Bytes(net.mlp_, max_rows, Mlp::Keep::kActivations);
    }
    // Set by Forward. The caller writes the gradients of its loss with the same leading dimensions before
    // Backward. value and dvalue are null where the network has no value.
    float* logits = nullptr;  // [rows, policy_columns()], leading dimension logits_ld
    float* value = nullptr;   // [rows], leading dimension value_ld
    float* dlogits = nullptr;
    float* dvalue = nullptr;
    int logits_ld = 0, value_ld = 0;

   private:
    friend class ActorCritic;
    Mlp::Workspace mlp_;
  };

  explicit ActorCritic(const ActorCriticSpec& spec);

  const ActorCriticSpec& spec() const { return spec_; }
  // The towers alone: its parameters are the first of the flat buffer, its packed weights all of them.
  const Mlp& mlp() const { return mlp_; }
  size_t parameter_floats() const { return parameters_; }
  const std::vector<ParameterTensor>& tensors() const { return tensors_; }
  // Floats in the flat buffer at log_std, or null when the policy is not Gaussian.
  const float* log_std(const float* parameters) const;
  float* log_std(float* parameters) const;

  // Orthogonal initialisation (Saxe et al. 2013) with gains, biases zero; the same for a seed everywhere.
  void Initialize(uint64_t seed, const PolicySection& gains, float* parameters) const;

  // Weights in the form that GEMMs read, [packed_floats()]: made anew whenever parameters change. Packing is
  // cut into pack_tasks() independent pieces, so that threads can share it. `with_gradients` also packs what
  // Backward reads.
  size_t packed_floats() const { return mlp_.packed_floats(); }
  int pack_tasks(bool with_gradients) const { return mlp_.pack_tasks(with_gradients); }
  void Pack(int task, const float* parameters, float* packed) const { mlp_.Pack(task, parameters, packed); }
  void PackAll(const float* parameters, float* packed, bool with_gradients) const;

  // x: [rows, inputs], leading dimension ldx. Fills the workspace's logits and value.
  void Forward(const float* parameters, const float* packed, const float* x, int ldx, int rows,
               Workspace& w) const;
  // Value only.
  void ForwardValue(const float* parameters, const float* packed, const float* x, int ldx, int rows,
                    Workspace& w) const;
  // Adds to `gradients` (flat, like the parameters); after Forward on the same x, with dlogits and dvalue
  // written. The gradient of log_std is the loss's own business.
  void Backward(const float* packed, const float* x, int ldx, int rows, Workspace& w, float* gradients) const;
  // Multiply-adds for one row: forward, and forward plus backward.
  double ForwardMacs() const { return mlp_.ForwardMacs(); }
  double TrainMacs() const { return mlp_.TrainMacs(); }

 private:
  ActorCriticSpec spec_;
  Mlp mlp_;
  std::vector<ParameterTensor> tensors_;
  size_t parameters_ = 0, log_std_ = 0;
};

}  // namespace millrace
