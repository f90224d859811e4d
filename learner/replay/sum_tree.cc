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

// Beyond the sum, by rounding or by the caller: the last child that has any of it.
template <class T>
uint32_t LastOf(const T* child) {
  uint32_t last = kFan - 1;
  while (last > 0 && !(child[last] > 0)) --last;
  return last;
}

// Draws that go down the tree side by side, each in its lane of a vector.
constexpr int kLanes = 4;
using Doubles = double __attribute__((vector_size(kLanes * sizeof(double))));
using Counts = int64_t __attribute__((vector_size(kLanes * sizeof(int64_t))));

// For each lane: the child of node[lane] that the mass falls on, whose number among all nodes takes the
// node's place; what is left of the mass stays for that child's own children. The sums of a node are made in
// its children's order, whatever the lane. Without a branch that depends on a mass that is in its range.
template <class T>
void Descend(const T* children, double* mass, uint32_t* node) {
  const T* child[kLanes];
  Doubles m;
  for (int l = 0; l < kLanes; ++l) {
    child[l] = children + static_cast<size_t>(node[l]) * kFan;
    m[l] = mass[l];
  }
  Doubles prefix = {}, below = {};
  Counts picked = {};
  for (uint32_t i = 0; i < kFan; ++i) {
    prefix += Doubles{static_cast<double>(child[0][i]), static_cast<double>(child[1][i]),
                      static_cast<double>(child[2][i]), static_cast<double>(child[3][i])};
    const Counts past = m >= prefix;  // -1 where it is
    picked -= past;
    below = past ? prefix : below;
  }
  m -= below;
  for (int l = 0; l < kLanes; ++l) {
    const bool beyond = picked[l] == kFan;  // and so beyond each of the levels below as well
    mass[l] = beyond ? std::numeric_limits<double>::max() : m[l];
    node[l] = node[l] * kFan + (beyond ? LastOf(child[l]) : static_cast<uint32_t>(picked[l]));
  }
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

// Level by level for some dozens of draws, so that the memory of one is on its way while the others are
// looked at.
void SumTree::Find(const double* mass, uint32_t* leaf, int n) const {
  constexpr int kMost = 16 * kLanes;
  for (int begin = 0; begin < n; begin += kMost) {
    const int count = std::min(n - begin, kMost);
    double left[kMost];
    uint32_t node[kMost] = {};
    const int lanes = (count + kLanes - 1) / kLanes * kLanes;  // the last draw again in those without one
    for (int i = 0; i < lanes; ++i) left[i] = mass[begin + std::min(i, count - 1)];
    for (size_t level = levels_.size(); level-- > 0;) {
      for (int i = 0; i < lanes; i += kLanes) Descend(levels_[level].sum, left + i, node + i);
      for (int i = 0; i < lanes; ++i) {
        const size_t child = static_cast<size_t>(node[i]) * kFan;
        __builtin_prefetch(level > 0 ? static_cast<const void*>(levels_[level - 1].sum + child)
                                     : leaf_ + child);
        if (level > 0) __builtin_prefetch(levels_[level - 1].sum + child + kFan / 2);
      }
    }
    for (int i = 0; i < lanes; i += kLanes) Descend(leaf_, left + i, node + i);
    std::copy_n(node, count, leaf + begin);
  }
}

}  // namespace millrace
