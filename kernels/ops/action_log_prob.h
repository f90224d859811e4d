// The log-prob of given actions under a policy's outputs: what importance weights are made of. Discrete and
// MultiDiscrete (heads of logits, optional mask) or a Box (diagonal Gaussian of state-independent deviation),
// as in PpoLoss; a sum over heads or dimensions. An action that is masked or out of range has kMaskedLogit
// for its logit, so its ratio to anything is 0. Station: train_step. Any thread.
#pragma once

#include "kernels/core/launch.h"
#include "kernels/core/math.h"
#include "kernels/ops/categorical.h"
#include "kernels/ops/gaussian.h"
#include "kernels/ops/scalar.h"

namespace millrace {

struct ActionLogProb {
  static constexpr int kRows = 128;

  struct Params {
    int rows;
    const float* logits;  // [rows, ld]: logits of all heads, or a Box's means
    int ld;
    const uint8_t* mask;   // [rows, sum of nvec] 1 = allowed, or null; discrete only
    int heads;             // action components: heads of logits, or a Box's dimensions
    const int32_t* nvec;   // [heads] logits of each head; discrete only
    const float* log_std;  // [heads] for a Box, null for discrete actions
    const void* action;    // [rows, heads] i32, or f32 for a Box
    float* log_prob;       // [rows] written
  };
  struct Shared {
    float log_prob[kRows], max[kRows], sum[kRows], chosen[kRows];
    int32_t action[kRows];
  };

  static int Tiles(const Params& p) { return CeilDiv(p.rows, kRows); }

  // A rank keeps its rows through all phases, so nothing crosses ranks.
  template <class Team>
  MILL_HD void operator()(Team& team, int tile, const Params& p, Shared& s) const {
    const int first = tile * kRows;
    const int rows = MinOf(kRows, p.rows - first);
    for (int r = team.rank(); r < rows; r += team.size()) s.log_prob[r] = 0.0f;
    if (p.log_std != nullptr) {
      Gaussian(team, p, first, rows, s);
    } else {
      int width = 0;
      for (int h = 0; h < p.heads; ++h) width += p.nvec[h];
      for (int h = 0, offset = 0; h < p.heads; offset += p.nvec[h], ++h) {
        Head(team, p, h, width, offset, first, rows, s);
      }
    }
    for (int r = team.rank(); r < rows; r += team.size()) p.log_prob[first + r] = s.log_prob[r];
  }

 private:
  // Loops run over rows, and a logit is read twice rather than kept: heads of any size need the same scratch.
  template <class Team>
  static MILL_HD void Head(Team& team, const Params& p, int head, int width, int offset, int first, int rows,
                           Shared& s) {
    const float* logits = p.logits + static_cast<size_t>(first) * p.ld + offset;
    const uint8_t* mask = p.mask == nullptr ? nullptr : p.mask + static_cast<size_t>(first) * width + offset;
    const int32_t* action =
        static_cast<const int32_t*>(p.action) + static_cast<size_t>(first) * p.heads + head;
    const auto logit = [&](int r, int l) {
      const float x = logits[static_cast<size_t>(r) * p.ld + l];
      return mask == nullptr || mask[static_cast<size_t>(r) * width + l] != 0 ? x : kMaskedLogit;
    };
    for (int r = team.rank(); r < rows; r += team.size()) {
      s.action[r] = action[static_cast<size_t>(r) * p.heads];
      s.max[r] = s.chosen[r] = kMaskedLogit;
      s.sum[r] = 0.0f;
    }
    for (int l = 0; l < p.nvec[head]; ++l) {
      for (int r = team.rank(); r < rows; r += team.size()) s.max[r] = MaxOf(logit(r, l), s.max[r]);
    }
    for (int l = 0; l < p.nvec[head]; ++l) {
      MILL_SIMD
      for (int r = team.rank(); r < rows; r += team.size()) {
        const float x = logit(r, l);
        const bool masked = IsMasked(x);
        const float t = masked ? 0.0f : x - s.max[r];
        const float e = Exp(t);
        s.sum[r] += masked ? 0.0f : e;
        const float mine = s.action[r] == l ? t : s.chosen[r];
        s.chosen[r] = masked ? s.chosen[r] : mine;
      }
    }
    MILL_SIMD
    for (int r = team.rank(); r < rows; r += team.size()) s.log_prob[r] += s.chosen[r] - Log(s.sum[r]);
  }

  template <class Team>
  static MILL_HD void Gaussian(Team& team, const Params& p, int first, int rows, Shared& s) {
    for (int d = 0; d < p.heads; ++d) {
      const float log_std = ClampLogStd(p.log_std[d]);
      const float inv_std = Exp(-log_std);
      const float* action = static_cast<const float*>(p.action) + static_cast<size_t>(first) * p.heads + d;
      const float* mean = p.logits + static_cast<size_t>(first) * p.ld + d;
      MILL_SIMD
      for (int r = team.rank(); r < rows; r += team.size()) {
        const float z =
            (action[static_cast<size_t>(r) * p.heads] - mean[static_cast<size_t>(r) * p.ld]) * inv_std;
        s.log_prob[r] += GaussianLogProb(z, log_std);
      }
    }
  }
};

}  // namespace millrace
