// The shards' gradient buffers become one: summed in shard order, so that the bits do not depend on who
// computed which shard, and cleared for the next minibatch in the same pass. With it each chunk's sum of
// squares, from which the global norm and the clip scale follow. Station: optimizer. A chunk may run on any
// thread.
#pragma once

#include "kernels/core/launch.h"
#include "kernels/ops/scalar.h"

namespace millrace {

struct GradReduce {
  static constexpr int kChunk =
      4096;  // floats of the flat buffer in one tile; part of the bits, not a setting

  struct Params {
    int n;
    int shards;
    float* shard_gradients;  // [shards, shard_stride] read, then zeroed
    size_t shard_stride;     // floats from one shard's buffer to the next, at least n
    float* gradients;        // [n] written; apart from the shards' buffers
    double* chunk_squares;   // [Chunks(n)] written: the chunk's sum of squares
  };
  // Squares are taken in float32, at most kChunk / kLanes of them in a chain: a gradient beyond 1.8e19
  // makes the norm infinite, and the step is skipped like any that is not finite.
  struct Shared {
    float lanes[kLanes];
  };

  static int Chunks(int n) { return CeilDiv(n, kChunk); }
  static int Tiles(const Params& p) { return Chunks(p.n); }

  template <class Team>
  MILL_HD void operator()(Team& team, int tile, const Params& p, Shared& s) const {
    const int first = tile * kChunk;
    const int n = MinOf(kChunk, p.n - first);
    float* grad = p.gradients + first;
    if (p.shards == 1) {
      Move(team, n, p.shard_gradients + first, grad);
    } else {
      Add(team, n, p.shard_gradients + first, p.shard_gradients + p.shard_stride + first, grad);
    }
    for (int shard = 2; shard < p.shards; ++shard) {
      Add(team, n, grad, p.shard_gradients + shard * p.shard_stride + first, grad);
    }
    team.Sync();
    SumIntoLanes(team, n, s.lanes, [grad](int i) { return grad[i] * grad[i]; });
    team.Sync();
    if (team.rank() == 0) p.chunk_squares[tile] = static_cast<double>(AddLanes(s.lanes));
    team.Sync();
  }

 private:
  template <class Team>
  static MILL_HD void Move(Team& team, int n, float* from, float* to) {
    MILL_SIMD
    for (int i = team.rank(); i < n; i += team.size()) {
      to[i] = from[i];
      from[i] = 0.0f;
    }
  }
  // to = a + b, and both sources but `to` are cleared. A rank keeps its elements.
  template <class Team>
  static MILL_HD void Add(Team& team, int n, float* a, float* b, float* to) {
    MILL_SIMD
    for (int i = team.rank(); i < n; i += team.size()) {
      const float sum = a[i] + b[i];
      a[i] = 0.0f;
      b[i] = 0.0f;
      to[i] = sum;
    }
  }
};

// Clipping by the global norm: every gradient times min(1, max_norm / (norm + 1e-6)); max_norm 0 or less: no
// clipping. Where the norm is not finite the step must be skipped, whatever the scale (which is then 0).
MILL_HD float ClipScale(double norm_squared, double max_norm) {
  if (!(norm_squared <= 1.7976931348623157e308)) return 0.0f;
  if (!(max_norm > 0.0)) return 1.0f;
  const double scale = max_norm / (sqrt(norm_squared) + 1e-6);
  return scale < 1.0 ? static_cast<float>(scale) : 1.0f;
}

}  // namespace millrace
