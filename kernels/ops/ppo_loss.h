// The PPO loss and all its gradients in one pass over a block of rows (Schulman et al., "Proximal policy
// optimization algorithms", 2017, eq. 7 and 9):
//   loss = policy + value_coef * value - entropy_coef * entropy, each the mean over the minibatch
//   policy  = -min(ratio * A, clip(ratio, 1 - c, 1 + c) * A),   ratio = exp(log_prob - old_log_prob)
//   value   = 0.5 * (V - R)^2, or with value_clip v: 0.5 * max((V - R)^2, (V_old + clip(V - V_old, -v, v) -
//   R)^2)
// with A = (advantage - adv_shift) * adv_scale. KL estimates are k1 and k3 of Schulman, "Approximating KL
// divergence". Actions are Discrete or MultiDiscrete (heads of logits, optional mask) or a Box (diagonal
// Gaussian of state-independent deviation). A masked action's probability, gradient and entropy term are
// exactly 0. Station: train_step. Any thread; what a tile accumulates belongs to one caller.
#pragma once

#include "kernels/core/launch.h"
#include "kernels/core/math.h"
#include "kernels/ops/categorical.h"
#include "kernels/ops/gaussian.h"
#include "kernels/ops/scalar.h"

namespace millrace {

// In memory and not in Params, for they change between replays of a graph.
struct PpoCoefs {
  float clip_range;
  float value_clip;  // 0: off
  float entropy_coef;
  float value_coef;
  float inv_count;  // 1 / rows of the whole minibatch: gradients are those of its mean
  float adv_shift, adv_scale;
};

// Sums over rows; divide by count.
struct PpoStats {
  double policy_loss = 0.0;
  double value_loss = 0.0;  // the 0.5 inside, value_coef not
  double entropy = 0.0;
  double kl_k1 = 0.0;  // old log-prob - new log-prob
  double kl_k3 = 0.0;  // (ratio - 1) - log ratio
  double clip_fraction = 0.0;
  double nonfinite = 0.0;  // rows whose inputs or loss are NaN or infinite
  double count = 0.0;

  void Add(const PpoStats& o) {
    policy_loss += o.policy_loss;
    value_loss += o.value_loss;
    entropy += o.entropy;
    kl_k1 += o.kl_k1;
    kl_k3 += o.kl_k3;
    clip_fraction += o.clip_fraction;
    nonfinite += o.nonfinite;
    count += o.count;
  }
};

// One row's loss from its log-prob and value, and the gradients of the row's terms (not yet averaged).
struct PpoRow {
  float policy_loss, value_loss, kl_k1, kl_k3, clipped;
  float dpolicy_dlog_prob, dvalue_loss_dvalue;
};

MILL_HD PpoRow PpoRowLoss(float log_prob, float old_log_prob, float advantage, float value, float old_value,
                          float ret, float clip_range, float value_clip) {
  PpoRow row;
  const float log_ratio = log_prob - old_log_prob;
  const float ratio = Exp(log_ratio);
  const float free = ratio * advantage;
  const float bounded = ClampTo(ratio, 1.0f - clip_range, 1.0f + clip_range) * advantage;
  row.policy_loss = -(free <= bounded ? free : bounded);
  row.dpolicy_dlog_prob = free <= bounded ? -free : 0.0f;
  row.kl_k1 = -log_ratio;
  row.kl_k3 = (ratio - 1.0f) - log_ratio;
  row.clipped = Abs(ratio - 1.0f) > clip_range ? 1.0f : 0.0f;

  const float error = value - ret;
  const float move = value - old_value;
  const bool inside = !(value_clip > 0.0f) || Abs(move) <= value_clip;
  const float bounded_error = old_value + (move > 0.0f ? value_clip : -value_clip) - ret;
  const bool use_free = inside || error * error >= bounded_error * bounded_error;
  const float used = use_free ? error : bounded_error;
  row.value_loss = 0.5f * used * used;
  row.dvalue_loss_dvalue = use_free ? error : 0.0f;
  return row;
}

struct PpoLoss {
  static constexpr int kRows = 128;  // rows of a tile
  static constexpr int kTurned =
      32;  // rows of up to so many logits are turned in scratch; wider ones go row by row

