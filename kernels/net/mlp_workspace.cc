// The memory of Mlp::Workspace: which tensors of a backward pass live at the same time, and so may not share
// their place.
#include <algorithm>
#include <array>
#include <map>

#include "common/status.h"
#include "kernels/core/activation.h"
#include "kernels/net/mlp.h"

namespace millrace {
namespace {
constexpr size_t kAlignFloats = 16;
constexpr int kTaskColumns = 64;  // of a weight, in one task of GradWeights: two of the widest register tiles
}  // namespace

// Places, each as large as its largest tenant, found by what they are for.
class Mlp::Workspace::Plan {
 public:
  explicit Plan(int max_rows) : max_rows_(static_cast<size_t>(max_rows)) {}

  // `tower` and `index` tell places of one use apart.
  void Add(float** field, char use, size_t tower, size_t index, int columns) {
    const size_t floats =
        (max_rows_ * static_cast<size_t>(columns) + kAlignFloats - 1) / kAlignFloats * kAlignFloats;
    Place& place = places_[{static_cast<size_t>(use), tower, index}];
    place.floats = std::max(place.floats, floats);
    place.tenants.push_back(field);
  }

  size_t floats() const {
    size_t total = kAlignFloats;
    for (const auto& entry : places_) total += entry.second.floats;
    return total;
  }

  void Allocate(std::vector<float>* memory) {
    memory->assign(floats(), 0.0f);
    const size_t misaligned = reinterpret_cast<uintptr_t>(memory->data()) / sizeof(float) % kAlignFloats;
    float* next = memory->data() + (kAlignFloats - misaligned) % kAlignFloats;
    for (const auto& entry : places_) {
      for (float** tenant : entry.second.tenants) *tenant = next;
      next += entry.second.floats;
    }
  }

 private:
  struct Place {
    size_t floats = 0;
    std::vector<float**> tenants;
  };
  const size_t max_rows_;
  std::map<std::array<size_t, 3>, Place> places_;
};

void Mlp::Workspace::PlanLayer(const Mlp& net, size_t tower, size_t layer, Plan& plan) {
  const Mlp::Layer& from = net.towers_[tower][layer];
  Layer& to = layers_[tower][layer];
  const bool last = layer + 1 == net.layers();
  // Tenants of one place have the same rows in it, or a block of rows would reach into another's.
  const int cols = segments_ > 1 && !last ? widest_ : from.out;
  to.ld = cols;
  if (keep_ == Keep::kOutputs) {  // a layer's result is dead when the next one's is there
    plan.Add(&to.y, last ? 'o' : 'y', last ? tower : 0, last ? 0 : layer % 2, cols);
    return;
  }
  const size_t per_segment = static_cast<size_t>(per_segment_);
  const size_t place = layer % per_segment;  // what is made anew by segments shares by this
  const bool kept = last || place + 1 == per_segment;
  plan.Add(&to.y, kept ? 'o' : 'y', tower, kept ? layer : place, cols);
  if (NeedsPreActivation(from.activation)) plan.Add(&to.pre, 'p', tower, place, cols);
  if (from.norm) {
    plan.Add(&to.linear, 'l', tower, place, cols);
    plan.Add(&to.mean, 'm', tower, place, 1);
    plan.Add(&to.rstd, 'r', tower, place, 1);
  }
  // Backward is through with a layer's gradients when it has made those of the layer below, and with a tower
  // before the next. GradWeights reads those of a whole segment, made from those of the layer above it.
  const bool split = keep_ == Keep::kGradients;
  const size_t owner = split ? tower : 0;
  if (last) {
    plan.Add(&to.dlinear, 'g', tower, 0, cols);
  } else {
    plan.Add(&to.dlinear, 'd', owner, layer % (split ? per_segment + 1 : 2), cols);
  }
  if (from.norm) plan.Add(&to.dnorm, 'n', owner, split ? place : 0, cols);
}

Mlp::Workspace::Workspace(const Mlp& net, int max_rows, Keep keep, int checkpoint)
    : Workspace(max_rows, keep) {
  MakePlan(net, checkpoint).Allocate(&memory_);
  ListTasks(net);
}

size_t Mlp::Workspace::Bytes(const Mlp& net, int max_rows, Keep keep, int checkpoint) {
  return Workspace(max_rows, keep).MakePlan(net, checkpoint).floats() * sizeof(float);
}

Mlp::Workspace::Plan Mlp::Workspace::MakePlan(const Mlp& net, int checkpoint) {
  const int layers = static_cast<int>(net.layers());
  per_segment_ = checkpoint > 0 && checkpoint < layers ? checkpoint : layers;
  segments_ = (layers + per_segment_ - 1) / per_segment_;
  for (int width : net.spec_.hidden) widest_ = std::max(widest_, width);
  layers_.assign(net.towers(), std::vector<Layer>(net.layers()));
  Plan plan(max_rows_);
  for (size_t tower = 0; tower < net.towers(); ++tower) {
    for (size_t layer = 0; layer < net.layers(); ++layer) PlanLayer(net, tower, layer, plan);
  }
  return plan;
}

void Mlp::Workspace::ListTasks(const Mlp& net) {
  tasks_.resize(static_cast<size_t>(segments_));
  for (size_t tower = 0; tower < net.towers(); ++tower) {
    for (size_t layer = 0; layer < net.layers(); ++layer) {
      const int out = net.towers_[tower][layer].out;
      std::vector<GradTask>& tasks = tasks_[layer / static_cast<size_t>(per_segment_)];
      for (int first = 0; first < out; first += kTaskColumns)
        tasks.push_back({tower, layer, first, std::min(kTaskColumns, out - first)});
    }
  }
}

}  // namespace millrace
