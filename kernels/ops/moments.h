// Mean and population variance of n floats, optionally gathered through an index; and what advantage
// normalisation makes of them. Two passes in double: the mean first, then the squared deviations from it, so
// nothing cancels. Station: train_step. One tile: the whole array. Any thread.
#pragma once

#include <cmath>

#include "kernels/core/launch.h"

namespace millrace {

struct MomentsResult {
  double mean = 0.0;
  double variance = 0.0;  // population: divided by count
  double count = 0.0;
};

struct Moments {
  struct Params {
    int n;
    const float* x;        // [n], or what index reaches
    const int32_t* index;  // [n] positions in x, or null
    MomentsResult* out;    // [1]
  };
  struct Shared {
    double lanes[2][kLanes];
  };

  static int Tiles(const Params&) { return 1; }

  template <class Team>
  MILL_HD void operator()(Team& team, int, const Params& p, Shared& s) const {
    if (p.index != nullptr) {
      Run(team, p, s, [x = p.x, index = p.index](int i) { return x[index[i]]; });
    } else {
      Run(team, p, s, [x = p.x](int i) { return x[i]; });
    }
  }

 private:
  template <class Team, class At>
  static MILL_HD void Run(Team& team, const Params& p, Shared& s, At at) {
    SumIntoLanes(team, p.n, s.lanes[0], [&](int i) { return static_cast<double>(at(i)); });
    team.Sync();
    const double mean = p.n > 0 ? AddLanes(s.lanes[0]) / p.n : 0.0;
    SumIntoLanes(team, p.n, s.lanes[1], [&](int i) {
      const double d = static_cast<double>(at(i)) - mean;
      return d * d;
    });
    team.Sync();
    if (team.rank() == 0) {
      p.out->mean = mean;
      p.out->variance = p.n > 0 ? AddLanes(s.lanes[1]) / p.n : 0.0;
      p.out->count = p.n;
    }
    team.Sync();
  }
};

// normalised = (x - shift) * scale
struct ShiftScale {
  float shift = 0.0f;
  float scale = 1.0f;
};

// Advantage normalisation: zero mean and unit deviation, unbiased as torch.std has it, eps 1e-8 added to the
// deviation. A batch of one has no deviation and is left alone.
MILL_HD ShiftScale AdvantageScale(double mean, double variance, double count) {
  if (!(count > 1.0)) return ShiftScale{0.0f, 1.0f};
  const double deviation = sqrt(variance * (count / (count - 1.0)));
  return ShiftScale{static_cast<float>(mean), static_cast<float>(1.0 / (deviation + 1e-8))};
}

}  // namespace millrace