  struct Params {
    int rows;
    const float* logits;  // [rows, ld]: logits of all heads, or a Box's means
    int ld;
    const uint8_t* mask;        // [rows, sum of nvec] 1 = allowed, or null; discrete only
    int heads;                  // action components: heads of logits, or a Box's dimensions
    const int32_t* nvec;        // [heads] logits of each head; discrete only
    const float* log_std;       // [heads] for a Box, null for discrete actions
    const void* action;         // [rows, heads] i32, or f32 for a Box
    const float* old_log_prob;  // [rows]
    const float* advantage;     // [rows], before shift and scale
    const float* old_value;     // [rows]
    const float* ret;           // [rows]
    const float* value;         // [rows] value_ld apart
    int value_ld;
    const PpoCoefs* coefs;  // [1]
    float* dlogits;         // [rows, ld] written
    float* dvalue;          // [rows] value_ld apart, written
    float* dlog_std;        // [heads] added to; Box only
    PpoStats* stats;        // [1] added to
    // Where tiles run one after another: 0, they all add to the same place. Where they run at once: 1, tile i
    // adds to stats[i] and dlog_std[i * heads], and the caller adds those in order.
    int tile_stride = 0;
  };

  struct Shared {
    float prob[kTurned][kRows];          // the logit, then exp, then the probability
    float entropy_grad[kTurned][kRows];  // logit - max, then p (log p + entropy)
    float max[kRows], sum[kRows], dot[kRows], chosen[kRows];
    float log_prob[kRows], entropy[kRows], check[kRows];  // check: 0, or NaN where an input is not finite
    float pull[kRows];                                    // d loss / d log_prob
    float policy_loss[kRows], value_loss[kRows], kl_k1[kRows], kl_k3[kRows], clipped[kRows], bad[kRows];
    int32_t action[kRows];
    float lanes[7][kLanes];
  };

  static int Tiles(const Params& p) { return CeilDiv(p.rows, kRows); }

  // A rank keeps its rows through all phases; only the sums cross ranks.
  template <class Team>
  MILL_HD void operator()(Team& team, int tile, const Params& p, Shared& s) const {
    const int first = tile * kRows;
    const int rows = MinOf(kRows, p.rows - first);
    const PpoCoefs c = *p.coefs;
    for (int r = team.rank(); r < rows; r += team.size()) s.log_prob[r] = s.entropy[r] = s.check[r] = 0.0f;
    if (p.log_std != nullptr) {
      GaussianForward(team, p, first, rows, s);
      RowLosses(team, p, c, first, rows, s);
      GaussianBackward(team, p, c, tile, first, rows, s);
    } else {
      const int width = Width(p);
      if (width <= kTurned) {
        TurnedForward(team, p, width, first, rows, s);
        RowLosses(team, p, c, first, rows, s);
        TurnedBackward(team, p, c, first, rows, s);
      } else {
        WideForward(team, p, width, first, rows, s);
        RowLosses(team, p, c, first, rows, s);
        WideBackward(team, p, c, width, first, rows, s);
      }
    }
    AddStats(team, p, tile, rows, s);
  }

 private:
  static MILL_HD int Width(const Params& p) {
    int width = 0;
    for (int h = 0; h < p.heads; ++h) width += p.nvec[h];
    return width;
  }
  static MILL_HD int Action(const Params& p, int row, int head) {
    return static_cast<const int32_t*>(p.action)[static_cast<size_t>(row) * p.heads + head];
  }

  // ---- discrete, up to kTurned logits: loops run over rows.

  template <class Team>
  static MILL_HD void TurnedForward(Team& team, const Params& p, int width, int first, int rows, Shared& s) {
    for (int l = 0; l < width; ++l) {
      const float* logit = p.logits + static_cast<size_t>(first) * p.ld + l;
      MILL_SIMD
      for (int r = team.rank(); r < rows; r += team.size())
        s.prob[l][r] = logit[static_cast<size_t>(r) * p.ld];
      MILL_SIMD
      for (int r = team.rank(); r < rows; r += team.size()) s.check[r] += s.prob[l][r] * 0.0f;
      if (p.mask != nullptr) {
        const uint8_t* mask = p.mask + static_cast<size_t>(first) * width + l;
        for (int r = team.rank(); r < rows; r += team.size()) {
          s.prob[l][r] = mask[static_cast<size_t>(r) * width] != 0 ? s.prob[l][r] : kMaskedLogit;
        }
      }
    }
    for (int h = 0, offset = 0; h < p.heads; offset += p.nvec[h], ++h) {
      for (int r = team.rank(); r < rows; r += team.size()) s.action[r] = Action(p, first + r, h);
      TurnedHead(team, p.nvec[h], s.prob + offset, s.entropy_grad + offset, rows, s);
    }
  }

