// Categorical actions: one head is Discrete, more are MultiDiscrete. Sampling by the inverse of the
// distribution function over exp(logit - max), so the sum needs no division; log-prob and entropy are sums
// over heads. A masked action has probability exactly 0, is never sampled and adds exactly 0 to the entropy.
//
// Contract: a head has at least one allowed action and its logits are finite. Where not, an action in range
// still comes out, and the log-prob is not finite, which the caller's check of log-probs finds. Station:
// policy_runner. Any thread.
#pragma once

#include "kernels/core/launch.h"
#include "kernels/core/math.h"
#include "kernels/ops/philox.h"
#include "kernels/ops/scalar.h"

namespace millrace {

// Stands for a masked logit; below it there is only -inf.
inline constexpr float kMaskedLogit = -3.402823466e38f;
MILL_HD bool IsMasked(float logit) {
  return logit == kMaskedLogit;
}
// Some of one row's logits, the masked ones replaced. The mask is looked for outside of the loop, which so
// vectorizes.
MILL_HD void CopyLogits(const float* logits, const uint8_t* mask, int n, float* out) {
  if (mask == nullptr) {
    for (int l = 0; l < n; ++l) out[l] = logits[l];
  } else {
    MILL_SIMD
    for (int l = 0; l < n; ++l) {
      const float x = logits[l];
      out[l] = mask[l] != 0 ? x : kMaskedLogit;
    }
  }
}

// x[l] = exp(x[l] - max), 0 where masked.
MILL_HD void WeighLogits(float max, int n, float* x) {
  MILL_SIMD
  for (int l = 0; l < n; ++l) {
    const float e = Exp(x[l] - max);
    x[l] = IsMasked(x[l]) ? 0.0f : e;
  }
}

MILL_HD float MaxOfLogits(const float* x, int n) {
  constexpr int kWidth = 8;
  float lanes[kWidth];
  for (int i = 0; i < kWidth; ++i) lanes[i] = x[0];
  for (int l = 0; l + kWidth <= n; l += kWidth) {
    for (int i = 0; i < kWidth; ++i) lanes[i] = MaxOf(x[l + i], lanes[i]);
  }
  for (int l = n - n % kWidth; l < n; ++l) lanes[0] = MaxOf(x[l], lanes[0]);
  for (int i = 1; i < kWidth; ++i) lanes[0] = MaxOf(lanes[i], lanes[0]);
  return lanes[0];
}

// What one head's logits come to. log p(l) = logit(l) - max - log_sum.
struct HeadSummary {
  float max, log_sum, inv_sum, entropy;
};

// One row's head of any size; weight[l] = exp(logit - max), 0 where masked.
MILL_HD HeadSummary SummariseHead(const float* logits, const uint8_t* mask, int n, float* weight) {
  SerialTeam row;
  float lanes[kLanes];
  HeadSummary h;
  CopyLogits(logits, mask, n, weight);
  h.max = MaxOfLogits(weight, n);
  WeighLogits(h.max, n, weight);
  SumIntoLanes(row, n, lanes, [=](int l) { return weight[l]; });
  const float sum = AddLanes(lanes);
  SumIntoLanes(row, n, lanes, [=](int l) {
    const float term = weight[l] * (logits[l] - h.max);
    return weight[l] > 0.0f ? term : 0.0f;
  });
  h.log_sum = Log(sum);
  h.inv_sum = 1.0f / sum;
  h.entropy = h.log_sum - AddLanes(lanes) * h.inv_sum;
  return h;
}

struct SampleCategorical {
  static constexpr int kRows = 128;     // rows of a tile
  static constexpr int kWideHead = 32;  // larger heads are sampled row by row

  struct Params {
    int rows;
    const float* logits;  // [rows, ld]
    int ld;
    const uint8_t* mask;  // [rows, sum of nvec] 1 = allowed, or null
    int heads;
    const int32_t* nvec;  // [heads]
    uint64_t seed;
    Purpose purpose;
    uint32_t first_row;  // the global row of row 0: the random word is that of (seed, purpose, first_row +
                         // row, step)
    uint64_t step;
    bool deterministic;        // the likeliest action, the lowest of equals
    int32_t* action;           // [rows, heads]
    float* log_prob;           // [rows]
    float* entropy = nullptr;  // [rows] or null
  };
  struct Shared {
    float weight[kWideHead][kRows];  // first the logit, then exp(logit - max)
    float uniform[4][kRows];
    float max[kRows], sum[kRows], dot[kRows], log_prob[kRows], entropy[kRows];
    int32_t argmax[kRows], action[kRows];
  };

