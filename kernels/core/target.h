// The one place that knows which compiler runs. MILL_HD marks what both sides compile; the arithmetic below
// has the same bits on both: contraction is off everywhere, and a fused multiply-add is written as Fma.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define MILL_HD __host__ __device__ __forceinline__
#else
#define MILL_HD inline __attribute__((always_inline))
#endif

// For loops whose iterations are independent. Not under ThreadSanitizer: clang's passes over 32-byte accesses
// without instrumenting them, so that it saw no race in a vectorized loop.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MILL_TSAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define MILL_TSAN 1
#endif
#if defined(__CUDA_ARCH__) || defined(MILL_TSAN)
#define MILL_SIMD
#elif defined(__clang__)
#define MILL_SIMD _Pragma("clang loop vectorize(enable)")
#else
#define MILL_SIMD _Pragma("GCC ivdep")
#endif

namespace millrace {

MILL_HD float Fma(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

MILL_HD uint32_t BitsOf(float x) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(x);
#else
  return __builtin_bit_cast(uint32_t, x);
#endif
}

MILL_HD float FloatOf(uint32_t u) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(u);
#else
  return __builtin_bit_cast(float, u);
#endif
}

MILL_HD bool IsFinite(float x) {
  return (BitsOf(x) & 0x7f800000u) != 0x7f800000u;
}

}  // namespace millrace
