// The losses of SAC (Haarnoja et al., "Soft actor-critic algorithms and applications", 2018) for critics that
// give one number, as those of continuous actions do:
//   target    y = r + discount * (min_i Q'_i - alpha * log_prob'), where discount is 0 after a termination,
//             so that the entropy's term is inside of it (eq. 3 and 5)
//   critics   sum_i 0.5 * weight * (Q_i - y)^2, the mean over the batch (eq. 5)
//   policy    alpha * log_prob - min_i Q_i, the mean over the batch (eq. 7); with more critics than the
//   target
//             looks at, their mean instead of the minimum (Chen et al., "Randomized ensembled double
//             Q-learning", 2021)
//   alpha     -log_alpha * (mean log_prob + target_entropy): the form in log_alpha, whose gradient does not
//             fade with alpha as that of eq. 18 does
// A critic's row r is at q[critic * stride + r]. alpha is kept as its logarithm. Station: train_step. Any
// thread; sums are written a tile.
#pragma once

#include "kernels/core/launch.h"
#include "kernels/core/math.h"
#include "kernels/ops/scalar.h"

namespace millrace {

inline constexpr int kSacRows = 128;  // rows of a tile of these ops

// The least of some critics at one place; `stride` from one critic to the next. NaN where one is NaN.
MILL_HD float LeastOf(const float* q, size_t stride, const int32_t* subset, int critics) {
  float least = q[static_cast<size_t>(subset[0]) * stride];
  for (int i = 1; i < critics; ++i) {
    const float x = q[static_cast<size_t>(subset[i]) * stride];
    least = x < least || x != x ? x : least;
  }
  return least;
}

struct SacTarget {
  struct Params {
    int rows;
    int critics;            // in the minimum
    const int32_t* subset;  // [critics] which
    const float* q;         // [all critics, stride] of the next observation and a fresh action
    size_t stride;
    const float* log_prob;   // [rows] of that action
    const float* reward;     // [rows]
    const float* discount;   // [rows]
    const float* log_alpha;  // [1]
    float* y;                // [rows] written
  };
  struct Shared {};

  static int Tiles(const Params& p) { return CeilDiv(p.rows, kSacRows); }

  template <class Team>
  MILL_HD void operator()(Team& team, int tile, const Params& p, Shared&) const {
    const float alpha = Exp(*p.log_alpha);
    const int end = MinOf(p.rows, (tile + 1) * kSacRows);
    for (int r = tile * kSacRows + team.rank(); r < end; r += team.size()) {
      const float least = LeastOf(p.q + r, p.stride, p.subset, p.critics);
      p.y[r] = p.reward[r] + p.discount[r] * (least - alpha * p.log_prob[r]);
    }
  }
};

// Sums over the rows of one tile, and the largest |Q| of all critics.
struct SacCriticStats {
  double loss = 0.0, q = 0.0, target = 0.0, td_abs = 0.0;
  double q_abs_max = 0.0;
  double nonfinite = 0.0;  // rows whose target or loss is NaN or infinite

  void Add(const SacCriticStats& o) {
    loss += o.loss;
    q += o.q;
    target += o.target;
    td_abs += o.td_abs;
    q_abs_max = o.q_abs_max > q_abs_max ? o.q_abs_max : q_abs_max;
    nonfinite += o.nonfinite;
  }
};

// Loss and gradient of all critics. With `columns` actions a critic has a value for each, and only that of
// the action taken has a gradient.
struct CriticLoss {
  struct Params {
    int rows;
    int critics;
    int columns;            // values of a critic in a row: 1, or the number of discrete actions
    const int32_t* action;  // [rows] discrete only, else null
    const float* q;         // [critics, stride]: each [rows, columns]
    float* dq;              // the same shape, written
    size_t stride;
    const float* y;         // [rows]
    const float* weight;    // [rows]
    float inv_count;        // 1 / rows of the whole batch
    float* td_abs;          // [rows] the mean over critics of |Q - y|
    SacCriticStats* stats;  // [tiles] written
  };
  struct Shared {
    float loss[kSacRows], q[kSacRows], y[kSacRows], td[kSacRows], most[kSacRows], bad[kSacRows];
    float lanes[5][kLanes];
  };

