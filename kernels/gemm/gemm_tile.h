// The register tile under the CPU's GEMM: kRows x kWidth elements of C, each one chain of fused
// multiply-adds. AVX2 and FMA where the target has them, else the same chains as plain loops. Internal to
// gemm_cpu.cc.
#pragma once

#include <array>
#include <cstddef>
#include <utility>

#include "kernels/core/target.h"

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#endif

namespace millrace::gemm {

#if defined(__AVX2__) && defined(__FMA__)

template <int kLanesOfVector>
struct Vector;

template <>
struct Vector<8> {
  using Type = __m256;
  static MILL_HD Type Zero() { return _mm256_setzero_ps(); }
  static MILL_HD Type Load(const float* p) { return _mm256_loadu_ps(p); }
  static MILL_HD void Store(float* p, Type v) { _mm256_storeu_ps(p, v); }
  static MILL_HD Type Broadcast(const float* p) { return _mm256_broadcast_ss(p); }
  static MILL_HD Type MulAdd(Type a, Type b, Type c) { return _mm256_fmadd_ps(a, b, c); }
};

template <>
struct Vector<4> {
  using Type = __m128;
  static MILL_HD Type Zero() { return _mm_setzero_ps(); }
  static MILL_HD Type Load(const float* p) { return _mm_loadu_ps(p); }
  static MILL_HD void Store(float* p, Type v) { _mm_storeu_ps(p, v); }
  static MILL_HD Type Broadcast(const float* p) { return _mm_broadcast_ss(p); }
  static MILL_HD Type MulAdd(Type a, Type b, Type c) { return _mm_fmadd_ps(a, b, c); }
};

#else

template <int kLanesOfVector>
struct Vector {
  struct Type {
    float lane[kLanesOfVector];
  };
  static MILL_HD Type Zero() { return Type{}; }
  static MILL_HD Type Load(const float* p) {
    Type v;
    for (int i = 0; i < kLanesOfVector; ++i) v.lane[i] = p[i];
    return v;
  }
  static MILL_HD void Store(float* p, const Type& v) {
    for (int i = 0; i < kLanesOfVector; ++i) p[i] = v.lane[i];
  }
  static MILL_HD Type Broadcast(const float* p) {
    Type v;
    for (int i = 0; i < kLanesOfVector; ++i) v.lane[i] = *p;
    return v;
  }
  static MILL_HD Type MulAdd(const Type& a, const Type& b, const Type& c) {
    Type v;
    for (int i = 0; i < kLanesOfVector; ++i) v.lane[i] = Fma(a.lane[i], b.lane[i], c.lane[i]);
    return v;
  }
};

#endif

// How A is read, and where the chains begin.
enum class TileKind {
  kFromZero,    // A(row, s) = a[row * lda + s]; chains begin at zero
  kAccumulate,  // A(row, s) = a[s * lda + row]; chains go on from C
};

// f(0), f(1), ... with constants, so that an array indexed by them lives in registers (after a loop's
// unrolling it may not: GCC 12 then stores every accumulator in every step).
template <int kCount, class F>
MILL_HD void Unrolled(F&& f) {
  [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
    (f(std::integral_constant<int, i>{}), ...);
  }
  (std::make_integer_sequence<int, kCount>{});
}

// C(row, j) = chain over s < steps of A(row, s) * b[s * ldb + j]
template <TileKind kKind, int kRows, int kWidth>
void Tile(int steps, const float* a, ptrdiff_t lda, const float* b, ptrdiff_t ldb, float* c, ptrdiff_t ldc) {
  constexpr int kLane = kWidth < 8 ? kWidth : 8;
  constexpr int kVectors = kWidth / kLane;
  constexpr bool kAccumulate = kKind == TileKind::kAccumulate;
  using V = Vector<kLane>;
  typename V::Type acc[kRows * kVectors];
  Unrolled<kRows * kVectors>([&](auto i) {
    acc[i] = kAccumulate ? V::Load(c + i / kVectors * ldc + i % kVectors * kLane) : V::Zero();
  });
  for (int s = 0; s < steps; ++s) {
    typename V::Type bv[kVectors];
    Unrolled<kVectors>([&](auto v) { bv[v] = V::Load(b + v * kLane); });
    Unrolled<kRows>([&](auto r) {
      const typename V::Type av = V::Broadcast(a + (kAccumulate ? r : r * lda));
      Unrolled<kVectors>(
          [&](auto v) { acc[r * kVectors + v] = V::MulAdd(av, bv[v], acc[r * kVectors + v]); });
    });
    a += kAccumulate ? lda : 1;
    b += ldb;
  }
  Unrolled<kRows * kVectors>(
      [&](auto i) { V::Store(c + i / kVectors * ldc + i % kVectors * kLane, acc[i]); });
}

// Most rows of a tile: with the accumulators, B's vectors and a broadcast the 16 registers are full, and
// there are enough chains to hide the latency of an FMA.
template <int kWidth>
inline constexpr int kTileRows = kWidth == 16 ? 6 : 12;

using TileFunction = void (*)(int steps, const float* a, ptrdiff_t lda, const float* b, ptrdiff_t ldb,
                              float* c, ptrdiff_t ldc);

template <TileKind kKind, int kWidth, int... kRow>
constexpr std::array<TileFunction, sizeof...(kRow)> MakeTiles(std::integer_sequence<int, kRow...>) {
  return {Tile<kKind, kRow + 1, kWidth>...};
}

// kTiles<...>[rows - 1]
template <TileKind kKind, int kWidth>
inline constexpr auto kTiles = MakeTiles<kKind, kWidth>(std::make_integer_sequence<int, kTileRows<kWidth>>{});

// Rows of the next tile when `left` remain: full tiles, and the last two even, for a short tile has too few
// chains.
template <int kWidth>
constexpr int NextRows(int left) {
  constexpr int kMost = kTileRows<kWidth>;
  if (left >= 2 * kMost || left == kMost) return kMost;
  return left > kMost ? (left + 1) / 2 : left;
}

}  // namespace millrace::gemm
