// Generalised advantage estimation (Schulman et al., "High-dimensional continuous control using generalized
// advantage estimation", 2016, eq. 16), with the two ends of an episode kept apart:
//   delta_t = r_t + gamma * V(s'_t) * [not terminated_t] - V(s_t)
//   A_t     = delta_t + gamma * lambda * A_{t+1} * [neither terminated_t nor truncated_t]
// Time-major; columns are independent, so a tile is a block of columns and the inner loop runs over them.
// Station: train_step. Pure function of its parameters; any thread.
#pragma once

#include "kernels/core/launch.h"
#include "kernels/ops/scalar.h"

namespace millrace {

struct Gae {
  static constexpr int kColumns = 128;

  struct Params {
    int T, N;
    const float* reward;  // [T, N]
    const float* value;   // [T, N] V(s_t)
    const float*
        next_value;  // [T, N] V of the true next observation: the final one where an episode was truncated;
                     //        at a terminated step it is not used, whatever it holds
    const uint8_t* terminated;  // [T, N] 0 or 1
    const uint8_t* truncated;   // [T, N] 0 or 1
    float gamma, lambda;
    float* advantage;  // [T, N]
    float* ret;        // [T, N] advantage + value
  };
  struct Shared {
    float carry[kColumns];  // A_{t+1}, cut at the end of an episode
  };

  static int Tiles(const Params& p) { return CeilDiv(p.N, kColumns); }

  template <class Team>
  MILL_HD void operator()(Team& team, int tile, const Params& p, Shared& s) const {
    const int first = tile * kColumns;
    const int columns = MinOf(kColumns, p.N - first);
    const float decay = p.gamma * p.lambda;
    for (int c = team.rank(); c < columns; c += team.size()) s.carry[c] = 0.0f;
    for (int t = p.T - 1; t >= 0; --t) {
      const size_t at = static_cast<size_t>(t) * p.N + first;
      const float* reward = p.reward + at;
      const float* value = p.value + at;
      const float* next_value = p.next_value + at;
      const uint8_t* terminated = p.terminated + at;
      const uint8_t* truncated = p.truncated + at;
      float* advantage = p.advantage + at;
      float* ret = p.ret + at;
      MILL_SIMD
      for (int c = team.rank(); c < columns; c += team.size()) {
        const int term = terminated[c];
        const int ended = term | truncated[c];
        const float next = term != 0 ? 0.0f : next_value[c];
        const float delta = reward[c] + p.gamma * next - value[c];
        const float a = delta + decay * (ended != 0 ? 0.0f : s.carry[c]);
        s.carry[c] = a;
        advantage[c] = a;
        ret[c] = a + value[c];
      }
    }
  }
};

}  // namespace millrace
