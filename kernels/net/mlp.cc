#include "kernels/net/mlp.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "kernels/core/activation.h"
#include "kernels/core/launch.h"
#include "kernels/gemm/gemm.h"
#include "kernels/net/orthogonal.h"
#include "kernels/ops/layer_norm.h"

namespace millrace {
namespace {
constexpr size_t kAlignFloats = 16;

size_t RoundUp(size_t n) {
  return (n + kAlignFloats - 1) / kAlignFloats * kAlignFloats;
}
size_t Area(int rows, int cols) {
  return static_cast<size_t>(rows) * static_cast<size_t>(cols);
}
// Where row `rows.first` begins; null stays null.
float* At(float* base, Mlp::Rows rows, int ld) {
  return base == nullptr ? nullptr : base + Area(rows.first, ld);
}
}  // namespace

Mlp::Mlp(MlpSpec spec) : spec_(std::move(spec)) {
  MILL_CHECK(!spec_.towers.empty());
  for (const MlpSpec::Tower& tower : spec_.towers) AddTower(tower.name, tower.outputs);
}

size_t Mlp::AddTensor(std::string name, int rows, int cols) {
  const size_t offset = parameters_;
  tensors_.push_back({std::move(name), offset, rows, cols});
  parameters_ += RoundUp(Area(rows, cols));
  return offset;
}

void Mlp::AddTower(const std::string& name, int outputs) {
  Tower tower;
  int in = spec_.inputs;
  for (size_t i = 0; i <= spec_.hidden.size(); ++i) {
    const bool last = i == spec_.hidden.size();
    const int out = last ? outputs : spec_.hidden[i];
    Layer layer{};
    layer.in = in;
    layer.out = out;
    layer.activation = last ? Activation::kNone : spec_.activation;
    layer.weight = AddTensor(absl::StrCat(name, "/", i, "/weight"), in, out);
    layer.bias = AddTensor(absl::StrCat(name, "/", i, "/bias"), 1, out);
    layer.norm = spec_.layer_norm && !last;
    if (layer.norm) {
      layer.scale = AddTensor(absl::StrCat(name, "/", i, "/norm/scale"), 1, out);
      layer.shift = AddTensor(absl::StrCat(name, "/", i, "/norm/shift"), 1, out);
    }
    layer.packed = packed_;
    packed_ += RoundUp(kCpuGemm.packed_elements(in, out));
    layer.packed_transposed = packed_;
    layer.transposed_from = i > 0 ? 0 : spec_.input_gradient_from >= 0 ? spec_.input_gradient_from : in;
    packed_ += RoundUp(kCpuGemm.packed_elements(out, in - layer.transposed_from));
    tower.push_back(layer);
    in = out;
  }
  towers_.push_back(std::move(tower));
}

void Mlp::Clear(float* parameters) const {
  std::fill_n(parameters, parameters_, 0.0f);
  for (const Tower& tower : towers_) {
    for (const Layer& layer : tower) {
      if (layer.norm) std::fill_n(parameters + layer.scale, layer.out, 1.0f);
    }
  }
}

void Mlp::Orthogonal(size_t tower, size_t layer, int first, int columns, uint64_t seed, uint32_t stream,
                     double gain, float* parameters) const {
  const Layer& l = towers_[tower][layer];
  OrthogonalInit(seed, stream, l.in, columns, l.out, gain, parameters + l.weight + first);
}

int Mlp::pack_tasks(bool with_gradients) const {
  const int layers = static_cast<int>(towers_.size() * towers_[0].size());
  return with_gradients ? 2 * layers : layers;
}

// Tasks [0, layers) pack the forward form, [layers, 2 * layers) the transposed one.
void Mlp::Pack(int task, const float* parameters, float* packed) const {
  const int per_tower = static_cast<int>(layers());
  const int all = per_tower * static_cast<int>(towers_.size());
  const int at = task % all;
  const Layer& layer = towers_[static_cast<size_t>(at / per_tower)][static_cast<size_t>(at % per_tower)];
  const float* weight = parameters + layer.weight;
  if (task < all) {
    kCpuGemm.pack(weight, layer.out, layer.in, layer.out, packed + layer.packed);
  } else if (const int from = layer.transposed_from; from < layer.in) {
    kCpuGemm.pack_transposed(weight + Area(from, layer.out), layer.out, layer.in - from, layer.out,
                             packed + layer.packed_transposed);
  }
}

// x and `to` begin at the batch's first row.
void Mlp::ForwardLayer(const Layer& layer, const float* parameters, const float* packed, const float* x,
                       int ldx, Rows rows, const Workspace::Layer& to) const {
  const int n = layer.out, ld = to.ld;
  float* y = At(to.y, rows, ld);
  float* pre = At(to.pre, rows, ld);
  float* linear = !layer.norm ? y : to.linear != nullptr ? At(to.linear, rows, ld) : y;
  kCpuGemm.forward({.m = rows.count,
                    .n = n,
                    .k = layer.in,
                    .x = x + Area(rows.first, ldx),
                    .ldx = ldx,
                    .w = packed + layer.packed,
                    .bias = parameters + layer.bias,
                    .activation = layer.norm ? Activation::kNone : layer.activation,
                    .y = linear,
                    .ldy = ld,
                    .pre = layer.norm ? nullptr : pre,
                    .ldpre = ld});
  if (!layer.norm) return;
  float* normed = pre != nullptr ? pre : y;
  RunSerial<LayerNorm>({.rows = rows.count,
                        .dims = n,
                        .x = linear,
                        .ld = ld,
                        .gamma = parameters + layer.scale,
                        .beta = parameters + layer.shift,
                        .y = normed,
                        .y_ld = ld,
                        .mean = At(to.mean, rows, 1),
                        .rstd = At(to.rstd, rows, 1)});
  DispatchActivation(layer.activation, [=](auto act) {
    for (size_t r = 0, at = 0; r < static_cast<size_t>(rows.count); ++r, at += static_cast<size_t>(ld)) {
      for (int c = 0; c < n; ++c) y[at + c] = decltype(act)::Forward(normed[at + c]);
    }
  });
}

void Mlp::Forward(size_t tower, const float* parameters, const float* packed, const float* x, int ldx,
                  Rows rows, Workspace& w) const {
  MILL_CHECK(rows.first + rows.count <= w.max_rows_);
  for (size_t i = 0; i < layers(); ++i) {
    ForwardLayer(towers_[tower][i], parameters, packed, x, ldx, rows, w.layers_[tower][i]);
    x = w.layers_[tower][i].y;
    ldx = w.layers_[tower][i].ld;
  }
}

// The last segment is still there. Of the others each layer is made anew, but for the last one's output,
// which was kept; what is beside it was not.
void Mlp::Recompute(size_t tower, int segment, const float* parameters, const float* packed, const float* x,
                    int ldx, Rows rows, Workspace& w) const {
  if (segment + 1 == w.segments_) return;
  const size_t first = static_cast<size_t>(segment) * static_cast<size_t>(w.per_segment_);
  const size_t end = first + static_cast<size_t>(w.per_segment_);
  for (size_t i = first; i < end; ++i) {
    const Workspace::Layer& to = w.layers_[tower][i];
    if (i + 1 == end && to.pre == nullptr && to.linear == nullptr) break;
    const Workspace::Layer* below = i > 0 ? &w.layers_[tower][i - 1] : nullptr;
    ForwardLayer(towers_[tower][i], parameters, packed, below != nullptr ? below->y : x,
                 below != nullptr ? below->ld : ldx, rows, to);
  }
}

// From the gradient of the linear above to that of this layer's own.
void Mlp::BackwardLayer(const Layer& above, const Workspace::Layer& at_above, const Layer& layer,
                        const float* parameters, const float* packed, Rows rows,
                        const Workspace::Layer& at) const {
  const int n = layer.out, ld = at.ld;
  float* dlinear = At(at.dlinear, rows, ld);
  float* dnorm = layer.norm ? At(at.dnorm, rows, ld) : dlinear;
  kCpuGemm.grad_input({.m = rows.count,
                       .n = above.out,
                       .k = n,
                       .dy = At(at_above.dlinear, rows, at_above.ld),
                       .lddy = at_above.ld,
                       .wt = packed + above.packed_transposed,
                       .activation = layer.activation,
                       .x = At(at.y, rows, ld),
                       .ldx = ld,
                       .pre = At(at.pre, rows, ld),
                       .ldpre = ld,
                       .dx = dnorm,
                       .lddx = ld});
  if (!layer.norm) return;
  RunSerial<LayerNormBackward>({.rows = rows.count,
                                .dims = n,
                                .x = At(at.linear, rows, ld),
                                .ld = ld,
                                .gamma = parameters + layer.scale,
                                .mean = At(at.mean, rows, 1),
                                .rstd = At(at.rstd, rows, 1),
                                .dy = dnorm,
                                .dy_ld = ld,
                                .dx = dlinear,
                                .dx_ld = ld});
}

// Columns [first, first + columns) of what the layer has, over these rows. x: the layer's input.
void Mlp::AddWeightGradients(const Layer& layer, int first, int columns, const float* x, int ldx, Rows rows,
                             const Workspace::Layer& at, float* gradients) const {
  const int n = layer.out;
  kCpuGemm.grad_weight({.m = rows.count,
                        .n = columns,
                        .k = layer.in,
                        .x = x + Area(rows.first, ldx),
                        .ldx = ldx,
                        .dy = At(at.dlinear, rows, at.ld) + first,
                        .lddy = at.ld,
                        .dw = gradients + layer.weight + first,
                        .lddw = n,
                        .db = gradients + layer.bias + first});
  if (!layer.norm) return;
  RunSerial<LayerNormParamGrad>({.rows = rows.count,
                                 .dims = columns,
                                 .x = At(at.linear, rows, at.ld) + first,
                                 .ld = at.ld,
                                 .mean = At(at.mean, rows, 1),
                                 .rstd = At(at.rstd, rows, 1),
                                 .dy = At(at.dnorm, rows, at.ld) + first,
                                 .dy_ld = at.ld,
                                 .dgamma = gradients + layer.scale + first,
                                 .dbeta = gradients + layer.shift + first});
}

// Down to the gradient of the segment's first linear; with `gradients` each layer's weights follow at once.
void Mlp::BackwardSegment(size_t tower, int segment, const float* parameters, const float* packed,
                          const float* x, int ldx, Rows rows, Workspace& w, float* gradients) const {
  MILL_CHECK(rows.first + rows.count <= w.max_rows_ && w.keep_ != Keep::kOutputs);
  Recompute(tower, segment, parameters, packed, x, ldx, rows, w);
  const Tower& layers = towers_[tower];
  const size_t first = static_cast<size_t>(segment) * static_cast<size_t>(w.per_segment_);
  for (size_t i = std::min(layers.size(), first + static_cast<size_t>(w.per_segment_)); i-- > first;) {
    const Workspace::Layer& at = w.layers_[tower][i];
    if (i + 1 < layers.size()) {
      BackwardLayer(layers[i + 1], w.layers_[tower][i + 1], layers[i], parameters, packed, rows, at);
    }
    if (gradients == nullptr) continue;
    const Workspace::Layer* below = i > 0 ? &w.layers_[tower][i - 1] : nullptr;
    AddWeightGradients(layers[i], 0, layers[i].out, below != nullptr ? below->y : x,
                       below != nullptr ? below->ld : ldx, rows, at, gradients);
  }
}

void Mlp::Backward(size_t tower, const float* parameters, const float* packed, const float* x, int ldx,
                   Rows rows, Workspace& w, float* gradients) const {
  for (int segment = w.segments_; segment-- > 0;)
    BackwardSegment(tower, segment, parameters, packed, x, ldx, rows, w, gradients);
}

void Mlp::BackwardRows(size_t tower, int segment, const float* parameters, const float* packed,
                       const float* x, int ldx, Rows rows, Workspace& w, float* dx, int lddx) const {
  BackwardSegment(tower, segment, parameters, packed, x, ldx, rows, w, nullptr);
  if (segment > 0 || dx == nullptr) return;
  const Layer& layer = towers_[tower][0];
  MILL_CHECK(layer.transposed_from < layer.in);
  kCpuGemm.grad_input({.m = rows.count,
                       .n = layer.out,
                       .k = layer.in - layer.transposed_from,
                       .dy = At(w.layers_[tower][0].dlinear, rows, w.layers_[tower][0].ld),
                       .lddy = w.layers_[tower][0].ld,
                       .wt = packed + layer.packed_transposed,
                       .dx = dx + Area(rows.first, lddx),
                       .lddx = lddx});
}

void Mlp::GatherRows(size_t tower, const Workspace& from, const int32_t* rows, int count,
                     Workspace& to) const {
  MILL_CHECK(from.segments_ == 1 && to.segments_ == 1 && count <= to.max_rows_);
  MILL_CHECK(from.keep_ != Keep::kOutputs && to.keep_ != Keep::kOutputs);
  const auto gather = [&](const float* source, float* target, int columns) {
    for (int r = 0; source != nullptr && r < count; ++r)
      std::copy_n(source + Area(rows[r], columns), columns, target + Area(r, columns));
  };
  for (size_t i = 0; i + 1 < layers(); ++i) {  // of the output layer nothing is read
    const Workspace::Layer &source = from.layers_[tower][i], &target = to.layers_[tower][i];
    gather(source.y, target.y, source.ld);
    gather(source.pre, target.pre, source.ld);
    gather(source.linear, target.linear, source.ld);
    gather(source.mean, target.mean, 1);
    gather(source.rstd, target.rstd, 1);
  }
}

namespace {

// Clears a block of a row-major matrix.
void ClearBlock(float* block, int rows, int columns, int ld) {
  for (int r = 0; r < rows; ++r) std::fill_n(block + Area(r, ld), columns, 0.0f);
}

double SumSquares(const float* block, int rows, int columns, int ld) {
  float lanes[kLanes] = {};
  for (int r = 0; r < rows; ++r) {
    const float* x = block + Area(r, ld);
    int c = 0;
    for (; c + kLanes <= columns; c += kLanes) {
      for (int l = 0; l < kLanes; ++l) lanes[l] += x[c + l] * x[c + l];
    }
    for (int l = 0; c + l < columns; ++l) lanes[l] += x[c + l] * x[c + l];
  }
  return static_cast<double>(AddLanes(lanes));
}

}  // namespace

double Mlp::GradWeights(int task, int segment, const float* x, int ldx, int rows, const Workspace& w,
                        float* gradients) const {
  MILL_CHECK(w.keep_ == Keep::kGradients);
  const Workspace::GradTask& t = w.tasks_[static_cast<size_t>(segment)][static_cast<size_t>(task)];
  const Layer& layer = towers_[t.tower][t.layer];
  const Workspace::Layer* below = t.layer > 0 ? &w.layers_[t.tower][t.layer - 1] : nullptr;
  float* blocks[4] = {gradients + layer.weight + t.first, gradients + layer.bias + t.first};
  int count = 2;
  if (layer.norm) {
    blocks[count++] = gradients + layer.scale + t.first;
    blocks[count++] = gradients + layer.shift + t.first;
  }
  for (int i = 0; i < count; ++i) ClearBlock(blocks[i], i == 0 ? layer.in : 1, t.columns, layer.out);
  AddWeightGradients(layer, t.first, t.columns, below != nullptr ? below->y : x,
                     below != nullptr ? below->ld : ldx, Rows{0, rows}, w.layers_[t.tower][t.layer],
                     gradients);
  double squares = 0;
  for (int i = 0; i < count; ++i)
    squares += SumSquares(blocks[i], i == 0 ? layer.in : 1, t.columns, layer.out);
  return squares;
}

double Mlp::ForwardMacs() const {
  double macs = 0;
  for (const Tower& tower : towers_) {
    for (const Layer& layer : tower) macs += static_cast<double>(layer.in) * layer.out;
  }
  return macs;
}

double Mlp::TrainMacs() const {
  double first = 0;
  for (const Tower& tower : towers_) first += static_cast<double>(tower[0].in) * tower[0].out;
  return 3 * ForwardMacs() - first;
}

}  // namespace millrace
