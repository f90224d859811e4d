// ActorCritic: the policy and value network, an MLP of any sizes, with one trunk each or one for both.
// Rollout and update run this same code. It owns no tensor: parameters, gradients and packed weights are flat
// buffers of the caller, activations a Workspace a thread. Immutable after construction, safe to share
// between threads.
//
// A tower is a chain of hidden layers and one output layer. Separate networks are two towers (policy with
// `outputs` columns, value with 1); a shared one is a single tower with outputs + 1 columns, the value last,
// so that its backward pass is one chain as well. Weights are [in, out] row-major; every tensor starts at a
// multiple of 16 floats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/options.h"

namespace millrace {

struct ActorCriticSpec {
  int inputs = 0;
  std::vector<int> hidden;
  Activation activation = Activation::kTanh;
  bool shared = false;
  int outputs = 0;        // logits, or a Gaussian's means
  bool gaussian = false;  // adds the parameter vector log_std [outputs]
};

struct ParameterTensor {
  std::string name;  // "policy/0/weight", "value/2/bias", "log_std"
  size_t offset;     // floats into the flat buffer
  int rows, cols;    // a bias and log_std have one row
};

class ActorCritic {
 public:
  // What one thread needs for a block of at most max_rows rows.
  class Workspace {
   public:
    Workspace(const ActorCritic& net, int max_rows);
    // Set by Forward. The caller writes the gradients of its loss with the same leading dimensions before
    // Backward.
    float* logits = nullptr;  // [rows, outputs], leading dimension logits_ld
    float* value = nullptr;   // [rows], leading dimension value_ld
    float* dlogits = nullptr;
    float* dvalue = nullptr;
    int logits_ld = 0, value_ld = 0;

   private:
    friend class ActorCritic;
    struct Layer {
      float* y;    // [rows, out]
      float* pre;  // [rows, out] before the activation, where its gradient needs it; else null
    };
    std::vector<float> memory_;
    std::vector<std::vector<Layer>> layers_;  // [tower][layer]
    std::vector<float*> doutput_;             // [tower]: [rows, out of the last layer]
    float* dhidden_[2] = {nullptr, nullptr};  // [rows, widest], alternating
    int max_rows_;
  };

  explicit ActorCritic(const ActorCriticSpec& spec);

  const ActorCriticSpec& spec() const { return spec_; }
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
  size_t packed_floats() const { return packed_; }
  int pack_tasks(bool with_gradients) const;
  void Pack(int task, const float* parameters, float* packed) const;
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
  double ForwardMacs() const;
  double TrainMacs() const;

 private:
  struct Layer {
    int in, out;
    Activation activation;
    size_t weight, bias;               // floats into the parameters
    size_t packed, packed_transposed;  // floats into the packed buffer
  };
  using Tower = std::vector<Layer>;

  size_t AddTensor(std::string name, int rows, int cols);
  void AddTower(const std::string& name, int outputs);
  void ForwardTower(size_t tower, const float* parameters, const float* packed, const float* x, int ldx,
                    int rows, Workspace& w) const;
  void BackwardTower(size_t tower, const float* packed, const float* x, int ldx, int rows, Workspace& w,
                     float* gradients) const;

  ActorCriticSpec spec_;
  std::vector<Tower> towers_;
  std::vector<ParameterTensor> tensors_;
  size_t parameters_ = 0, packed_ = 0, log_std_ = 0;
};

}  // namespace millrace
