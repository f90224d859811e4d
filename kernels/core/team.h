// A Team is the workers that run one tile of an op together. An op's body must be right for every size from 1
// up: it divides work by rank and size, shares only through its Shared struct, and calls Sync between a write
// and another rank's read. SerialTeam is the CPU's production path; CudaTeam (cuda/cuda_team.cuh) is a block;
// ThreadTeam (testing/thread_team.h) is real threads, so that ThreadSanitizer finds a missing Sync.
//
// Sums have fixed lanes: element i goes to lane i % kLanes, each lane is one chain, and lanes are added in
// order. So a sum has the same bits for every team, and a serial one still vectorizes.
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

// Adds the lanes in order; every rank may call it, after a Sync that follows the writes.
template <class T>
MILL_HD T AddLanes(const T* lanes) {
  T sum = lanes[0];
  for (int i = 1; i < kLanes; ++i) sum += lanes[i];
  return sum;
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
    for (int l = 0; i < n; ++i, ++l) acc[l] += f(i);
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
