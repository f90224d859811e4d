// SumTree: priorities of slots, with the sum and the least of all, and the slot that a mass of the sum falls
// on. Station: replay. Owner: Replay, whose memory it uses. Threads: Put and Refresh by one while nobody
// reads.
//
// Sixteen children a node: the children's sums are two lines of cache, a million leaves are five levels, and
// all levels above the leaves take 0.8 bytes a leaf. A sum is always made anew of its children, in one order
// and in double, so nothing drifts however often leaves change, and the tree follows from its leaves to the
// bit. Prioritised replay: Schaul et al. 2016, appendix B.2.1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace millrace {

class SumTree {
 public:
  static constexpr uint32_t kFan = 16;

  static uint64_t Bytes(uint32_t leaves);
  SumTree() = default;
  // Over zeroed memory of Bytes(leaves), aligned to 64. All priorities begin as 0: never found.
  SumTree(std::byte* memory, uint32_t leaves);

  uint32_t leaves() const { return leaves_; }
  const float* data() const { return leaf_; }  // [leaves]
  float operator[](uint32_t leaf) const { return leaf_[leaf]; }

  // Sums and minimum know of it after Refresh. The last of several for one leaf stands.
  void Put(uint32_t leaf, float priority);
  void Refresh();
  // All priorities become 0.
  void Clear();
  // After the leaves' memory, [leaves] f32 at the beginning of the tree's, was written to directly.
  void MakeSums();

  double total() const { return total_; }
  // Of the priorities above 0; infinity where there is none.
  float least() const { return least_; }

  // leaf[i] is the first whose prefix sum, it included, is above mass[i]; for a mass at the total or beyond,
  // the last with a priority above 0. total() > 0. n of any size; a few dozen at once hide the memory's
  // latency.
  void Find(const double* mass, uint32_t* leaf, int n) const;

 private:
  struct Level {
    double* sum = nullptr;   // [nodes], padded with zeros to whole groups of children
    float* least = nullptr;  // [nodes], padded with infinity
    uint32_t nodes = 0;
  };
  static uint32_t Padded(uint32_t nodes) { return (nodes + kFan - 1) / kFan * kFan; }
  void RefreshNode(size_t level, uint32_t node);

  uint32_t leaves_ = 0;
  float* leaf_ = nullptr;      // [leaves], padded with zeros
  std::vector<Level> levels_;  // [0]: above the leaves; the last has at most kFan nodes
  double total_ = 0;
  float least_ = 0;
  std::vector<uint32_t> dirty_;  // nodes of levels_[0] that Refresh must make anew
};

}  // namespace millrace