  static int Tiles(const Params& p) { return CeilDiv(p.rows, kRows); }

  // A rank keeps its rows through all phases, so nothing crosses ranks.
  template <class Team>
  MILL_HD void operator()(Team& team, int tile, const Params& p, Shared& s) const {
    const int first = tile * kRows;
    const int rows = MinOf(kRows, p.rows - first);
    int width = 0;
    for (int h = 0; h < p.heads; ++h) width += p.nvec[h];
    for (int r = team.rank(); r < rows; r += team.size()) s.log_prob[r] = s.entropy[r] = 0.0f;

    for (int h = 0, offset = 0; h < p.heads; offset += p.nvec[h], ++h) {
      if (h % 4 == 0 && !p.deterministic) DrawUniforms(team, p, first, rows, h / 4, s);
      const float* logits = p.logits + static_cast<size_t>(first) * p.ld + offset;
      const uint8_t* mask =
          p.mask == nullptr ? nullptr : p.mask + static_cast<size_t>(first) * width + offset;
      if (p.nvec[h] <= kWideHead) {
        Weigh(team, p, logits, mask, width, rows, p.nvec[h], s);
        Choose(team, p, rows, p.nvec[h], s.uniform[h % 4], s);
        Score(team, p, logits, rows, s);
      } else {
        WideHead(team, p, logits, mask, width, rows, p.nvec[h], s.uniform[h % 4], s);
      }
      for (int r = team.rank(); r < rows; r += team.size()) {
        p.action[static_cast<size_t>(first + r) * p.heads + h] = s.action[r];
      }
    }
    for (int r = team.rank(); r < rows; r += team.size()) p.log_prob[first + r] = s.log_prob[r];
    if (p.entropy != nullptr) {
      for (int r = team.rank(); r < rows; r += team.size()) p.entropy[first + r] = s.entropy[r];
    }
  }

 private:
  template <class Team>
  static MILL_HD void DrawUniforms(Team& team, const Params& p, int first, int rows, int block, Shared& s) {
    MILL_SIMD
    for (int r = team.rank(); r < rows; r += team.size()) {
      const Philox4 words = PhiloxAt(p.seed, p.purpose, p.first_row + static_cast<uint32_t>(first + r),
                                     p.step, static_cast<uint32_t>(block));
      s.uniform[0][r] = UniformFloat(words.v[0]);
      s.uniform[1][r] = UniformFloat(words.v[1]);
      s.uniform[2][r] = UniformFloat(words.v[2]);
      s.uniform[3][r] = UniformFloat(words.v[3]);
    }
  }

  // weight, max, argmax, sum and dot of a narrow head, turned so that loops run over rows.
  template <class Team>
  static MILL_HD void Weigh(Team& team, const Params& p, const float* logits, const uint8_t* mask, int width,
                            int rows, int n, Shared& s) {
    for (int l = 0; l < n; ++l) {
      for (int r = team.rank(); r < rows; r += team.size()) {
        const float x = logits[static_cast<size_t>(r) * p.ld + l];
        s.weight[l][r] = mask == nullptr || mask[static_cast<size_t>(r) * width + l] != 0 ? x : kMaskedLogit;
      }
    }
    for (int r = team.rank(); r < rows; r += team.size()) {
      s.max[r] = s.weight[0][r];
      s.argmax[r] = 0;
      s.sum[r] = s.dot[r] = 0.0f;
    }
    for (int l = 1; l < n; ++l) {
      MILL_SIMD
      for (int r = team.rank(); r < rows; r += team.size()) {
        const float x = s.weight[l][r];
        s.argmax[r] = x > s.max[r] ? l : s.argmax[r];
        s.max[r] = x > s.max[r] ? x : s.max[r];
      }
    }
    for (int l = 0; l < n; ++l) {
      MILL_SIMD
      for (int r = team.rank(); r < rows; r += team.size()) {
        const float x = s.weight[l][r];
        const float t = IsMasked(x) ? 0.0f : x - s.max[r];
        const float e = Exp(t);
        const float w = IsMasked(x) ? 0.0f : e;
        s.weight[l][r] = w;
        s.sum[r] += w;
        s.dot[r] += w * t;
      }
    }
  }

