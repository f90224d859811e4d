// The policy of SAC: a tanh-squashed Gaussian whose mean and log-deviation are both the network's, sampled
// along the reparameterised path, and the gradient of SAC's policy loss by the network's outputs (Haarnoja et
// al., "Soft actor-critic algorithms and applications", 2018, eq. 7 and 9, appendix C). Actions are on the
// box [-1, 1]. Log-deviations are clamped to [-20, 2]; beyond, their gradient is 0. Station: policy_runner,
// train_step. Any thread.
#pragma once

#include "kernels/core/launch.h"
#include "kernels/core/math.h"
#include "kernels/ops/gaussian.h"
#include "kernels/ops/philox.h"
#include "kernels/ops/scalar.h"

namespace millrace {

// action = tanh(mean + exp(log_std) * noise), and its log density on the box.
struct SampleSquashed {
  static constexpr int kRows = 128;

  struct Params {
    int rows;
    const float* out;  // [rows, ld]: means [dims], then log-deviations [dims]
    int ld;
    int dims;
    uint64_t seed;
    Purpose purpose;
    uint32_t first_row;  // the number of row 0, as in SampleGaussian
    uint64_t step;
    bool deterministic;  // tanh(mean), the noise being 0
    float* action;       // [rows, action_ld], dims of each row written
    int action_ld;
    float* log_prob;         // [rows]
    float* noise = nullptr;  // [rows, dims] standard normals, for SquashedBackward; or null
  };
  struct Shared {
    float eps[4][kRows];
    float mean[kRows], log_std[kRows], action[kRows], log_prob[kRows];
  };

  static int Tiles(const Params& p) { return CeilDiv(p.rows, kRows); }

  // A rank keeps its rows through all phases, so nothing crosses ranks.
  template <class Team>
  MILL_HD void operator()(Team& team, int tile, const Params& p, Shared& s) const {
    const int first = tile * kRows;
    const int rows = MinOf(kRows, p.rows - first);
    for (int r = team.rank(); r < rows; r += team.size()) s.log_prob[r] = 0.0f;
    for (int d = 0; d < p.dims; ++d) {
      if (d % 4 == 0) DrawNormals(team, p, first, rows, d / 4, s.eps);
      const float* out = p.out + static_cast<size_t>(first) * p.ld + d;
      for (int r = team.rank(); r < rows; r += team.size()) {
        s.mean[r] = out[static_cast<size_t>(r) * p.ld];
        s.log_std[r] = out[static_cast<size_t>(r) * p.ld + p.dims];
      }
      const float* eps = s.eps[d % 4];
      MILL_SIMD
      for (int r = team.rank(); r < rows; r += team.size()) {
        const TanhGaussianSample x = SampleTanhGaussian(s.mean[r], ClampLogStd(s.log_std[r]), eps[r]);
        s.action[r] = x.action;
        s.log_prob[r] += x.log_prob;
      }
      Store(team, p, first, rows, d, s);
    }
    for (int r = team.rank(); r < rows; r += team.size()) p.log_prob[first + r] = s.log_prob[r];
  }

 private:
  template <class Team>
  static MILL_HD void Store(Team& team, const Params& p, int first, int rows, int d, Shared& s) {
    float* action = p.action + static_cast<size_t>(first) * p.action_ld + d;
    for (int r = team.rank(); r < rows; r += team.size())
      action[static_cast<size_t>(r) * p.action_ld] = s.action[r];
    if (p.noise == nullptr) return;
    float* noise = p.noise + static_cast<size_t>(first) * p.dims + d;
    for (int r = team.rank(); r < rows; r += team.size())
      noise[static_cast<size_t>(r) * p.dims] = s.eps[d % 4][r];
  }
};

// The gradient of mean(alpha * log_prob + f(action)) by the network's outputs, where df/daction is a sum over
// critics.
struct SquashedBackward {
  static constexpr int kRows = 128;

  struct Params {
    int rows;
    const float* out;  // [rows, ld] as SampleSquashed read it
    int ld;
    int dims;
    const float* noise;   // [rows, dims]
    const float* action;  // [rows, action_ld]
    int action_ld;
    int critics;
    const float* daction;    // [critics, daction_stride]: each [rows, dims], of the mean over the batch
    size_t daction_stride;   // floats
    const float* log_alpha;  // [1]
    float inv_count;         // 1 / rows of the whole batch
    float* dout;             // [rows, ld] written
  };
  struct Shared {
    float pull[kRows], mean[kRows], log_std[kRows], noise[kRows], action[kRows];
  };

  static int Tiles(const Params& p) { return CeilDiv(p.rows, kRows); }

  // A rank keeps its rows through all phases, so nothing crosses ranks.
  template <class Team>
  MILL_HD void operator()(Team& team, int tile, const Params& p, Shared& s) const {
    const int first = tile * kRows;
    const int rows = MinOf(kRows, p.rows - first);
    const float entropy = Exp(*p.log_alpha) * p.inv_count;
    for (int d = 0; d < p.dims; ++d) {
      Load(team, p, first, rows, d, s);
      MILL_SIMD
      for (int r = team.rank(); r < rows; r += team.size()) {
        const float a = s.action[r];
        const float log_std = ClampLogStd(s.log_std[r]);
        const float offset = Exp(log_std) * s.noise[r];  // d action / d log_std, before the tanh
        const float du = s.pull[r] * Fma(-a, a, 1.0f) + entropy * (2.0f * a);
        s.mean[r] = du;
        s.log_std[r] = log_std == s.log_std[r] ? du * offset - entropy : 0.0f;
      }
      float* dout = p.dout + static_cast<size_t>(first) * p.ld + d;
      for (int r = team.rank(); r < rows; r += team.size()) {
        dout[static_cast<size_t>(r) * p.ld] = s.mean[r];
        dout[static_cast<size_t>(r) * p.ld + p.dims] = s.log_std[r];
      }
    }
  }

 private:
  template <class Team>
  static MILL_HD void Load(Team& team, const Params& p, int first, int rows, int d, Shared& s) {
    for (int r = team.rank(); r < rows; r += team.size()) {
      const size_t row = static_cast<size_t>(first + r);
      const size_t at = row * p.dims + d;
      float pull = p.daction[at];
      for (int i = 1; i < p.critics; ++i) pull += p.daction[i * p.daction_stride + at];
      s.pull[r] = pull;
      s.log_std[r] = p.out[row * p.ld + p.dims + d];
      s.noise[r] = p.noise[at];
      s.action[r] = p.action[row * p.action_ld + d];
    }
  }
};

}  // namespace millrace
