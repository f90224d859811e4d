// Adam (Kingma and Ba, 2015) and AdamW (Loshchilov and Hutter, 2019: decay decoupled from the gradient) as
// one pass over the flat buffer, with the clip's scale, the zeroing of gradients and a target network's
// average (Polyak and Juditsky, 1992) in it. eps is added to
// the root after the bias correction. Station: optimizer. A chunk may run on any thread.
#pragma once

#include <cmath>

#include "kernels/core/launch.h"
#include "kernels/ops/grad_reduce.h"
#include "kernels/ops/scalar.h"

namespace millrace {

// What one step needs, in memory, for it changes between replays of a graph.
struct AdamStep {
  float lr = 0.0f;
  float beta1 = 0.0f, one_minus_beta1 = 1.0f;
  float beta2 = 0.0f, one_minus_beta2 = 1.0f;
  float eps = 0.0f;
  float weight_decay = 0.0f;                 // decoupled
  float inv_bias1 = 1.0f, inv_bias2 = 1.0f;  // 1 / (1 - beta^t)
  float grad_scale = 1.0f;
  int skip = 0;  // not 0: weights and moments stay as they are; gradients are zeroed all the same

  // Step t counts from 1; a skipped step does not count. 1 - beta is taken in double: from a float32 0.999 it
  // would be off by 1e-5. Leaves lr and grad_scale as they are.
  void Set(double b1, double b2, double epsilon, double decay, int64_t t) {
    const double power = static_cast<double>(t);
    beta1 = static_cast<float>(b1);
    one_minus_beta1 = static_cast<float>(1.0 - b1);
    beta2 = static_cast<float>(b2);
    one_minus_beta2 = static_cast<float>(1.0 - b2);
    eps = static_cast<float>(epsilon);
    weight_decay = static_cast<float>(decay);
    inv_bias1 = static_cast<float>(1.0 / (1.0 - std::pow(b1, power)));
    inv_bias2 = static_cast<float>(1.0 / (1.0 - std::pow(b2, power)));
    skip = 0;
  }
};

// From the chunks' sums of squares to the step: the total in chunk order, the clip scale, and skip where it
// is not finite. With a limit on the KL estimate a minibatch beyond it sets `stop`, which stays set: this
// step and those that follow are skipped, so a graph can hold a whole update. One tile of one rank's work.
struct ClipGlobalNorm {
  struct Params {
    int chunks;
    const double* chunk_squares;  // [chunks]
    float max_norm;               // 0 or less: no clipping
    AdamStep* step;               // grad_scale and skip written
    float* norm;                  // [1] the norm before clipping
    const double* kl = nullptr;   // [1] the minibatch's sum of KL estimates, or null: no limit
    double kl_limit = 0.0;        // of that sum
    int32_t* stop = nullptr;      // [1] with kl: read and written
  };
  struct Shared {};

  static int Tiles(const Params&) { return 1; }

  template <class Team>
  MILL_HD void operator()(Team& team, int, const Params& p, Shared&) const {
    if (team.rank() == 0) {
      double total = 0.0;
      for (int i = 0; i < p.chunks; ++i) total += p.chunk_squares[i];
      p.step->grad_scale = ClipScale(total, static_cast<double>(p.max_norm));
      p.step->skip = total <= 1.7976931348623157e308 ? 0 : 1;
      if (p.kl != nullptr) {
        if (*p.kl > p.kl_limit) *p.stop = 1;
        if (*p.stop != 0) p.step->skip = 1;
      }
      *p.norm = static_cast<float>(sqrt(total));
    }
    team.Sync();
  }
};

struct Adam {
  static constexpr float kMomentFloor = 1e-30f;  // below it a moment is 0
  static constexpr int kChunk = GradReduce::kChunk;

  struct Params {
    float* w;  // [n]
    float* g;  // [n]
    float* m;  // [n]
    float* v;  // [n]
    int n;
    const AdamStep* step;
    bool zero_grad;
    // A target network's average of the weights, taken in the same pass: (1 - tau) target + tau w. A skipped
    // step leaves it as it is.
    float* target = nullptr;  // [n] or null
    float tau = 0.0f;
  };
  struct Shared {};

  static int Tiles(const Params& p) { return CeilDiv(p.n, kChunk); }

  template <class Team>
  MILL_HD void operator()(Team& team, int tile, const Params& p, Shared&) const {
    const int first = tile * kChunk;
    const int n = MinOf(kChunk, p.n - first);
    float* g = p.g + first;
    if (p.step->skip == 0) {
      Update(team, n, *p.step, p.w + first, g, p.m + first, p.v + first);
      if (p.target != nullptr) Average(team, n, p.tau, p.w + first, p.target + first);
    }
    if (p.zero_grad) {
      MILL_SIMD
      for (int i = team.rank(); i < n; i += team.size()) g[i] = 0.0f;
    }
  }

 private:
  template <class Team>
  static MILL_HD void Update(Team& team, int n, const AdamStep& step, float* w, const float* grad, float* m,
                             float* v) {
    const AdamStep s = step;
    const float keep = 1.0f - s.lr * s.weight_decay;
    const float rate = s.lr * s.inv_bias1;
    MILL_SIMD
    for (int i = team.rank(); i < n; i += team.size()) {
      const float g = grad[i] * s.grad_scale;
      const float first = s.beta1 * m[i] + s.one_minus_beta1 * g;
      const float second = s.beta2 * v[i] + s.one_minus_beta2 * (g * g);
      // A moment whose gradient has become 0 would decay into denormals and stay there, many times slower.
      m[i] = Abs(first) < kMomentFloor ? 0.0f : first;
      v[i] = second < kMomentFloor ? 0.0f : second;
      w[i] = keep * w[i] - rate * first / (Sqrt(second * s.inv_bias2) + s.eps);
    }
  }

  // A rank keeps its elements.
  template <class Team>
  static MILL_HD void Average(Team& team, int n, float tau, const float* w, float* target) {
    const float keep = 1.0f - tau;
    MILL_SIMD
    for (int i = team.rank(); i < n; i += team.size()) target[i] = keep * target[i] + tau * w[i];
  }
};

}  // namespace millrace
