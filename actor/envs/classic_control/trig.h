// Sine and cosine in double that the compiler can vectorize: no branch, no table, no call. Pure functions;
// any thread.
//
// Cody-Waite reduction by pi/2 in three parts with fused multiply-adds (Cody and Waite, "Software Manual for
// the Elementary Functions", 1980), then polynomials on [-pi/4, pi/4] whose coefficients were found by
// Remez's exchange in 60 digits: relative error 2^-58.0 (sine) and 2^-63.9 (cosine) before rounding. The
// result is within 1 ulp for |x| < kTrigLimit; trig_test.cc measures it against long double. Beyond the limit
// SinCos(x) asks the C library.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/core/target.h"

namespace millrace {

struct SinCosPair {
  double sin, cos;
};

// |x| up to which n * pi/2 has few enough bits in n that the first product below is exact.
inline constexpr double kTrigLimit = 1e5;

// |x| < kTrigLimit; other values give a meaningless result but never a fault.
MILL_HD SinCosPair SinCosBounded(double x) {
  constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
  constexpr double kHalfPi1 = 0x1.921fb54442d18p+0;  // pi/2 is the sum of these three
  constexpr double kHalfPi2 = 0x1.1a62633145c07p-54;
  constexpr double kHalfPi3 = -0x1.f1976b7ed8fbcp-110;
  constexpr double kRound = 0x1.8p+52;  // adding it leaves the nearest integer in the lowest bits

  const double shifted = x * kTwoOverPi + kRound;
  const uint64_t quadrant = __builtin_bit_cast(uint64_t, shifted);
  const double n = shifted - kRound;
  const double first = __builtin_fma(-n, kHalfPi1, x);  // exact
  const double second = n * kHalfPi2;
  const double r = first - second;
  // What r lacks: the rounding of the difference (Knuth's exact difference, for near a multiple of pi/2
  // either term may be the greater), that of the product, and the third part.
  const double back = first - r;
  const double difference_tail = (first - (r + back)) + (back - second);
  const double product_tail = __builtin_fma(n, kHalfPi2, -second);
  const double tail = difference_tail - __builtin_fma(n, kHalfPi3, product_tail);

  const double z = r * r;
  const double z_tail = __builtin_fma(r, r, -z);
  const double half_z = 0.5 * z;

  double p = 0x1.5d9300f101cf4p-33;
  p = __builtin_fma(p, z, -0x1.ae5e663a6ab5bp-26);
  p = __builtin_fma(p, z, 0x1.71de3577b66d9p-19);
  p = __builtin_fma(p, z, -0x1.a01a019c11992p-13);
  p = __builtin_fma(p, z, 0x1.111111110f87ap-7);
  p = __builtin_fma(p, z, -0x1.5555555555549p-3);
  const double sine = r + __builtin_fma(r * z, p, tail * (1.0 - half_z));

  double q = -0x1.8fa465ee9f5d4p-37;
  q = __builtin_fma(q, z, 0x1.1ee9d75291e35p-29);
  q = __builtin_fma(q, z, -0x1.27e4f7ea3796cp-22);
  q = __builtin_fma(q, z, 0x1.a01a019c8390fp-16);
  q = __builtin_fma(q, z, -0x1.6c16c16c14f8ap-10);
  q = __builtin_fma(q, z, 0x1.555555555554bp-5);
  const double head = 1.0 - half_z;
  const double lost = (1.0 - head) - half_z;  // of the subtraction above
  const double small = __builtin_fma(z * z, q, -__builtin_fma(r, tail, 0.5 * z_tail));
  const double cosine = head + (lost + small);

  const bool odd = (quadrant & 1) != 0;
  const uint64_t sin_sign = (quadrant & 2) << 62;
  const uint64_t cos_sign = ((quadrant + 1) & 2) << 62;
  const double sin_value = odd ? cosine : sine;
  const double cos_value = odd ? sine : cosine;
  return {__builtin_bit_cast(double, __builtin_bit_cast(uint64_t, sin_value) ^ sin_sign),
          __builtin_bit_cast(double, __builtin_bit_cast(uint64_t, cos_value) ^ cos_sign)};
}

// Any x, NaN and infinity included.
inline SinCosPair SinCos(double x) {
  if (std::fabs(x) < kTrigLimit) return SinCosBounded(x);
  return {std::sin(x), std::cos(x)};
}

// sin[i], cos[i] of x[i] for any x, the same bits as SinCos(x[i]); x, sin and cos [n] f64, not overlapping.
inline void SinCosArray(const double* __restrict x, double* __restrict sin, double* __restrict cos, int n) {
  uint64_t beyond = 0;
  MILL_SIMD
  for (int i = 0; i < n; ++i) {
    const SinCosPair pair = SinCosBounded(x[i]);
    sin[i] = pair.sin;
    cos[i] = pair.cos;
    beyond |= std::fabs(x[i]) < kTrigLimit ? uint64_t{0} : uint64_t{1};
  }
  if (beyond == 0) return;
  for (int i = 0; i < n; ++i) {
    const SinCosPair pair = SinCos(x[i]);
    sin[i] = pair.sin;
    cos[i] = pair.cos;
  }
}

}  // namespace millrace
