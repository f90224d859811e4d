// What an environment is made of, as its users see it: observation arrays, the action space, the optional
// mask. Plain values, no owner, no thread rule. Everything that sizes memory (SegmentLayout, networks) starts
// here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace millrace {

enum class DType : uint8_t { kF32, kU8, kI32 };
constexpr size_t SizeOf(DType t) {
  return t == DType::kU8 ? 1 : 4;
}

// One named observation array; the shape is of one row.
struct ArraySpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int> shape;

  int elements() const {
    int n = 1;
    for (int d : shape) n *= d;
    return n;
  }
  size_t bytes() const { return static_cast<size_t>(elements()) * SizeOf(dtype); }
  bool operator==(const ArraySpec&) const = default;
};

// Discrete: nvec has one entry. MultiDiscrete: one an action component. Box: low and high, one a dimension.
struct ActionSpec {
  enum class Kind : uint8_t { kDiscrete, kMultiDiscrete, kBox };
  Kind kind = Kind::kDiscrete;
  std::vector<int32_t> nvec;
  std::vector<float> low, high;

  bool box() const { return kind == Kind::kBox; }
  // Values stored for one row's action: i32 for discrete kinds, f32 for Box.
  int width() const { return static_cast<int>(box() ? low.size() : nvec.size()); }
  // Outputs that a policy has for one row: all logits, or the Gaussian's means.
  int outputs() const {
    if (box()) return width();
    int n = 0;
    for (int32_t v : nvec) n += v;
    return n;
  }
  bool operator==(const ActionSpec&) const = default;
};

struct EnvSpec {
  std::string id;
  std::vector<ArraySpec> observations;
  ActionSpec action;
  bool action_mask = false;   // a u8 mask of action.outputs() values a row, 1 = allowed; discrete kinds only
  int max_episode_steps = 0;  // the task's own time limit in environment steps; 0: none
  std::string summary;        // one line for `millrace envs`

  int observation_elements() const {
    int n = 0;
    for (const auto& a : observations) n += a.elements();
    return n;
  }
  bool operator==(const EnvSpec&) const = default;
};

}  // namespace millrace
