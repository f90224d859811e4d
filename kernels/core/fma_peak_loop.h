// The loop that FmaPeakGflops times, in vectors of the set that includes it. Owner: none. Any thread.
// Station: internal to fma_peak.cc and fma_peak_avx512.cc, each of which has a copy of its own
// (cpu_kernel_set.h).
#pragma once

#include "kernels/gemm/gemm_tile.h"

namespace millrace {

struct FmaLoop {
  void (*run)(float* values);  // kFmaValues floats, which stay near 1
  double flops;                // of a run
};
inline constexpr int kFmaValues = 256;

extern const FmaLoop kFmaLoopAvx512;  // fma_peak_avx512.cc

namespace {

// Enough independent chains for two units with a latency of four or five cycles.
constexpr int kFmaChains = 12;
constexpr int kFmaSteps = 20'000;
constexpr double kFmaFlops = 2.0 * gemm::kVectorLanes * kFmaChains * kFmaSteps;
static_assert(gemm::kVectorLanes * kFmaChains <= kFmaValues);

// x = 0.5 x + 0.5
void RunFmaLoop(float* values) {
  using V = gemm::Vector<gemm::kVectorLanes>;
  constexpr float kHalf = 0.5f;
  const V::Type half = V::Broadcast(&kHalf);
  V::Type x[kFmaChains];
  for (int c = 0; c < kFmaChains; ++c) x[c] = V::Load(values + gemm::kVectorLanes * c);
  for (int s = 0; s < kFmaSteps; ++s) {
    for (int c = 0; c < kFmaChains; ++c) x[c] = V::MulAdd(x[c], half, half);
  }
  for (int c = 0; c < kFmaChains; ++c) V::Store(values + gemm::kVectorLanes * c, x[c]);
}

}  // namespace
}  // namespace millrace