  static int Tiles(const Params& p) { return CeilDiv(p.rows, kSacRows); }

  template <class Team>
  MILL_HD void operator()(Team& team, int tile, const Params& p, Shared& s) const {
    const int first = tile * kSacRows;
    const int rows = MinOf(kSacRows, p.rows - first);
    for (int r = team.rank(); r < rows; r += team.size()) Row(p, first, r, s);
    team.Sync();
    SumIntoLanes(team, rows, s.lanes[0], [&s](int r) { return s.loss[r]; });
    SumIntoLanes(team, rows, s.lanes[1], [&s](int r) { return s.q[r]; });
    SumIntoLanes(team, rows, s.lanes[2], [&s](int r) { return s.y[r]; });
    SumIntoLanes(team, rows, s.lanes[3], [&s](int r) { return s.td[r]; });
    SumIntoLanes(team, rows, s.lanes[4], [&s](int r) { return s.bad[r]; });
    team.Sync();
    if (team.rank() == 0) {
      SacCriticStats out;
      out.loss = static_cast<double>(AddLanes(s.lanes[0]));
      out.q = static_cast<double>(AddLanes(s.lanes[1]));
      out.target = static_cast<double>(AddLanes(s.lanes[2]));
      out.td_abs = static_cast<double>(AddLanes(s.lanes[3]));
      out.nonfinite = static_cast<double>(AddLanes(s.lanes[4]));
      float most = 0.0f;
      for (int r = 0; r < rows; ++r) most = MaxOf(most, s.most[r]);
      out.q_abs_max = static_cast<double>(most);
      p.stats[tile] = out;
    }
    team.Sync();
  }

 private:
  static MILL_HD void Row(const Params& p, int first, int r, Shared& s) {
    const size_t row = static_cast<size_t>(first + r);
    const size_t chosen = p.action == nullptr ? 0 : static_cast<size_t>(p.action[row]);
    const float inv_critics = 1.0f / static_cast<float>(p.critics);
    const float y = p.y[row], weight = p.weight[row];
    float loss = 0.0f, sum = 0.0f, td = 0.0f, most = 0.0f;
    for (int i = 0; i < p.critics; ++i) {
      const size_t at = i * p.stride + row * static_cast<size_t>(p.columns);
      for (int c = 0; p.columns > 1 && c < p.columns; ++c) p.dq[at + static_cast<size_t>(c)] = 0.0f;
      const float q = p.q[at + chosen];
      const float error = q - y;
      p.dq[at + chosen] = weight * error * p.inv_count;
      loss += 0.5f * weight * error * error;
      sum += q;
      td += Abs(error);
      most = MaxOf(Abs(q), most);
    }
    p.td_abs[row] = td * inv_critics;
    s.loss[r] = loss;
    s.q[r] = sum * inv_critics;
    s.y[r] = y;
    s.td[r] = td * inv_critics;
    s.most[r] = most;
    s.bad[r] = IsFinite(loss) && IsFinite(y) ? 0.0f : 1.0f;
  }
};

// Sums over the rows of one tile.
struct SacPolicyStats {
  double loss = 0.0, q = 0.0;
  double log_prob = 0.0;   // for discrete actions its expectation
  double nonfinite = 0.0;  // rows whose loss is NaN or infinite

