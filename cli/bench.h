// `millrace bench`: measures a named work on this machine beside its floor, which is computed and measured in
// the same run: FLOPs over the FMA peak of all threads, or bytes over memory bandwidth.
#pragma once

#include <string>
#include <vector>

#include "common/status.h"

namespace millrace {

struct BenchOptions {
  double seconds = 5;    // about so long a work
  uint32_t threads = 0;  // 0: all available
};

struct BenchResult {
  std::string work, unit;
  std::string cpu_kernels;  // the GEMM kernels in use: avx512, avx2 or portable
  double rate = 0;          // median over the repetitions
  double rate_min = 0, rate_max = 0;
  double floor = 0;     // the rate that the floor allows, in the same unit
  double fraction = 0;  // rate / floor
  std::vector<std::pair<std::string, double>> details;
};

struct BenchWork {
  std::string name, summary;
};
std::vector<BenchWork> BenchWorks();

// InvalidArgument with the nearest name for an unknown work.
StatusOr<BenchResult> RunBench(const std::string& work, const BenchOptions& options);

std::string ToJson(const BenchResult& result);
std::string ToText(const BenchResult& result);

}  // namespace millrace
