// Diagonal Gaussian actions with a state-independent log-deviation, and the tanh-squashed Gaussian's log-prob
// in its stable form. Log-probs and entropies are sums over dimensions. Station: policy_runner, train_step.
// Any thread.
#pragma once

#include "kernels/core/launch.h"
#include "kernels/core/math.h"
#include "kernels/ops/philox.h"
#include "kernels/ops/scalar.h"

namespace millrace {

inline constexpr float kHalfLogTwoPi = 0.918938533204672742f;  // log(2 pi) / 2
inline constexpr float kLogTwo = 0.693147180559945309f;

// exp of a float32 is exactly 0 below -104, so deviations are kept inside what arithmetic bears.
inline constexpr float kLogStdMin = -20.0f;
inline constexpr float kLogStdMax = 2.0f;
MILL_HD float ClampLogStd(float log_std) {
  return ClampTo(log_std, kLogStdMin, kLogStdMax);
}

// A network's raw output squeezed smoothly into [lo, hi].
MILL_HD float SqueezeLogStd(float raw, float lo, float hi) {
  return lo + 0.5f * (hi - lo) * (Tanh(raw) + 1.0f);
}

// One dimension's log density at z deviations from the mean, and its entropy.
MILL_HD float GaussianLogProb(float z, float log_std) {
  return -0.5f * z * z - log_std - kHalfLogTwoPi;
}
MILL_HD float GaussianEntropy(float log_std) {
  return log_std + 0.5f + kHalfLogTwoPi;
}

// KL(N(mean_a, std_a) || N(mean_b, std_b)) of one dimension.
MILL_HD float GaussianKl(float mean_a, float log_std_a, float mean_b, float log_std_b) {
  const float ratio = Exp(log_std_a - log_std_b);
  const float gap = (mean_a - mean_b) * Exp(-log_std_b);
  return log_std_b - log_std_a + 0.5f * (ratio * ratio + gap * gap - 1.0f);
}

struct NormalPair {
  float a, b;
};

// Two independent standard normals from two random words (Box and Muller, 1958). The radius' uniform is in
// (0, 1], so no normal exceeds 5.8.
MILL_HD NormalPair BoxMuller(uint32_t radius_word, uint32_t angle_word) {
  const float u = static_cast<float>((radius_word >> 8) + 1u) * 0x1p-24f;
  const float radius = Sqrt(-2.0f * Log(u));
  const SinCos angle = SinCos2Pi(UniformFloat(angle_word));
  return NormalPair{radius * angle.cos, radius * angle.sin};
}

// Standard normals of four dimensions, of the generator's block `block`, into eps[dimension][row]; zeros
// where the action is the mean. p: what both ways of drawing actions have, seed, purpose, step, first_row and
// deterministic; `first` is the tile's first row in it. A rank fills its own rows.
template <class Team, class Params, int kRows>
MILL_HD void DrawNormals(Team& team, const Params& p, int first, int rows, int block,
                         float (&eps)[4][kRows]) {
  if (p.deterministic) {
    for (int r = team.rank(); r < rows; r += team.size()) {
      eps[0][r] = eps[1][r] = eps[2][r] = eps[3][r] = 0.0f;
    }
    return;
  }
  MILL_SIMD
  for (int r = team.rank(); r < rows; r += team.size()) {
    const Philox4 w = PhiloxAt(p.seed, p.purpose, p.first_row + static_cast<uint32_t>(first + r), p.step,
                               static_cast<uint32_t>(block));
    const NormalPair x = BoxMuller(w.v[0], w.v[1]);
    const NormalPair y = BoxMuller(w.v[2], w.v[3]);
    eps[0][r] = x.a;
    eps[1][r] = x.b;
    eps[2][r] = y.a;
    eps[3][r] = y.b;
  }
}

// action = mean + exp(log_std) * eps. The log-prob is that of the action as stored, after its rounding, so
// that the loss finds a ratio of 1 at the first update.
struct SampleGaussian {
  static constexpr int kRows = 128;

  struct Params {
    int rows;
    const float* mean;  // [rows, ld]
    int ld;
    const float* log_std;  // [dims], clamped to [-20, 2] on the way
    int dims;
    uint64_t seed;
    Purpose purpose;
    uint32_t first_row;  // the global row of row 0, as in SampleCategorical
    uint64_t step;
    bool deterministic;        // the mean
    float* action;             // [rows, dims], not clipped to the action space
    float* log_prob;           // [rows]
    float* entropy = nullptr;  // [rows] or null
  };
  struct Shared {
    float eps[4][kRows];
    float log_prob[kRows];
  };

  static int Tiles(const Params& p) { return CeilDiv(p.rows, kRows); }

  // A rank keeps its rows through all phases, so nothing crosses ranks.
  template <class Team>
  MILL_HD void operator()(Team& team, int tile, const Params& p, Shared& s) const {
    const int first = tile * kRows;
    const int rows = MinOf(kRows, p.rows - first);
    float entropy = 0.0f;
    for (int r = team.rank(); r < rows; r += team.size()) s.log_prob[r] = 0.0f;
    for (int d = 0; d < p.dims; ++d) {
      if (d % 4 == 0) DrawNormals(team, p, first, rows, d / 4, s.eps);
      const float log_std = ClampLogStd(p.log_std[d]);
      const float std = Exp(log_std);
      const float inv_std = Exp(-log_std);
      const float* eps = s.eps[d % 4];
      const float* mean = p.mean + static_cast<size_t>(first) * p.ld + d;
      float* action = p.action + static_cast<size_t>(first) * p.dims + d;
      entropy += GaussianEntropy(log_std);
      MILL_SIMD
      for (int r = team.rank(); r < rows; r += team.size()) {
        const float m = mean[static_cast<size_t>(r) * p.ld];
        const float a = m + std * eps[r];
        action[static_cast<size_t>(r) * p.dims] = a;
        s.log_prob[r] += GaussianLogProb((a - m) * inv_std, log_std);
      }
    }
    for (int r = team.rank(); r < rows; r += team.size()) p.log_prob[first + r] = s.log_prob[r];
    if (p.entropy != nullptr) {
      for (int r = team.rank(); r < rows; r += team.size()) p.entropy[first + r] = entropy;
    }
  }
};

// a = tanh(u), u = mean + exp(log_std) * eps: one dimension's action, its log-prob on the unit box, and the
// log-prob's gradients along the reparameterised path. The change of variables is written as
//   log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)),
// for 1 - a^2 is exactly 0 in float32 from |u| of about 9 (Haarnoja et al., "Soft actor-critic", 2018,
// appendix C).
struct TanhGaussianSample {
  float pre_tanh, action, log_prob, dlog_prob_dmean, dlog_prob_dlog_std;
};

MILL_HD float TanhLogDet(float u) {
  return 2.0f * (kLogTwo - u - Softplus(-2.0f * u));
}

MILL_HD TanhGaussianSample SampleTanhGaussian(float mean, float log_std, float eps) {
  const float offset = Exp(log_std) * eps;
  const float u = mean + offset;
  const float a = Tanh(u);
  return TanhGaussianSample{u, a, GaussianLogProb(eps, log_std) - TanhLogDet(u), 2.0f * a,
                            2.0f * a * offset - 1.0f};
}

}  // namespace millrace