  template <class Team>
  static MILL_HD void TurnedHead(Team& team, int n, float (*prob)[kRows], float (*entropy_grad)[kRows],
                                 int rows, Shared& s) {
    for (int r = team.rank(); r < rows; r += team.size()) {
      s.max[r] = prob[0][r];
      s.sum[r] = s.dot[r] = 0.0f;
      s.chosen[r] = kMaskedLogit;
    }
    for (int l = 1; l < n; ++l) {
      MILL_SIMD
      for (int r = team.rank(); r < rows; r += team.size()) s.max[r] = MaxOf(prob[l][r], s.max[r]);
    }
    for (int l = 0; l < n; ++l) {
      MILL_SIMD
      for (int r = team.rank(); r < rows; r += team.size()) {
        const float x = prob[l][r];
        const bool masked = IsMasked(x);
        const float t = masked ? 0.0f : x - s.max[r];
        const float e = Exp(t);
        const float w = masked ? 0.0f : e;
        prob[l][r] = w;
        entropy_grad[l][r] = t;
        s.sum[r] += w;
        s.dot[r] += w * t;
        const float mine = s.action[r] == l ? t : s.chosen[r];
        s.chosen[r] = masked ? s.chosen[r] : mine;
      }
    }
    MILL_SIMD
    for (int r = team.rank(); r < rows; r += team.size()) {
      const float log_sum = Log(s.sum[r]);
      const float inv_sum = 1.0f / s.sum[r];
      const float entropy = log_sum - s.dot[r] * inv_sum;
      s.log_prob[r] += s.chosen[r] - log_sum;
      s.entropy[r] += entropy;
      s.sum[r] = inv_sum;
      s.dot[r] = entropy - log_sum;
    }
    for (int l = 0; l < n; ++l) {
      MILL_SIMD
      for (int r = team.rank(); r < rows; r += team.size()) {
        const float prob_l = prob[l][r] * s.sum[r];
        prob[l][r] = prob_l;
        entropy_grad[l][r] = prob_l * (entropy_grad[l][r] + s.dot[r]);
      }
    }
  }

  // d log_prob / d logit_l = [l is the action] - p_l;  d entropy / d logit_l = -p_l (log p_l + entropy).
  template <class Team>
  static MILL_HD void TurnedBackward(Team& team, const Params& p, const PpoCoefs& c, int first, int rows,
                                     Shared& s) {
    const float entropy_weight = c.entropy_coef * c.inv_count;
    for (int h = 0, offset = 0; h < p.heads; offset += p.nvec[h], ++h) {
      for (int r = team.rank(); r < rows; r += team.size()) s.action[r] = Action(p, first + r, h);
      for (int l = 0; l < p.nvec[h]; ++l) {
        float* prob = s.prob[offset + l];
        const float* entropy_grad = s.entropy_grad[offset + l];
        float* dlogit = p.dlogits + static_cast<size_t>(first) * p.ld + offset + l;
        MILL_SIMD
        for (int r = team.rank(); r < rows; r += team.size()) {
          const float hit = s.action[r] == l ? 1.0f : 0.0f;
          prob[r] = s.pull[r] * (hit - prob[r]) + entropy_weight * entropy_grad[r];
        }
        for (int r = team.rank(); r < rows; r += team.size()) dlogit[static_cast<size_t>(r) * p.ld] = prob[r];
      }
    }
  }

  // ---- discrete, any number of logits: row by row; dlogits holds the weights between the two walks.

