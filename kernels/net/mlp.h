// Mlp: towers of linear layers over one shared input, the part that ActorCritic and SAC's critics have in
// common. It owns no tensor: parameters, gradients and packed weights are flat buffers of the caller,
// activations a Workspace. Immutable after construction, safe to share between threads. Station:
// policy_runner, train_step.
//
// A tower is a chain of hidden layers and one output layer. With layer_norm each hidden linear is followed by
// a layer normalisation (Ba et al. 2016), then the activation. Weights are [in, out] row-major; every tensor
// starts at a multiple of 16 floats.
//
// Two ways to train, with the same bits for a row:
// - Backward takes a block of rows through all layers and adds the weights' gradients as it goes.
// - BackwardRows does all of it but the weights' gradients, for any cut of a batch into rows; then
// GradWeights
//   makes those over the whole batch, cut over columns of the weights: each is one chain over the rows, so
//   nothing is summed over shards and no shard has a buffer of gradients.
// With a checkpoint every k layers a Workspace keeps only each k-th hidden output, and a segment of k layers
// is computed again when the backward pass comes to it (Chen et al., "Training deep nets with sublinear
// memory cost", 2016): the same operations on the same numbers, so the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/options.h"

namespace millrace {

struct ParameterTensor {
  std::string name;  // "policy/0/weight", "value/2/bias", "log_std"
  size_t offset;     // floats into the flat buffer
  int rows, cols;    // a bias, a normalisation's scale and shift, and log_std have one row
};

struct MlpSpec {
  struct Tower {
    std::string name;
    int outputs = 1;
  };
  int inputs = 0;
  std::vector<int> hidden;
  Activation activation = Activation::kTanh;
  bool layer_norm = false;
  // The first input column that BackwardRows makes the gradient of, up to the last one; -1: of none.
  int input_gradient_from = -1;
  std::vector<Tower> towers;
};

class Mlp {
 public:
  // Rows of a batch, of its input and of its workspace alike.
  struct Rows {
    int first = 0, count = 0;
  };
  // What a workspace is for: forward only; then Backward; then BackwardRows and GradWeights.
  enum class Keep : uint8_t { kOutputs, kActivations, kGradients };

  class Workspace {
   public:
    // checkpoint: hidden outputs are kept every so many layers; 0: all.
    Workspace(const Mlp& net, int max_rows, Keep keep, int checkpoint = 0);
    // Of such a workspace, without making it.
    static size_t Bytes(const Mlp& net, int max_rows, Keep keep, int checkpoint = 0);

    // [rows, outputs of the tower], set by Forward; its leading dimension is the number of outputs.
    float* output(size_t tower) { return layers_[tower].back().y; }
    // The same shape: the loss's gradient, written before the backward pass. None with kOutputs.
    float* doutput(size_t tower) { return layers_[tower].back().dlinear; }
    // Segments of layers, from 0 at the input.
    int segments() const { return segments_; }
    int grad_tasks(int segment) const {
      return static_cast<int>(tasks_[static_cast<size_t>(segment)].size());
    }
    size_t bytes() const { return memory_.size() * sizeof(float); }

   private:
    friend class Mlp;
    struct Layer {
      int ld = 0;                // of all that is [rows, out]
      float* y = nullptr;        // [rows, out] after the activation
      float* pre = nullptr;      // [rows, out] before it, where its gradient needs that
      float* linear = nullptr;   // [rows, out] before the normalisation
      float* mean = nullptr;     // [rows] of the normalisation
      float* rstd = nullptr;     // [rows]
      float* dlinear = nullptr;  // [rows, out] gradient of the linear's result
      float* dnorm = nullptr;    // [rows, out] gradient of the normalisation's result
    };
    struct GradTask {
      size_t tower, layer;
      int first, columns;
    };
    class Plan;
    Workspace(int max_rows, Keep keep) : keep_(keep), max_rows_(max_rows) {}
    Plan MakePlan(const Mlp& net, int checkpoint);
    void PlanLayer(const Mlp& net, size_t tower, size_t layer, Plan& plan);
    void ListTasks(const Mlp& net);

    Keep keep_;
    int max_rows_, per_segment_ = 0, segments_ = 0, widest_ = 0;
    std::vector<float> memory_;
    std::vector<std::vector<Layer>> layers_;    // [tower][layer]
    std::vector<std::vector<GradTask>> tasks_;  // [segment]
  };

