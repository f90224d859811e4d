#include "learner/replay/sum_tree.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace millrace {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr uint32_t kFan = SumTree::kFan;

// By halves, so that the adds of a step are independent of each other.
template <class T>
double SumOf(const T* child) {
  double s[8];
  for (int i = 0; i < 8; ++i) s[i] = static_cast<double>(child[i]) + static_cast<double>(child[i + 8]);
  for (int width = 4; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) s[i] += s[i + width];
  }
  return s[0];
}

float LeastOf(const float* child) {
  float m[8];
  for (int i = 0; i < 8; ++i) m[i] = std::min(child[i], child[i + 8]);
  for (int width = 4; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) m[i] = std::min(m[i], m[i + width]);
  }
  return m[0];
}

// The child that the mass falls on; what is left of the mass stays for that child's own children. Without a
// branch that depends on the mass: the draws of a chunk then overlap instead of waiting for mispredictions.
template <class T>
uint32_t Pick(const T* child, double& mass) {
  double prefix = 0, below = 0;
  uint32_t picked = 0;
  for (uint32_t i = 0; i < kFan; ++i) {
    prefix += static_cast<double>(child[i]);
    const bool past = mass >= prefix;
    picked += past ? 1 : 0;
    below = past ? prefix : below;
  }
  if (picked < kFan) {
    mass -= below;
    return picked;
  }
  // Beyond the sum, by rounding or by the caller: beyond each of the levels below as well.
  mass = std::numeric_limits<double>::max();
  uint32_t last = kFan - 1;
  while (last > 0 && !(child[last] > 0)) --last;
  return last;
}

}  // namespace

uint64_t SumTree::Bytes(uint32_t leaves) {
  uint64_t bytes = uint64_t{Padded(leaves)} * sizeof(float);
  uint32_t nodes = leaves;
  do {
    nodes = Padded(nodes) / kFan;
    bytes += uint64_t{Padded(nodes)} * (sizeof(double) + sizeof(float));
  } while (nodes > kFan);
  return bytes;
}

SumTree::SumTree(std::byte* memory, uint32_t leaves) : leaves_(leaves) {
  // Groups of sixteen of any type keep the alignment.
  leaf_ = reinterpret_cast<float*>(memory);
  memory += uint64_t{Padded(leaves)} * sizeof(float);
  uint32_t nodes = leaves;
  do {
    nodes = Padded(nodes) / kFan;
    Level level;
    level.nodes = nodes;
    level.sum = reinterpret_cast<double*>(memory);
    memory += uint64_t{Padded(nodes)} * sizeof(double);
    level.least = reinterpret_cast<float*>(memory);
    memory += uint64_t{Padded(nodes)} * sizeof(float);
    std::fill_n(level.least, Padded(nodes), kInfinity);
    levels_.push_back(level);
  } while (nodes > kFan);
  least_ = kInfinity;
  dirty_.reserve(4096);  // so that a usual Add or update allocates nothing
}

void SumTree::Put(uint32_t leaf, float priority) {
  leaf_[leaf] = priority;
  const uint32_t node = leaf / kFan;
  if (dirty_.empty() || dirty_.back() != node) dirty_.push_back(node);
}

void SumTree::RefreshNode(size_t level, uint32_t node) {
  const size_t first = static_cast<size_t>(node) * kFan;
  if (level > 0) {
    const Level& below = levels_[level - 1];
    levels_[level].sum[node] = SumOf(below.sum + first);
    levels_[level].least[node] = LeastOf(below.least + first);
    return;
  }
  float positive[kFan];
  for (uint32_t i = 0; i < kFan; ++i) positive[i] = leaf_[first + i] > 0 ? leaf_[first + i] : kInfinity;
  levels_[0].sum[node] = SumOf(leaf_ + first);
  levels_[0].least[node] = LeastOf(positive);
}

void SumTree::Refresh() {
  for (size_t level = 0; level < levels_.size(); ++level) {
    size_t parents = 0;
    for (uint32_t node : dirty_) {
      RefreshNode(level, node);
      const uint32_t parent = node / kFan;
      if (parents == 0 || dirty_[parents - 1] != parent) dirty_[parents++] = parent;
    }
    dirty_.resize(parents);
  }
  dirty_.clear();
  total_ = SumOf(levels_.back().sum);
  least_ = LeastOf(levels_.back().least);
}

void SumTree::Clear() {
  std::fill_n(leaf_, leaves_, 0.0f);
  MakeSums();
}

void SumTree::MakeSums() {
  for (size_t level = 0; level < levels_.size(); ++level) {
    for (uint32_t node = 0; node < levels_[level].nodes; ++node) RefreshNode(level, node);
  }
  dirty_.clear();
  Refresh();
}

void SumTree::Find(double* mass, uint32_t* leaf, int n) const {
  std::fill_n(leaf, n, 0u);
  for (size_t level = levels_.size(); level-- > 0;) {
    const Level& at = levels_[level];
    for (int i = 0; i < n; ++i) {
      const size_t first = static_cast<size_t>(leaf[i]) * kFan;
      leaf[i] = static_cast<uint32_t>(first) + Pick(at.sum + first, mass[i]);
      const size_t child = static_cast<size_t>(leaf[i]) * kFan;
      __builtin_prefetch(level > 0 ? static_cast<const void*>(levels_[level - 1].sum + child)
                                   : leaf_ + child);
    }
  }
  for (int i = 0; i < n; ++i) {
    const size_t first = static_cast<size_t>(leaf[i]) * kFan;
    leaf[i] = static_cast<uint32_t>(first) + Pick(leaf_ + first, mass[i]);
  }
}

}  // namespace millrace
