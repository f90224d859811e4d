// What the benchmarks share: the clock, medians, and a result's rate from those of its repetitions. Owner:
// `millrace bench`; functions without state.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

#include "cli/bench.h"

namespace millrace::bench {

using Clock = std::chrono::steady_clock;

inline double Since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

inline double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

inline void Summarize(const std::vector<double>& rates, BenchResult& result) {
  result.rate = Median(rates);
  result.rate_min = *std::min_element(rates.begin(), rates.end());
  result.rate_max = *std::max_element(rates.begin(), rates.end());
}

}  // namespace millrace::bench