  template <class Team>
  static MILL_HD void WideForward(Team& team, const Params& p, int width, int first, int rows, Shared& s) {
    for (int r = team.rank(); r < rows; r += team.size()) {
      for (int h = 0, offset = 0; h < p.heads; offset += p.nvec[h], ++h) {
        const size_t at = static_cast<size_t>(first + r) * p.ld + offset;
        const uint8_t* mask = RowMask(p, width, first + r, offset);
        const HeadSummary head = SummariseHead(p.logits + at, mask, p.nvec[h], p.dlogits + at);
        const int a = Action(p, first + r, h);
        const bool allowed = a >= 0 && a < p.nvec[h] && (mask == nullptr || mask[a] != 0);
        s.log_prob[r] += (allowed ? p.logits[at + a] - head.max : kMaskedLogit) - head.log_sum;
        s.entropy[r] += head.entropy;
        float check = 0.0f;
        for (int l = 0; l < p.nvec[h]; ++l) check += p.logits[at + l] * 0.0f;
        s.check[r] += check;
      }
    }
  }

  template <class Team>
  static MILL_HD void WideBackward(Team& team, const Params& p, const PpoCoefs& c, int width, int first,
                                   int rows, Shared& s) {
    const float entropy_weight = c.entropy_coef * c.inv_count;
    for (int r = team.rank(); r < rows; r += team.size()) {
      for (int h = 0, offset = 0; h < p.heads; offset += p.nvec[h], ++h) {
        const size_t at = static_cast<size_t>(first + r) * p.ld + offset;
        const float* logit = p.logits + at;
        float* dlogit = p.dlogits + at;
        const HeadSummary head =
            SummariseHead(logit, RowMask(p, width, first + r, offset), p.nvec[h], dlogit);
        const int a = Action(p, first + r, h);
        const float shift = head.entropy - head.log_sum - head.max;
        MILL_SIMD
        for (int l = 0; l < p.nvec[h]; ++l) {
          const float prob = dlogit[l] * head.inv_sum;
          const float entropy_grad = prob > 0.0f ? prob * (logit[l] + shift) : 0.0f;
          dlogit[l] = s.pull[r] * ((l == a ? 1.0f : 0.0f) - prob) + entropy_weight * entropy_grad;
        }
      }
    }
  }
  static MILL_HD const uint8_t* RowMask(const Params& p, int width, int row, int offset) {
    return p.mask == nullptr ? nullptr : p.mask + static_cast<size_t>(row) * width + offset;
  }

  // ---- Box: loops run over rows, any number of dimensions.

  static MILL_HD float Deviations(const Params& p, int row, int d, float inv_std) {
    return (static_cast<const float*>(p.action)[static_cast<size_t>(row) * p.heads + d] -
            p.logits[static_cast<size_t>(row) * p.ld + d]) *
           inv_std;
  }

  template <class Team>
  static MILL_HD void GaussianForward(Team& team, const Params& p, int first, int rows, Shared& s) {
    float entropy = 0.0f;
    for (int d = 0; d < p.heads; ++d) {
      const float log_std = ClampLogStd(p.log_std[d]);
      const float inv_std = Exp(-log_std);
      entropy += GaussianEntropy(log_std);
      MILL_SIMD
      for (int r = team.rank(); r < rows; r += team.size()) {
        const float z = Deviations(p, first + r, d, inv_std);
        s.log_prob[r] += GaussianLogProb(z, log_std);
        s.check[r] += z * 0.0f;
      }
    }
    for (int r = team.rank(); r < rows; r += team.size()) s.entropy[r] = entropy;
  }

  // d log_prob / d mean = z / std;  d log_prob / d log_std = z^2 - 1;  d entropy / d log_std = 1. The
  // gradient passes the clamp of log_std: otherwise a parameter that has crossed a bound would never come
  // back.
  template <class Team>
  static MILL_HD void GaussianBackward(Team& team, const Params& p, const PpoCoefs& c, int tile, int first,
                                       int rows, Shared& s) {
    for (int d = 0; d < p.heads; ++d) {
      const float inv_std = Exp(-ClampLogStd(p.log_std[d]));
      float* dmean = p.dlogits + static_cast<size_t>(first) * p.ld + d;
      MILL_SIMD
      for (int r = team.rank(); r < rows; r += team.size()) {
        const float z = Deviations(p, first + r, d, inv_std);
        dmean[static_cast<size_t>(r) * p.ld] = s.pull[r] * (z * inv_std);
        s.dot[r] = s.pull[r] * (z * z - 1.0f);
      }
      team.Sync();
      SumIntoLanes(team, rows, s.lanes[0], [&](int r) { return s.dot[r]; });
      team.Sync();
      if (team.rank() == 0) {
        p.dlog_std[static_cast<size_t>(tile) * p.tile_stride * p.heads + d] +=
            AddLanes(s.lanes[0]) - c.entropy_coef * c.inv_count * static_cast<float>(rows);
      }
      team.Sync();
    }
  }