  void Add(const SacPolicyStats& o) {
    loss += o.loss;
    q += o.q;
    log_prob += o.log_prob;
    nonfinite += o.nonfinite;
  }
};

// What the rows of a tile add to them; both forms of the policy's loss fill it.
struct SacPolicyRows {
  float loss[kSacRows], q[kSacRows], log_prob[kSacRows], bad[kSacRows];
  float lanes[4][kLanes];
};

template <class Team>
MILL_HD void SumPolicyRows(Team& team, int rows, SacPolicyRows& s, SacPolicyStats* stats) {
  SumIntoLanes(team, rows, s.lanes[0], [&s](int r) { return s.loss[r]; });
  SumIntoLanes(team, rows, s.lanes[1], [&s](int r) { return s.q[r]; });
  SumIntoLanes(team, rows, s.lanes[2], [&s](int r) { return s.log_prob[r]; });
  SumIntoLanes(team, rows, s.lanes[3], [&s](int r) { return s.bad[r]; });
  team.Sync();
  if (team.rank() == 0) {
    stats->loss = static_cast<double>(AddLanes(s.lanes[0]));
    stats->q = static_cast<double>(AddLanes(s.lanes[1]));
    stats->log_prob = static_cast<double>(AddLanes(s.lanes[2]));
    stats->nonfinite = static_cast<double>(AddLanes(s.lanes[3]));
  }
  team.Sync();
}

// The policy's loss, and its gradient by what the critics say of its actions.
struct PolicyQ {
  struct Params {
    int rows;
    int critics;
    bool mean;       // of the critics, instead of their minimum (of equals the first)
    const float* q;  // [critics, stride]
    float* dq;       // [critics, stride] written
    size_t stride;
    const float* log_prob;   // [rows]
    const float* log_alpha;  // [1]
    float inv_count;         // 1 / rows of the whole batch
    SacPolicyStats* stats;   // [tiles] written
  };
  using Shared = SacPolicyRows;

  static int Tiles(const Params& p) { return CeilDiv(p.rows, kSacRows); }

  template <class Team>
  MILL_HD void operator()(Team& team, int tile, const Params& p, Shared& s) const {
    const int first = tile * kSacRows;
    const int rows = MinOf(kSacRows, p.rows - first);
    const float alpha = Exp(*p.log_alpha);
    for (int r = team.rank(); r < rows; r += team.size()) {
      const size_t row = static_cast<size_t>(first + r);
      const float q = Row(p, row);
      s.q[r] = q;
      s.log_prob[r] = p.log_prob[row];
      s.loss[r] = alpha * p.log_prob[row] - q;
      s.bad[r] = IsFinite(s.loss[r]) ? 0.0f : 1.0f;
    }
    team.Sync();
    SumPolicyRows(team, rows, s, p.stats + tile);
  }

 private:
  static MILL_HD float Row(const Params& p, size_t row) {
    const float share = p.inv_count / static_cast<float>(p.critics);
    int chosen = 0;
    float least = p.q[row], sum = p.q[row];
    for (int i = 1; i < p.critics; ++i) {
      const float x = p.q[i * p.stride + row];
      sum += x;
      chosen = x < least || x != x ? i : chosen;
      least = x < least || x != x ? x : least;
    }
    for (int i = 0; i < p.critics; ++i) {
      const float of_least = i == chosen ? -p.inv_count : 0.0f;
      p.dq[i * p.stride + row] = p.mean ? -share : of_least;
    }
    return p.mean ? sum / static_cast<float>(p.critics) : least;
  }
};

// The gradient of the temperature's loss by log_alpha; Adam of one parameter then takes the step. Entropy
// above the target (the mean log-prob below its negative) makes it positive, so alpha falls.
struct TemperatureGradient {
  struct Params {
    int parts;
    const SacPolicyStats* stats;  // [parts], added in order
    double count;                 // rows that they are sums over
    double target_entropy;
    float* gradient;  // [1] written
  };
  struct Shared {};

  static int Tiles(const Params&) { return 1; }

  template <class Team>
  MILL_HD void operator()(Team& team, int, const Params& p, Shared&) const {
    if (team.rank() == 0) {
      double sum = 0.0;
      for (int i = 0; i < p.parts; ++i) sum += p.stats[i].log_prob;
      *p.gradient = static_cast<float>(-(sum / p.count + p.target_entropy));
    }
    team.Sync();
  }
};

}  // namespace millrace
