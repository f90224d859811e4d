// Running mean and variance for observation and reward normalisation, in double, merged by the parallel form
// of Chan, Golub and LeVeque ("Updating formulae and a pairwise algorithm for computing sample variances",
// 1979). Variances are of the population. Partial moments are merged in row-group order by their owner, so
// threads do not change a bit. Station: env_pool (moments), policy_runner and learner (normalisation). Views
// borrow; one writer at a time.
#pragma once

#include <cmath>

#include "kernels/core/launch.h"
#include "kernels/ops/scalar.h"

namespace millrace {

inline constexpr double kVarianceEpsilon = 1e-8;  // added to the variance, inside the root
inline constexpr double kInitialCount = 1e-4;     // weight of the initial mean 0 and variance 1

// A view of the running moments of `dims` features, as a checkpoint holds them.
struct RunningStats {
  int dims;
  double* mean;      // [dims]
  double* variance;  // [dims]
  double* count;     // [1]
};

inline void InitRunningStats(const RunningStats& s, double count0 = kInitialCount) {
  for (int d = 0; d < s.dims; ++d) {
    s.mean[d] = 0.0;
    s.variance[d] = 1.0;
  }
  *s.count = count0;
}

// Merges moments (mean_b, variance_b, count_b) into (mean, variance) of `count`; the caller adds the counts.
MILL_HD void MergeMoments(double* mean, double* variance, double count, double mean_b, double variance_b,
                          double count_b) {
  const double total = count + count_b;
  if (!(total > 0.0)) return;
  const double delta = mean_b - *mean;
  const double m2 = *variance * count + variance_b * count_b + delta * delta * (count * count_b / total);
  *mean += delta * (count_b / total);
  *variance = m2 / total;
}

inline void MergeInto(const RunningStats& s, const double* mean_b, const double* variance_b, double count_b) {
  for (int d = 0; d < s.dims; ++d) {
    MergeMoments(&s.mean[d], &s.variance[d], *s.count, mean_b[d], variance_b[d], count_b);
  }
  *s.count += count_b;
}

// Per column mean and population variance of a block of rows. Each column is one chain in row order; a tile
// is a block of columns.
struct BatchMoments {
  static constexpr int kColumns = 64;

  struct Params {
    int rows, dims;
    const float* x;  // [rows, ld]
    int ld;
    double* mean;      // [dims]
    double* variance;  // [dims]
  };
  struct Shared {
    double sum[kColumns];
    double mean[kColumns];
  };

  static int Tiles(const Params& p) { return CeilDiv(p.dims, kColumns); }

  template <class Team>
  MILL_HD void operator()(Team& team, int tile, const Params& p, Shared& s) const {
    const int first = tile * kColumns;
    const int columns = MinOf(kColumns, p.dims - first);
    const double inv = p.rows > 0 ? 1.0 / p.rows : 0.0;
    for (int c = team.rank(); c < columns; c += team.size()) s.sum[c] = 0.0;
    for (int r = 0; r < p.rows; ++r) {
      const float* x = p.x + static_cast<size_t>(r) * p.ld + first;
      MILL_SIMD
      for (int c = team.rank(); c < columns; c += team.size()) s.sum[c] += static_cast<double>(x[c]);
    }
    for (int c = team.rank(); c < columns; c += team.size()) {
      s.mean[c] = s.sum[c] * inv;
      s.sum[c] = 0.0;
    }
    for (int r = 0; r < p.rows; ++r) {
      const float* x = p.x + static_cast<size_t>(r) * p.ld + first;
      MILL_SIMD
      for (int c = team.rank(); c < columns; c += team.size()) {
        const double d = static_cast<double>(x[c]) - s.mean[c];
        s.sum[c] += d * d;
      }
    }
    for (int c = team.rank(); c < columns; c += team.size()) {
      p.mean[first + c] = s.mean[c];
      p.variance[first + c] = s.sum[c] * inv;
    }
  }
};

MILL_HD float NormalizeValue(float x, float mean, float inv_std, float clip) {
  return ClampTo((x - mean) * inv_std, -clip, clip);
}

// The float32 form that Normalize and GatherRows read: mean [dims], inv_std [dims] = 1 / sqrt(variance +
// 1e-8).
inline void NormalizerOf(const RunningStats& s, float* mean, float* inv_std) {
  for (int d = 0; d < s.dims; ++d) {
    mean[d] = static_cast<float>(s.mean[d]);
    inv_std[d] = static_cast<float>(1.0 / std::sqrt(s.variance[d] + kVarianceEpsilon));
  }
}

// y = clip((x - mean) * inv_std); NaN stays NaN. y may be x.
struct Normalize {
  static constexpr int kRows = 32;

  struct Params {
    int rows, dims;
    const float* x;  // [rows, x_ld]
    int x_ld;
    const float* mean;     // [dims]
    const float* inv_std;  // [dims]
    float clip;
    float* y;  // [rows, y_ld]
    int y_ld;
  };
  struct Shared {};

  static int Tiles(const Params& p) { return CeilDiv(p.rows, kRows); }

  template <class Team>
  MILL_HD void operator()(Team& team, int tile, const Params& p, Shared&) const {
    const int end = MinOf(p.rows, (tile + 1) * kRows);
    for (int r = tile * kRows; r < end; ++r) {
      const float* x = p.x + static_cast<size_t>(r) * p.x_ld;
      float* y = p.y + static_cast<size_t>(r) * p.y_ld;
      MILL_SIMD
      for (int d = team.rank(); d < p.dims; d += team.size()) {
        y[d] = NormalizeValue(x[d], p.mean[d], p.inv_std[d], p.clip);
      }
    }
  }
};

// Reward scaling by the deviation of the discounted return (Engstrom et al., "Implementation matters in deep
// policy gradients", 2020): each row accumulates G = gamma * G + r; the moments of G over the rows are merged
// into a RunningStats of one feature; the reward is divided by the deviation, its mean not subtracted; then G
// is cleared where an episode ended. In that order.
inline void AccumulateReturns(int rows, const double* reward, double gamma, double* discounted_return) {
  MILL_SIMD
  for (int r = 0; r < rows; ++r) discounted_return[r] = gamma * discounted_return[r] + reward[r];
}

struct ValueMoments {
  double mean, variance;
};

MILL_HD ValueMoments MomentsOfReturns(int rows, const double* discounted_return) {
  if (rows <= 0) return ValueMoments{0.0, 0.0};
  double lanes[kLanes];
  SerialTeam team;
  SumIntoLanes(team, rows, lanes, [=](int i) { return discounted_return[i]; });
  const double mean = AddLanes(lanes) / rows;
  SumIntoLanes(team, rows, lanes, [=](int i) {
    const double d = discounted_return[i] - mean;
    return d * d;
  });
  return ValueMoments{mean, AddLanes(lanes) / rows};
}

MILL_HD double ScaleReward(double reward, double variance, double clip) {
  const double y = reward / sqrt(variance + kVarianceEpsilon);
  return y < -clip ? -clip : (y > clip ? clip : y);
}

inline void ClearEndedReturns(int rows, const uint8_t* ended, double* discounted_return) {
  MILL_SIMD
  for (int r = 0; r < rows; ++r) discounted_return[r] = ended[r] != 0 ? 0.0 : discounted_return[r];
}

}  // namespace millrace
