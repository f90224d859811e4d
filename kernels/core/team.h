// A Team is the workers that run one tile of an op together. An op's body must be right for every size from 1
// up: it divides work by rank and size, shares only through its Shared struct, and calls Sync between a write
// and another rank's read. SerialTeam is the CPU's production path; CudaTeam (cuda/cuda_team.cuh) is a block;
// ThreadTeam (testing/thread_team.h) is real threads, so that ThreadSanitizer finds a missing Sync.
//
// Sums have fixed lanes: element i goes to lane i % kLanes, each lane is one chain, and lanes are added in
// one order. So a sum has the same bits for every team, and a serial one still vectorizes.
#pragma once

#include "kernels/core/target.h"

namespace millrace {

inline constexpr int kLanes = 32;

struct SerialTeam {
  static constexpr bool size_is_one = true;
  static constexpr MILL_HD int rank() { return 0; }
  static constexpr MILL_HD int size() { return 1; }
  MILL_HD void Sync() const {}
};

// Adds the lanes, the upper half onto the lower until one is left: always the same order, and short chains
// that vectorize. Every rank may call it, after a Sync that follows the writes.
template <class T>
MILL_HD T AddLanes(const T* lanes) {
  static_assert(kLanes == 32);
  T half[kLanes / 2];
  MILL_SIMD
  for (int i = 0; i < kLanes / 2; ++i) half[i] = lanes[i] + lanes[i + kLanes / 2];
  MILL_SIMD
  for (int i = 0; i < kLanes / 4; ++i) half[i] += half[i + kLanes / 4];
  for (int i = 0; i < kLanes / 8; ++i) half[i] += half[i + kLanes / 8];
  return (half[0] + half[2]) + (half[1] + half[3]);
}

// lanes[l] = f(l) + f(l + kLanes) + ... over i < n; the caller Syncs before AddLanes.
template <class T, class Team, class F>
MILL_HD void SumIntoLanes(Team& team, int n, T* lanes, F f) {
  if constexpr (Team::size_is_one) {
    T acc[kLanes];
    for (int l = 0; l < kLanes; ++l) acc[l] = T(0);
    int i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      MILL_SIMD
      for (int l = 0; l < kLanes; ++l) acc[l] += f(i + l);
    }
    for (int l = 0; l < kLanes && i + l < n; ++l) acc[l] += f(i + l);
    for (int l = 0; l < kLanes; ++l) lanes[l] = acc[l];
  } else {
    for (int l = team.rank(); l < kLanes; l += team.size()) {
      T acc = T(0);
      for (int i = l; i < n; i += kLanes) acc += f(i);
      lanes[l] = acc;
    }
  }
}

}  // namespace millrace
