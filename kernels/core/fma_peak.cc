#include "kernels/core/fma_peak.h"

#include <algorithm>
#include <chrono>

#include "kernels/gemm/gemm_tile.h"

namespace millrace {
namespace {

// Enough independent chains for two units with a latency of four or five cycles.
constexpr int kChains = 12;
constexpr int kSteps = 20'000;

// Values stay near 1: x = 0.5 x + 0.5.
void Burn(float* values) {
  using V = gemm::Vector<8>;
  static constexpr float kHalf = 0.5f;
  const V::Type half = V::Broadcast(&kHalf);
  V::Type x[kChains];
  for (int c = 0; c < kChains; ++c) x[c] = V::Load(values + 8 * c);
  for (int s = 0; s < kSteps; ++s) {
    for (int c = 0; c < kChains; ++c) x[c] = V::MulAdd(x[c], half, half);
  }
  for (int c = 0; c < kChains; ++c) V::Store(values + 8 * c, x[c]);
}

}  // namespace

double FmaPeakGflops(double seconds) {
  using Clock = std::chrono::steady_clock;
  alignas(64) float values[8 * kChains];
  std::fill_n(values, 8 * kChains, 1.5f);
  const auto end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  double best = 0;
  // The best of many short runs: an interruption spoils one of them only.
  do {
    const auto begin = Clock::now();
    Burn(values);
    asm volatile("" : : "r"(values) : "memory");  // all of them are needed, as far as the compiler knows
    const double took = std::chrono::duration<double>(Clock::now() - begin).count();
    best = std::max(best, 2.0 * 8 * kChains * kSteps / took * 1e-9);
  } while (Clock::now() < end);
  return best;
}

}  // namespace millrace