  // The first action whose cumulative weight exceeds uniform * sum. The uniform is below 1 by 2^-24 at least,
  // so the product is below the sum; a masked action adds nothing and cannot be the first. NaN leaves the
  // argmax.
  template <class Team>
  static MILL_HD void Choose(Team& team, const Params& p, int rows, int n, const float* uniform, Shared& s) {
    for (int r = team.rank(); r < rows; r += team.size()) s.action[r] = s.argmax[r];
    if (p.deterministic) return;
    // From the last action down, the cumulative sums being found on the way up.
    for (int l = 1; l < n; ++l) {
      MILL_SIMD
      for (int r = team.rank(); r < rows; r += team.size()) s.weight[l][r] += s.weight[l - 1][r];
    }
    for (int l = n - 1; l >= 0; --l) {
      MILL_SIMD
      for (int r = team.rank(); r < rows; r += team.size()) {
        s.action[r] = s.weight[l][r] > uniform[r] * s.sum[r] ? l : s.action[r];
      }
    }
  }

  template <class Team>
  static MILL_HD void Score(Team& team, const Params& p, const float* logits, int rows, Shared& s) {
    for (int r = team.rank(); r < rows; r += team.size()) {
      s.max[r] = logits[static_cast<size_t>(r) * p.ld + s.action[r]] - s.max[r];  // the chosen logit, shifted
    }
    MILL_SIMD
    for (int r = team.rank(); r < rows; r += team.size()) {
      const float log_sum = Log(s.sum[r]);
      s.log_prob[r] += s.max[r] - log_sum;  // in PpoLoss's order, so that the first ratio of an update is 1
      s.entropy[r] += log_sum - s.dot[r] / s.sum[r];
    }
  }

  // A head too large to turn: its weights are found again in the next walk instead of being kept.
  template <class Team>
  static MILL_HD void WideHead(Team& team, const Params& p, const float* logits, const uint8_t* mask,
                               int width, int rows, int n, const float* uniform, Shared& s) {
    for (int r = team.rank(); r < rows; r += team.size()) {
      const float* x = logits + static_cast<size_t>(r) * p.ld;
      const uint8_t* allowed = mask == nullptr ? nullptr : mask + static_cast<size_t>(r) * width;
      float max = kMaskedLogit, sum = 0.0f, dot = 0.0f;
      int chosen = 0;
      WalkBlocks(x, allowed, n, [&](int base, int count, float* block) {
        for (int i = 0; i < count; ++i) {
          chosen = block[i] > max ? base + i : chosen;
          max = block[i] > max ? block[i] : max;
        }
        return false;
      });
      WalkBlocks(x, allowed, n, [&](int base, int count, float* block) {
        WeighLogits(max, count, block);
        for (int i = 0; i < count; ++i) {
          sum += block[i];
          dot += block[i] > 0.0f ? block[i] * (x[base + i] - max) : 0.0f;
        }
        return false;
      });
      if (!p.deterministic) {
        const float target = uniform[r] * sum;
        float cumulative = 0.0f;
        WalkBlocks(x, allowed, n, [&](int base, int count, float* block) {
          WeighLogits(max, count, block);
          for (int i = 0; i < count; ++i) {
            cumulative += block[i];
            if (!(cumulative > target)) continue;
            chosen = base + i;
            return true;
          }
          return false;
        });
      }
      const float log_sum = Log(sum);
      s.action[r] = chosen;
      s.log_prob[r] += x[chosen] - max - log_sum;
      s.entropy[r] += log_sum - dot / sum;
    }
  }

  // visit(base, count, masked logits from base on) block by block, until it returns true.
  template <class F>
  static MILL_HD void WalkBlocks(const float* logits, const uint8_t* mask, int n, F visit) {
    constexpr int kBlock = 32;
    float block[kBlock];
    for (int base = 0; base < n; base += kBlock) {
      const int count = MinOf(kBlock, n - base);
      CopyLogits(logits + base, mask == nullptr ? nullptr : mask + base, count, block);
      if (visit(base, count, block)) return;
    }
  }
};

}  // namespace millrace
