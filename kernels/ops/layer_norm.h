// Layer normalisation (Ba et al., 2016) over the last dimension, forward and backward, eps 1e-5 inside the
// root:
//   y = (x - mean) * rstd * gamma + beta
// The gradients of gamma and beta are an op of their own, over blocks of columns, added in row order.
// Station: policy_runner, train_step. Any thread.
#pragma once

#include "kernels/core/launch.h"
#include "kernels/ops/scalar.h"

namespace millrace {

inline constexpr float kLayerNormEpsilon = 1e-5f;
inline constexpr int kLayerNormRows = 16;  // rows of a tile

struct LayerNorm {
  struct Params {
    int rows, dims;
    const float* x;  // [rows, ld]
    int ld;
    const float* gamma;  // [dims]
    const float* beta;   // [dims]
    float* y;            // [rows, y_ld]; may be x
    int y_ld;
    float* mean;  // [rows] or null; the backward pass needs them
    float* rstd;  // [rows] or null
  };
  struct Shared {
    float lanes[2][kLanes];
  };

  static int Tiles(const Params& p) { return CeilDiv(p.rows, kLayerNormRows); }

  template <class Team>
  MILL_HD void operator()(Team& team, int tile, const Params& p, Shared& s) const {
    const int end = MinOf(p.rows, (tile + 1) * kLayerNormRows);
    const float inv = 1.0f / static_cast<float>(p.dims);
    for (int r = tile * kLayerNormRows; r < end; ++r) {
      const float* x = p.x + static_cast<size_t>(r) * p.ld;
      float* y = p.y + static_cast<size_t>(r) * p.y_ld;
      SumIntoLanes(team, p.dims, s.lanes[0], [x](int d) { return x[d]; });
      team.Sync();
      const float mean = AddLanes(s.lanes[0]) * inv;
      SumIntoLanes(team, p.dims, s.lanes[1], [x, mean](int d) { return (x[d] - mean) * (x[d] - mean); });
      team.Sync();
      const float rstd = 1.0f / Sqrt(AddLanes(s.lanes[1]) * inv + kLayerNormEpsilon);
      MILL_SIMD
      for (int d = team.rank(); d < p.dims; d += team.size())
        y[d] = (x[d] - mean) * rstd * p.gamma[d] + p.beta[d];
      if (team.rank() == 0 && p.mean != nullptr) p.mean[r] = mean;
      if (team.rank() == 0 && p.rstd != nullptr) p.rstd[r] = rstd;
    }
  }
};

// dx of LayerNorm. With x^ = (x - mean) * rstd and h = dy * gamma: dx = rstd * (h - mean(h) - x^ * mean(h *
// x^)).
struct LayerNormBackward {
  struct Params {
    int rows, dims;
    const float* x;  // [rows, ld] the forward pass's input
    int ld;
    const float* gamma;  // [dims]
    const float* mean;   // [rows]
    const float* rstd;   // [rows]
    const float* dy;     // [rows, dy_ld]
    int dy_ld;
    float* dx;  // [rows, dx_ld] written; may be dy
    int dx_ld;
  };
  struct Shared {
    float lanes[2][kLanes];
  };

  static int Tiles(const Params& p) { return CeilDiv(p.rows, kLayerNormRows); }

  template <class Team>
  MILL_HD void operator()(Team& team, int tile, const Params& p, Shared& s) const {
    const int end = MinOf(p.rows, (tile + 1) * kLayerNormRows);
    const float inv = 1.0f / static_cast<float>(p.dims);
    const float* gamma = p.gamma;
    for (int r = tile * kLayerNormRows; r < end; ++r) {
      const float* x = p.x + static_cast<size_t>(r) * p.ld;
      const float* dy = p.dy + static_cast<size_t>(r) * p.dy_ld;
      float* dx = p.dx + static_cast<size_t>(r) * p.dx_ld;
      const float mean = p.mean[r];
      const float rstd = p.rstd[r];
      SumIntoLanes(team, p.dims, s.lanes[0], [=](int d) { return dy[d] * gamma[d]; });
      SumIntoLanes(team, p.dims, s.lanes[1],
                   [=](int d) { return dy[d] * gamma[d] * ((x[d] - mean) * rstd); });
      team.Sync();
      const float h_mean = AddLanes(s.lanes[0]) * inv;
      const float hx_mean = AddLanes(s.lanes[1]) * inv;
      MILL_SIMD
      for (int d = team.rank(); d < p.dims; d += team.size()) {
        dx[d] = rstd * (dy[d] * gamma[d] - h_mean - (x[d] - mean) * rstd * hx_mean);
      }
      team.Sync();
    }
  }
};

// dgamma += sum over rows of dy * x^, dbeta += sum over rows of dy; each column is one chain in row order.
struct LayerNormParamGrad {
  static constexpr int kColumns = 64;

  struct Params {
    int rows, dims;
    const float* x;  // [rows, ld]
    int ld;
    const float* mean;  // [rows]
    const float* rstd;  // [rows]
    const float* dy;    // [rows, dy_ld]
    int dy_ld;
    float* dgamma;  // [dims] added to
    float* dbeta;   // [dims] added to
  };
  struct Shared {
    float dgamma[kColumns], dbeta[kColumns];
  };

  static int Tiles(const Params& p) { return CeilDiv(p.dims, kColumns); }

  template <class Team>
  MILL_HD void operator()(Team& team, int tile, const Params& p, Shared& s) const {
    const int first = tile * kColumns;
    const int columns = MinOf(kColumns, p.dims - first);
    for (int c = team.rank(); c < columns; c += team.size()) s.dgamma[c] = s.dbeta[c] = 0.0f;
    for (int r = 0; r < p.rows; ++r) {
      const float* x = p.x + static_cast<size_t>(r) * p.ld + first;
      const float* dy = p.dy + static_cast<size_t>(r) * p.dy_ld + first;
      const float mean = p.mean[r];
      const float rstd = p.rstd[r];
      MILL_SIMD
      for (int c = team.rank(); c < columns; c += team.size()) {
        s.dgamma[c] += dy[c] * ((x[c] - mean) * rstd);
        s.dbeta[c] += dy[c];
      }
    }
    for (int c = team.rank(); c < columns; c += team.size()) {
      p.dgamma[first + c] += s.dgamma[c];
      p.dbeta[first + c] += s.dbeta[c];
    }
  }
};

}  // namespace millrace
