#include "kernels/core/fma_peak.h"

#include <algorithm>
#include <chrono>

#include "kernels/core/cpu_kernel_set.h"
#include "kernels/core/fma_peak_loop.h"

namespace millrace {
namespace {

FmaLoop ChosenLoop() {
#if defined(MILLRACE_AVX512)
  if (ChosenCpuSet() == CpuSet::kAvx512) return kFmaLoopAvx512;
#endif
  return {RunFmaLoop, kFmaFlops};
}

}  // namespace

double FmaPeakGflops(double seconds) {
  using Clock = std::chrono::steady_clock;
  const FmaLoop loop = ChosenLoop();
  alignas(64) float values[kFmaValues];
  std::fill_n(values, kFmaValues, 1.5f);
  const auto end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  double best = 0;
  // The best of many short runs: an interruption spoils one of them only.
  do {
    const auto begin = Clock::now();
    loop.run(values);
    asm volatile("" : : "r"(values) : "memory");  // all of them are needed, as far as the compiler knows
    const double took = std::chrono::duration<double>(Clock::now() - begin).count();
    best = std::max(best, loop.flops / took * 1e-9);
  } while (Clock::now() < end);
  return best;
}

}  // namespace millrace