  explicit Mlp(MlpSpec spec);

  const MlpSpec& spec() const { return spec_; }
  size_t towers() const { return towers_.size(); }
  size_t layers() const { return towers_[0].size(); }  // of a tower, the output layer counted
  size_t parameter_floats() const { return parameters_; }
  const std::vector<ParameterTensor>& tensors() const { return tensors_; }

  // All zero, scales of normalisations 1. Then Orthogonal (orthogonal.h) for columns [first, first + columns)
  // of one weight.
  void Clear(float* parameters) const;
  void Orthogonal(size_t tower, size_t layer, int first, int columns, uint64_t seed, uint32_t stream,
                  double gain, float* parameters) const;

  // Weights in the form that GEMMs read, [packed_floats()]: made anew whenever parameters change. Packing is
  // cut into pack_tasks() independent pieces, so that threads can share it. `with_gradients` also packs what
  // the backward pass reads.
  size_t packed_floats() const { return packed_; }
  int pack_tasks(bool with_gradients) const;
  void Pack(int task, const float* parameters, float* packed) const;

  // x: [max_rows, inputs], leading dimension ldx. Fills the workspace's output of the tower.
  void Forward(size_t tower, const float* parameters, const float* packed, const float* x, int ldx, Rows rows,
               Workspace& w) const;
  // After Forward on the same x, with doutput written. Adds to `gradients` (flat, like the parameters).
  void Backward(size_t tower, const float* parameters, const float* packed, const float* x, int ldx,
                Rows rows, Workspace& w, float* gradients) const;
  // One segment of layers, from the last to 0; all but the weights' gradients. In segment 0 with dx: the
  // gradient of the input's columns from spec().input_gradient_from on, [max_rows, lddx].
  void BackwardRows(size_t tower, int segment, const float* parameters, const float* packed, const float* x,
                    int ldx, Rows rows, Workspace& w, float* dx = nullptr, int lddx = 0) const;
  // What Forward left of one tower in rows rows[0], rows[1] ... of `from`, to rows 0 to `count` - 1 of `to`,
  // for BackwardRows through these alone. Both workspaces are of this net, have one segment and keep
  // activations.
  void GatherRows(size_t tower, const Workspace& from, const int32_t* rows, int count, Workspace& to) const;
  // Part `task` of w.grad_tasks(segment) of the segment's weight gradients over rows [0, rows), after
  // BackwardRows on all of them and before the next segment. Overwrites its part of `gradients`; returns the
  // sum of its squares. Every element of the flat buffer that belongs to a tensor is in one task.
  double GradWeights(int task, int segment, const float* x, int ldx, int rows, const Workspace& w,
                     float* gradients) const;

  // Multiply-adds for one row: forward, and forward plus backward without the input's gradient.
  double ForwardMacs() const;
  double TrainMacs() const;

 private:
  struct Layer {
    int in, out;
    Activation activation;
    size_t weight, bias;               // floats into the parameters
    bool norm = false;                 // then:
    size_t scale = 0, shift = 0;       // floats into the parameters
    size_t packed, packed_transposed;  // floats into the packed buffer
    int transposed_from;               // first row of the weight in packed_transposed; `in`: none of them
  };
  using Tower = std::vector<Layer>;

  size_t AddTensor(std::string name, int rows, int cols);
  void AddTower(const std::string& name, int outputs);
  void ForwardLayer(const Layer& layer, const float* parameters, const float* packed, const float* x, int ldx,
                    Rows rows, const Workspace::Layer& to) const;
  void Recompute(size_t tower, int segment, const float* parameters, const float* packed, const float* x,
                 int ldx, Rows rows, Workspace& w) const;
  void BackwardLayer(const Layer& above, const Workspace::Layer& at_above, const Layer& layer,
                     const float* parameters, const float* packed, Rows rows,
                     const Workspace::Layer& at) const;
  void AddWeightGradients(const Layer& layer, int first, int columns, const float* x, int ldx, Rows rows,
                          const Workspace::Layer& at, float* gradients) const;
  void BackwardSegment(size_t tower, int segment, const float* parameters, const float* packed,
                       const float* x, int ldx, Rows rows, Workspace& w, float* gradients) const;

  MlpSpec spec_;
  std::vector<Tower> towers_;
  std::vector<ParameterTensor> tensors_;
  size_t parameters_ = 0, packed_ = 0;
};

}  // namespace millrace