  // ---- what all kinds share

  template <class Team>
  static MILL_HD void RowLosses(Team& team, const Params& p, const PpoCoefs& c, int first, int rows,
                                Shared& s) {
    const float* old_log_prob = p.old_log_prob + first;
    const float* advantage = p.advantage + first;
    const float* old_value = p.old_value + first;
    const float* ret = p.ret + first;
    const float* value = p.value + static_cast<size_t>(first) * p.value_ld;
    float* dvalue = p.dvalue + static_cast<size_t>(first) * p.value_ld;
    const float value_weight = c.value_coef * c.inv_count;
    MILL_SIMD
    for (int r = team.rank(); r < rows; r += team.size()) {
      const float normalised = (advantage[r] - c.adv_shift) * c.adv_scale;
      const PpoRow row =
          PpoRowLoss(s.log_prob[r], old_log_prob[r], normalised, value[static_cast<size_t>(r) * p.value_ld],
                     old_value[r], ret[r], c.clip_range, c.value_clip);
      s.pull[r] = row.dpolicy_dlog_prob * c.inv_count;
      dvalue[static_cast<size_t>(r) * p.value_ld] = row.dvalue_loss_dvalue * value_weight;
      s.policy_loss[r] = row.policy_loss;
      s.value_loss[r] = row.value_loss;
      s.kl_k1[r] = row.kl_k1;
      s.kl_k3[r] = row.kl_k3;
      s.clipped[r] = row.clipped;
      // A bound may choose the finite one of two terms, so the inputs are looked at as well.
      const float all = row.policy_loss + row.value_loss + row.kl_k1 + row.kl_k3 + s.entropy[r] + normalised +
                        value[static_cast<size_t>(r) * p.value_ld] + old_value[r] + s.check[r];
      s.bad[r] = IsFinite(all) ? 0.0f : 1.0f;
    }
  }

  template <class Team>
  static MILL_HD void AddStats(Team& team, const Params& p, int tile, int rows, Shared& s) {
    team.Sync();
    SumIntoLanes(team, rows, s.lanes[0], [&](int r) { return s.policy_loss[r]; });
    SumIntoLanes(team, rows, s.lanes[1], [&](int r) { return s.value_loss[r]; });
    SumIntoLanes(team, rows, s.lanes[2], [&](int r) { return s.entropy[r]; });
    SumIntoLanes(team, rows, s.lanes[3], [&](int r) { return s.kl_k1[r]; });
    SumIntoLanes(team, rows, s.lanes[4], [&](int r) { return s.kl_k3[r]; });
    SumIntoLanes(team, rows, s.lanes[5], [&](int r) { return s.clipped[r]; });
    SumIntoLanes(team, rows, s.lanes[6], [&](int r) { return s.bad[r]; });
    team.Sync();
    if (team.rank() == 0) {
      PpoStats& out = p.stats[static_cast<size_t>(tile) * p.tile_stride];
      out.policy_loss += static_cast<double>(AddLanes(s.lanes[0]));
      out.value_loss += static_cast<double>(AddLanes(s.lanes[1]));
      out.entropy += static_cast<double>(AddLanes(s.lanes[2]));
      out.kl_k1 += static_cast<double>(AddLanes(s.lanes[3]));
      out.kl_k3 += static_cast<double>(AddLanes(s.lanes[4]));
      out.clip_fraction += static_cast<double>(AddLanes(s.lanes[5]));
      out.nonfinite += static_cast<double>(AddLanes(s.lanes[6]));
      out.count += rows;
    }
    team.Sync();
  }
};

}  // namespace millrace
