// V-trace targets (Espeholt et al., "IMPALA", 2018, eq. 1), with `lambda` as in its remark 2 and the two ends
// of an episode kept apart. With rho = min(rho_bar, pi/mu), c = lambda * min(c_bar, pi/mu):
//   delta_t   = rho_t * (r_t + gamma * V(s'_t) * [not terminated_t] - V(s_t))
//   vs_t      = V(s_t) + delta_t + gamma * c_t * (vs_{t+1} - V(s_{t+1})) * [neither terminated_t nor
//   truncated_t] pg_adv_t  = min(pg_rho_bar, pi/mu) * (r_t + gamma * next_t - V(s_t))
// where next_t is vs_{t+1}, or V(final observation) at a truncated step, or 0 at a terminated one; at the
// last step it is next_value. Nothing of the next episode leaks into this one. Station: train_step. Any
// thread.
#pragma once

#include "kernels/core/launch.h"
#include "kernels/core/math.h"
#include "kernels/ops/scalar.h"

namespace millrace {

struct Vtrace {
  static constexpr int kColumns = 128;

  struct Params {
    int T, N;
    const float* log_rho;       // [T, N] log pi(a|s) - log mu(a|s)
    const float* reward;        // [T, N]
    const float* value;         // [T, N]
    const float* next_value;    // [T, N] as in Gae
    const uint8_t* terminated;  // [T, N]
    const uint8_t* truncated;   // [T, N]
    float gamma, lambda, rho_bar, c_bar, pg_rho_bar;
    float* vs;            // [T, N]
    float* pg_advantage;  // [T, N]
  };
  struct Shared {
    float correction[kColumns];  // vs_{t+1} - V(s_{t+1})
    float next_vs[kColumns];     // vs_{t+1}
  };

  static int Tiles(const Params& p) { return CeilDiv(p.N, kColumns); }

  template <class Team>
  MILL_HD void operator()(Team& team, int tile, const Params& p, Shared& s) const {
    const int first = tile * kColumns;
    const int columns = MinOf(kColumns, p.N - first);
    for (int c = team.rank(); c < columns; c += team.size()) {
      s.correction[c] = 0.0f;
      s.next_vs[c] = p.next_value[static_cast<size_t>(p.T - 1) * p.N + first + c];
    }
    for (int t = p.T - 1; t >= 0; --t) {
      const size_t at = static_cast<size_t>(t) * p.N + first;
      const float* log_rho = p.log_rho + at;
      const float* reward = p.reward + at;
      const float* value = p.value + at;
      const float* next_value = p.next_value + at;
      const uint8_t* terminated = p.terminated + at;
      const uint8_t* truncated = p.truncated + at;
      float* vs = p.vs + at;
      float* pg_advantage = p.pg_advantage + at;
      MILL_SIMD
      for (int c = team.rank(); c < columns; c += team.size()) {
        const int term = terminated[c];
        const int ended = term | truncated[c];
        const float weight = Exp(log_rho[c]);
        const float bootstrap = term != 0 ? 0.0f : next_value[c];
        const float delta = MinOf(p.rho_bar, weight) * (reward[c] + p.gamma * bootstrap - value[c]);
        const float trace = p.gamma * p.lambda * MinOf(p.c_bar, weight);
        const float correction = delta + (ended != 0 ? 0.0f : trace * s.correction[c]);
        const float next = ended != 0 ? bootstrap : s.next_vs[c];
        pg_advantage[c] = MinOf(p.pg_rho_bar, weight) * (reward[c] + p.gamma * next - value[c]);
        s.correction[c] = correction;
        s.next_vs[c] = value[c] + correction;
        vs[c] = value[c] + correction;
      }
    }
  }
};

}  // namespace millrace
