// Elementary functions of float32, written once for both compilers: no branch, no library call, every fused
// multiply-add an explicit Fma. So a loop over them vectorizes, and a scalar call, a vectorized loop and a
// CUDA thread give the same bits. Pure functions: no owner, any thread. Station: inside ops and GEMM
// epilogues.
//
// Largest error against double precision over a stride of all float32 bit patterns (math_test.cc), in ulp of
// the result:
//   Exp 1.0   Log 0.8   Log1p 1.5   Tanh 2.53   Sigmoid 2.4   Softplus 1.9;   SinCos2Pi 1e-7 absolute
// Infinities, NaN, zeros, denormals, overflow and underflow behave as in C's library, except where a line
// below says so.
//
// Coefficients are minimax fits made for these ranges (weighted least squares in 50 digits, then rounded to
// float32).
#pragma once

#include "kernels/core/target.h"

namespace millrace {

// Adding and subtracting 1.5 * 2^23 rounds to the nearest integer, which then stands in the low bits of the
// sum.
inline constexpr float kRoundMagic = 12582912.0f;

MILL_HD float Abs(float x) {
  return FloatOf(BitsOf(x) & 0x7fffffffu);
}
// The magnitude of `x` (must not be negative) with the sign of `sign`.
MILL_HD float WithSign(float x, float sign) {
  return FloatOf(BitsOf(x) | (BitsOf(sign) & 0x80000000u));
}
// A NaN in x stays a NaN; hi and lo are never NaN.
MILL_HD float AtMost(float x, float hi) {
  return x > hi ? hi : x;
}
MILL_HD float AtLeast(float x, float lo) {
  return x < lo ? lo : x;
}

MILL_HD float Sqrt(float x) {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(x);
#else
  return __builtin_sqrtf(x);
#endif
}

// e^x. Below -104 zero, above 88.73 infinity; results between 2^-149 and 2^-126 are denormals.
MILL_HD float Exp(float x) {
  const float c = AtLeast(AtMost(x, 89.0f), -104.0f);
  const float z = Fma(c, 1.44269502f, kRoundMagic);  // c / ln 2, rounded
  const float n = z - kRoundMagic;
  const float r =
      Fma(n, -1.42860677e-6f, Fma(n, -0.693145752f, c));  // ln 2 in two parts: r in [-ln2/2, ln2/2]
  float q = 0.00138146018f;
  q = Fma(q, r, 0.00836871196f);
  q = Fma(q, r, 0.0416683877f);
  q = Fma(q, r, 0.166665207f);
  q = Fma(q, r, 0.499999935f);
  const float p = Fma(r * r, q, r) + 1.0f;
  // 2^n as two factors, for n reaches -150 and 128.
  const uint32_t bits = BitsOf(z) - BitsOf(kRoundMagic);
  const uint32_t half = static_cast<uint32_t>(static_cast<int32_t>(bits) >> 1);
  const float s0 = FloatOf((half + 127u) << 23);
  const float s1 = FloatOf((bits - half + 127u) << 23);
  return p * s0 * s1;
}

// Natural logarithm. Log(0) = -inf, negative numbers give NaN.
MILL_HD float Log(float x) {
  const bool tiny = x < 0x1p-126f;
  const float scaled = tiny ? x * 0x1p23f : x;
  // x = 2^e * m, m in [sqrt(1/2), sqrt(2)): subtracting sqrt(1/2)'s bits makes the exponent field e.
  const uint32_t bits = BitsOf(scaled) - 0x3f3504f3u;
  const int32_t exponent = (static_cast<int32_t>(bits) >> 23) - (tiny ? 23 : 0);
  const float f = FloatOf((bits & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
  const float e = static_cast<float>(exponent);
  float q = 0.0674618743f;
  q = Fma(q, f, -0.116753785f);
  q = Fma(q, f, 0.118882181f);
  q = Fma(q, f, -0.124056373f);
  q = Fma(q, f, 0.142195507f);
  q = Fma(q, f, -0.166679931f);
  q = Fma(q, f, 0.200021187f);
  q = Fma(q, f, -0.250000097f);
  q = Fma(q, f, 0.333333126f);
  const float f2 = f * f;
  const float small = Fma(e, 1.42860677e-6f, Fma(f2 * f, q, f2 * -0.5f));
  float y = Fma(e, 0.693145752f, f + small);
  y = x < __builtin_inff() ? y : x;  // infinity and NaN
  y = x < 0.0f ? __builtin_nanf("") : y;
  return x == 0.0f ? -__builtin_inff() : y;
}

// ln(1 + x), accurate for small x: the rounding of 1 + x is known and put back to first order.
MILL_HD float Log1p(float x) {
  const float u = 1.0f + x;
  const float lost = x - (u - 1.0f);
  const float correction = Abs(lost) > 0.0f ? lost / u : 0.0f;
  return Log(u) + (u < __builtin_inff() ? correction : 0.0f);
}

// tanh x = tanh(n ln2/2 + r), |r| <= ln2/4: with S = 2^n and h = tanh r it is (S - 1 + h (S + 1)) / (S + 1 +
// h (S - 1)).
MILL_HD float Tanh(float x) {
  const float c = AtMost(Abs(x), 20.0f);
  constexpr float kMagic = kRoundMagic + 127.0f;  // leaves n with the exponent's bias in the low bits
  const float z = Fma(c, 2.88539008f, kMagic);    // 2 / ln 2
  const float n = z - kMagic;
  const float s = FloatOf(BitsOf(z) << 23);
  const float r = Fma(n, -0.34657359f, c);
  const float u = r * r;
  const float h = Fma(r * u, Fma(u, 0.131105137f, -0.3333127f), r);
  return WithSign(Fma(h, s + 1.0f, s - 1.0f) / Fma(h, s - 1.0f, s + 1.0f), x);
}

// 1 / (1 + e^-x); the exponential never overflows, so both tails keep their precision.
MILL_HD float Sigmoid(float x) {
  const float e = Exp(-Abs(x));
  return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

// ln(1 + e^x)
MILL_HD float Softplus(float x) {
  return AtLeast(x, 0.0f) + Log1p(Exp(-Abs(x)));
}

struct SinCos {
  float sin, cos;
};

// sin and cos of 2 pi u, for |u| up to 2^21 (a uniform number in [0, 1) is what it is for).
MILL_HD SinCos SinCos2Pi(float u) {
  const float z = Fma(u, 4.0f, kRoundMagic);
  const uint32_t quadrant = BitsOf(z);
  const float r = Fma(z - kRoundMagic, -0.25f, u);  // exact, in [-1/8, 1/8]
  const float r2 = r * r;
  const float s = r * Fma(r2, Fma(r2, Fma(r2, -75.393954f, 81.5923643f), -41.3416615f), 6.28318529f);
  const float c =
      Fma(r2, Fma(r2, Fma(r2, Fma(r2, 59.2292539f, -85.4432366f), 64.9393218f), -19.7392087f), 1.0f);
  const bool swap = (quadrant & 1u) != 0;
  const uint32_t sin_sign = (quadrant & 2u) << 30;
  const uint32_t cos_sign = ((quadrant + 1u) & 2u) << 30;
  return {FloatOf(BitsOf(swap ? c : s) ^ sin_sign), FloatOf(BitsOf(swap ? s : c) ^ cos_sign)};
}

}  // namespace millrace
