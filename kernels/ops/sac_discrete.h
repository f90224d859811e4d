// SAC for discrete actions (Christodoulou, "Soft actor-critic for discrete action settings", 2019): a critic
// has a value for each action, and expectations over the policy take the place of samples. With p the
// policy's probabilities and f(a) = alpha * log p(a) - Q(a):
//   target  y = r + discount * (-sum_a p'(a) f'(a)),  Q' the minimum over the target's critics
//   policy  L = sum_a p(a) f(a), the mean over the batch;  dL/dlogit(a) = p(a) (f(a) - L)
// A masked action has probability and gradient 0. Critics' losses and the temperature are those of
// sac_loss.h. Station: train_step. Any thread; sums are written a tile.
#pragma once

#include "kernels/core/launch.h"
#include "kernels/core/math.h"
#include "kernels/ops/categorical.h"
#include "kernels/ops/sac_loss.h"
#include "kernels/ops/scalar.h"

namespace millrace {

struct DiscreteSacTarget {
  struct Params {
    int rows;
    int actions;
    const float* logits;  // [rows, ld] of the next observation
    int ld;
    const uint8_t* mask;    // [rows, actions] 1 = allowed, or null
    int critics;            // in the minimum
    const int32_t* subset;  // [critics] which
    const float* q;         // [all critics, stride]: each [rows, actions]
    size_t stride;
    const float* reward;     // [rows]
    const float* discount;   // [rows]
    const float* log_alpha;  // [1]
    float* weight;           // [rows, actions] scratch
    float* y;                // [rows] written
  };
  struct Shared {};

  static int Tiles(const Params& p) { return CeilDiv(p.rows, kSacRows); }

  template <class Team>
  MILL_HD void operator()(Team& team, int tile, const Params& p, Shared&) const {
    const float alpha = Exp(*p.log_alpha);
    const int end = MinOf(p.rows, (tile + 1) * kSacRows);
    for (int r = tile * kSacRows + team.rank(); r < end; r += team.size()) {
      const size_t at = static_cast<size_t>(r) * static_cast<size_t>(p.actions);
      float* weight = p.weight + at;
      const HeadSummary h = SummariseHead(p.logits + static_cast<size_t>(r) * p.ld,
                                          p.mask == nullptr ? nullptr : p.mask + at, p.actions, weight);
      float value = 0.0f;
      for (int a = 0; a < p.actions; ++a) {
        const float q = LeastOf(p.q + at + static_cast<size_t>(a), p.stride, p.subset, p.critics);
        value += weight[a] > 0.0f ? weight[a] * q : 0.0f;
      }
      p.y[r] = p.reward[r] + p.discount[r] * (value * h.inv_sum + alpha * h.entropy);
    }
  }
};

struct DiscretePolicyLoss {
  struct Params {
    int rows;
    int actions;
    const float* logits;  // [rows, ld]
    int ld;
    const uint8_t* mask;  // [rows, actions] 1 = allowed, or null
    int critics;
    bool mean;       // of the critics, instead of their minimum
    const float* q;  // [critics, stride]: each [rows, actions]
    size_t stride;
    const int32_t* all;      // [critics] 0, 1, 2 ...
    const float* log_alpha;  // [1]
    float inv_count;         // 1 / rows of the whole batch
    float* weight;           // [rows, actions] scratch
    float* dlogits;          // [rows, ld], actions of each row written
    SacPolicyStats* stats;   // [tiles] written
  };
  using Shared = SacPolicyRows;

  static int Tiles(const Params& p) { return CeilDiv(p.rows, kSacRows); }

  template <class Team>
  MILL_HD void operator()(Team& team, int tile, const Params& p, Shared& s) const {
    const int first = tile * kSacRows;
    const int rows = MinOf(kSacRows, p.rows - first);
    const float alpha = Exp(*p.log_alpha);
    for (int r = team.rank(); r < rows; r += team.size()) Row(p, alpha, first, r, s);
    team.Sync();
    SumPolicyRows(team, rows, s, p.stats + tile);
  }

 private:
  // dlogits holds f(a) between the two loops.
  static MILL_HD void Row(const Params& p, float alpha, int first, int r, Shared& s) {
    const size_t row = static_cast<size_t>(first + r);
    const size_t at = row * static_cast<size_t>(p.actions);
    const float* logits = p.logits + row * p.ld;
    float* weight = p.weight + at;
    float* dlogits = p.dlogits + row * p.ld;
    const HeadSummary h = SummariseHead(logits, p.mask == nullptr ? nullptr : p.mask + at, p.actions, weight);
    float loss = 0.0f, value = 0.0f;
    for (int a = 0; a < p.actions; ++a) {
      const float* q = p.q + at + static_cast<size_t>(a);
      const float said = p.mean ? MeanOf(q, p.stride, p.critics) : LeastOf(q, p.stride, p.all, p.critics);
      const float f = alpha * (logits[a] - h.max - h.log_sum) - said;
      const bool allowed = weight[a] > 0.0f;
      dlogits[a] = allowed ? f : 0.0f;
      loss += allowed ? weight[a] * f : 0.0f;
      value += allowed ? weight[a] * said : 0.0f;
    }
    loss *= h.inv_sum;
    for (int a = 0; a < p.actions; ++a)
      dlogits[a] = weight[a] > 0.0f ? weight[a] * h.inv_sum * (dlogits[a] - loss) * p.inv_count : 0.0f;
    s.loss[r] = loss;
    s.q[r] = value * h.inv_sum;
    s.log_prob[r] = -h.entropy;
    s.bad[r] = IsFinite(loss) ? 0.0f : 1.0f;
  }

  static MILL_HD float MeanOf(const float* q, size_t stride, int critics) {
    float sum = q[0];
    for (int i = 1; i < critics; ++i) sum += q[static_cast<size_t>(i) * stride];
    return sum / static_cast<float>(critics);
  }
};

}  // namespace millrace
