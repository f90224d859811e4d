#include "kernels/net/actor_critic.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "kernels/gemm/gemm.h"
#include "kernels/net/orthogonal.h"

namespace millrace {
namespace {
constexpr size_t kAlignFloats = 16;
size_t RoundUp(size_t n) {
  return (n + kAlignFloats - 1) / kAlignFloats * kAlignFloats;
}
size_t Area(int rows, int cols) {
  return static_cast<size_t>(rows) * static_cast<size_t>(cols);
}
}  // namespace

ActorCritic::ActorCritic(const ActorCriticSpec& spec) : spec_(spec) {
  if (spec.shared) {
    AddTower("shared", spec.outputs + 1);
  } else {
    AddTower("policy", spec.outputs);
    AddTower("value", 1);
  }
  if (spec.gaussian) log_std_ = AddTensor("log_std", 1, spec.outputs);
}

size_t ActorCritic::AddTensor(std::string name, int rows, int cols) {
  const size_t offset = parameters_;
  tensors_.push_back({std::move(name), offset, rows, cols});
  parameters_ += RoundUp(Area(rows, cols));
  return offset;
}

void ActorCritic::AddTower(const std::string& name, int outputs) {
  Tower tower;
  int in = spec_.inputs;
  for (size_t i = 0; i <= spec_.hidden.size(); ++i) {
    const bool last = i == spec_.hidden.size();
    const int out = last ? outputs : spec_.hidden[i];
    Layer layer{in, out, last ? Activation::kNone : spec_.activation, 0, 0, 0, 0};
    layer.weight = AddTensor(absl::StrCat(name, "/", i, "/weight"), in, out);
    layer.bias = AddTensor(absl::StrCat(name, "/", i, "/bias"), 1, out);
    layer.packed = packed_;
    packed_ += RoundUp(kCpuGemm.packed_elements(in, out));
    layer.packed_transposed = packed_;
    if (i > 0)
      packed_ += RoundUp(kCpuGemm.packed_elements(out, in));  // nobody wants the gradient of the observation
    tower.push_back(layer);
    in = out;
  }
  towers_.push_back(std::move(tower));
}

const float* ActorCritic::log_std(const float* parameters) const {
  return spec_.gaussian ? parameters + log_std_ : nullptr;
}
float* ActorCritic::log_std(float* parameters) const {
  return spec_.gaussian ? parameters + log_std_ : nullptr;
}

void ActorCritic::Initialize(uint64_t seed, const PolicySection& gains, float* parameters) const {
  std::fill(parameters, parameters + parameters_, 0.0f);
  uint32_t stream = 0;
  for (const Tower& tower : towers_) {
    for (const Layer& layer : tower) {
      float* weight = parameters + layer.weight;
      const bool head = &layer == &tower.back();
      const int value_cols = !head ? 0 : spec_.shared || &tower != &towers_.front() ? 1 : 0;
      const int policy_cols = layer.out - value_cols;
      const double gain = head ? gains.gain_policy : gains.gain_hidden;
      if (policy_cols > 0) OrthogonalInit(seed, stream++, layer.in, policy_cols, layer.out, gain, weight);
      if (value_cols > 0) {
        OrthogonalInit(seed, stream++, layer.in, 1, layer.out, gains.gain_value, weight + policy_cols);
      }
    }
  }
  if (spec_.gaussian) {
    std::fill_n(parameters + log_std_, spec_.outputs, static_cast<float>(gains.log_std_init));
  }
}

int ActorCritic::pack_tasks(bool with_gradients) const {
  const int layers = static_cast<int>(towers_.size() * towers_[0].size());
  return with_gradients ? 2 * layers : layers;
}

// Tasks [0, layers) pack the forward form, [layers, 2 * layers) the transposed one.
void ActorCritic::Pack(int task, const float* parameters, float* packed) const {
  const int per_tower = static_cast<int>(towers_[0].size());
  const int layers = per_tower * static_cast<int>(towers_.size());
  const int at = task % layers;
  const Layer& layer = towers_[static_cast<size_t>(at / per_tower)][static_cast<size_t>(at % per_tower)];
  const float* weight = parameters + layer.weight;
  if (task < layers) {
    kCpuGemm.pack(weight, layer.out, layer.in, layer.out, packed + layer.packed);
  } else if (at % per_tower > 0) {
    kCpuGemm.pack_transposed(weight, layer.out, layer.in, layer.out, packed + layer.packed_transposed);
  }
}

void ActorCritic::PackAll(const float* parameters, float* packed, bool with_gradients) const {
  for (int task = 0; task < pack_tasks(with_gradients); ++task) Pack(task, parameters, packed);
}

void ActorCritic::ForwardTower(size_t tower, const float* parameters, const float* packed, const float* x,
                               int ldx, int rows, Workspace& w) const {
  MILL_CHECK(rows <= w.max_rows_);
  for (size_t i = 0; i < towers_[tower].size(); ++i) {
    const Layer& layer = towers_[tower][i];
    const Workspace::Layer& to = w.layers_[tower][i];
    kCpuGemm.forward({.m = rows,
                      .n = layer.out,
                      .k = layer.in,
                      .x = x,
                      .ldx = ldx,
                      .w = packed + layer.packed,
                      .bias = parameters + layer.bias,
                      .activation = layer.activation,
                      .y = to.y,
                      .ldy = layer.out,
                      .pre = to.pre,
                      .ldpre = layer.out});
    x = to.y;
    ldx = layer.out;
  }
}

void ActorCritic::Forward(const float* parameters, const float* packed, const float* x, int ldx, int rows,
                          Workspace& w) const {
  for (size_t tower = 0; tower < towers_.size(); ++tower)
    ForwardTower(tower, parameters, packed, x, ldx, rows, w);
}

void ActorCritic::ForwardValue(const float* parameters, const float* packed, const float* x, int ldx,
                               int rows, Workspace& w) const {
  ForwardTower(towers_.size() - 1, parameters, packed, x, ldx, rows, w);
}

void ActorCritic::BackwardTower(size_t tower, const float* packed, const float* x, int ldx, int rows,
                                Workspace& w, float* gradients) const {
  const float* dy = w.doutput_[tower];
  for (size_t i = towers_[tower].size(); i-- > 0;) {
    const Layer& layer = towers_[tower][i];
    const Workspace::Layer* below = i > 0 ? &w.layers_[tower][i - 1] : nullptr;
    const float* input = below != nullptr ? below->y : x;
    const int ld_input = below != nullptr ? layer.in : ldx;
    kCpuGemm.grad_weight({.m = rows,
                          .n = layer.out,
                          .k = layer.in,
                          .x = input,
                          .ldx = ld_input,
                          .dy = dy,
                          .lddy = layer.out,
                          .dw = gradients + layer.weight,
                          .lddw = layer.out,
                          .db = gradients + layer.bias});
    if (below == nullptr) return;
    float* dx = w.dhidden_[i % 2];
    kCpuGemm.grad_input({.m = rows,
                         .n = layer.out,
                         .k = layer.in,
                         .dy = dy,
                         .lddy = layer.out,
                         .wt = packed + layer.packed_transposed,
                         .activation = spec_.activation,
                         .x = below->y,
                         .ldx = layer.in,
                         .pre = below->pre,
                         .ldpre = layer.in,
                         .dx = dx,
                         .lddx = layer.in});
    dy = dx;
  }
}

void ActorCritic::Backward(const float* packed, const float* x, int ldx, int rows, Workspace& w,
                           float* gradients) const {
  for (size_t tower = 0; tower < towers_.size(); ++tower)
    BackwardTower(tower, packed, x, ldx, rows, w, gradients);
}

double ActorCritic::ForwardMacs() const {
  double macs = 0;
  for (const Tower& tower : towers_) {
    for (const Layer& layer : tower) macs += static_cast<double>(layer.in) * layer.out;
  }
  return macs;
}

double ActorCritic::TrainMacs() const {
  double first = 0;
  for (const Tower& tower : towers_) first += static_cast<double>(tower[0].in) * tower[0].out;
  return 3 * ForwardMacs() - first;
}

ActorCritic::Workspace::Workspace(const ActorCritic& net, int max_rows) : max_rows_(max_rows) {
  const bool keep_pre =
      net.spec_.activation == Activation::kGelu || net.spec_.activation == Activation::kSilu;
  size_t total = 0;
  std::vector<size_t> taken;
  const auto take = [&](int cols) {
    taken.push_back(total);
    total += RoundUp(Area(max_rows, cols));
  };
  int widest = 1;
  for (const Tower& tower : net.towers_) {
    for (const ActorCritic::Layer& layer : tower) {
      take(layer.out);
      if (keep_pre) take(layer.out);
      widest = std::max(widest, layer.out);
    }
    take(tower.back().out);
  }
  take(widest);
  take(widest);
  memory_.assign(total + kAlignFloats, 0.0f);
  const size_t misaligned = reinterpret_cast<uintptr_t>(memory_.data()) / sizeof(float) % kAlignFloats;
  float* base = memory_.data() + (kAlignFloats - misaligned) % kAlignFloats;
  size_t next = 0;
  const auto give = [&] { return base + taken[next++]; };
  for (const Tower& tower : net.towers_) {
    layers_.emplace_back();
    for (size_t i = 0; i < tower.size(); ++i) {
      float* y = give();
      layers_.back().push_back({y, keep_pre ? give() : nullptr});
    }
    doutput_.push_back(give());
  }
  dhidden_[0] = give();
  dhidden_[1] = give();
  logits = layers_.front().back().y;
  dlogits = doutput_.front();
  logits_ld = net.towers_.front().back().out;
  value_ld = net.towers_.back().back().out;
  const int value_column = net.spec_.shared ? net.spec_.outputs : 0;
  value = layers_.back().back().y + value_column;
  dvalue = doutput_.back() + value_column;
}

}  // namespace millrace
