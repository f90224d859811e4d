// A coefficient over the course of a run: constant, or from `start` to `end` by a line or half a cosine.
// `progress` is the share of the run that is done when the update begins, so the first update has `start`
// exactly and the last does not yet have `end`. Station: learner_loop. Pure; any thread; host only.
#pragma once

#include <algorithm>
#include <cmath>

#include "common/options.h"

namespace millrace {

inline double Scheduled(Schedule kind, double start, double progress, double end = 0.0) {
  constexpr double kPi = 3.14159265358979323846;
  const double done = std::clamp(progress, 0.0, 1.0);
  switch (kind) {
    case Schedule::kConstant:
      return start;
    case Schedule::kLinear:
      return start + (end - start) * done;
    case Schedule::kCosine:
      return end + (start - end) * 0.5 * (1.0 + std::cos(kPi * done));
  }
  return start;
}

}  // namespace millrace
