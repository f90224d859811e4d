// The register tile under the CPU's GEMM: kRows x kWidth elements of C, each one chain of fused
// multiply-adds. Vectors of 16 where the including file defines MILL_VECTORS_AVX512, of 8 where the target
// has AVX2 and FMA, else the same chains as plain loops.
//
// Everything is in an anonymous namespace and calls nothing of the standard library, so that each file that
// includes this has code of its own, compiled for its own CPU (cpu_kernel_set.h). Owner: none. Any thread.
// Station: internal to the CPU's GEMM and to fma_peak.
#pragma once

#include <cstddef>
#include <utility>

#include "kernels/core/target.h"

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#endif

namespace millrace::gemm {
namespace {

// Columns of a panel of packed weights, the same for all sets.
constexpr int kPanel = 16;

#if defined(MILL_VECTORS_AVX512)
constexpr int kVectorLanes = 16;
constexpr int kRegisters = 32;
#else
constexpr int kVectorLanes = 8;
constexpr int kRegisters = 16;
#endif

#if defined(__AVX2__) && defined(__FMA__)

template <int kLanesOfVector>
struct Vector;

#if defined(MILL_VECTORS_AVX512)
template <>
struct Vector<16> {
  using Type = __m512;
  static MILL_HD Type Zero() { return _mm512_setzero_ps(); }
  static MILL_HD Type Load(const float* p) { return _mm512_loadu_ps(p); }
  static MILL_HD void Store(float* p, Type v) { _mm512_storeu_ps(p, v); }
  static MILL_HD Type Broadcast(const float* p) { return _mm512_set1_ps(*p); }
  static MILL_HD Type MulAdd(Type a, Type b, Type c) { return _mm512_fmadd_ps(a, b, c); }
};
#endif

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

// A number as a type; std::integral_constant's conversion would be a function that other files share.
template <int kValue>
struct Constant {
  static constexpr int value = kValue;
  MILL_HD constexpr operator int() const { return kValue; }
};

// f(0), f(1), ... with constants, so that an array indexed by them lives in registers (after a loop's
// unrolling it may not: GCC 12 then stores every accumulator in every step).
template <int kCount, class F>
MILL_HD void Unrolled(F&& f) {
  [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
    (f(Constant<i>{}), ...);
  }
  (std::make_integer_sequence<int, kCount>{});
}

// Vectors that the compiler shuffles by itself, in whatever instructions the target has.
template <int kCount>
struct Shuffled;
template <>
struct Shuffled<16> {
  typedef float Type __attribute__((vector_size(64)));
};
template <>
struct Shuffled<8> {
  typedef float Type __attribute__((vector_size(32)));
};

// to(j, i) = from(i, j) of a block of kSide x kSide, a power of two. In each round two rows `kHalf` apart
// trade the quarters of their blocks that are on the wrong side of the diagonal.
template <int kSide>
MILL_HD void TransposeBlock(const float* from, ptrdiff_t from_ld, float* to, ptrdiff_t to_ld) {
  using Row = typename Shuffled<kSide>::Type;
  Row rows[kSide];
  Unrolled<kSide>([&](auto i) { __builtin_memcpy(&rows[i], from + i * from_ld, sizeof(Row)); });
  const auto trade = [&]<int kHalf, int... lane>(Constant<kHalf>, std::integer_sequence<int, lane...>)
      __attribute__((always_inline)) {
    Unrolled<kSide>([&](auto i) {
      if constexpr ((decltype(i)::value & kHalf) == 0) {
        const Row a = rows[i], b = rows[i + kHalf];
        rows[i] = __builtin_shufflevector(a, b, ((lane & kHalf) == 0 ? lane : lane - kHalf + kSide)...);
        rows[i + kHalf] =
            __builtin_shufflevector(a, b, ((lane & kHalf) == 0 ? lane + kHalf : lane + kSide)...);
      }
    });
  };
  const auto lanes = std::make_integer_sequence<int, kSide>{};
  if constexpr (kSide >= 16) trade(Constant<8>{}, lanes);
  trade(Constant<4>{}, lanes);
  trade(Constant<2>{}, lanes);
  trade(Constant<1>{}, lanes);
  Unrolled<kSide>([&](auto i) { __builtin_memcpy(to + i * to_ld, &rows[i], sizeof(Row)); });
}

// C(row, j) = chain over s < steps of A(row, s) * B(s, j), where 16 columns of B are next to each other and
// the next 16 are `panel` further: B(s, j) = b[s * ldb + j / 16 * panel + j % 16].
template <TileKind kKind, int kRows, int kWidth>
void Tile(int steps, const float* a, ptrdiff_t lda, const float* b, ptrdiff_t ldb, ptrdiff_t panel, float* c,
          ptrdiff_t ldc) {
  constexpr int kLane = kWidth < kVectorLanes ? kWidth : kVectorLanes;
  constexpr int kVectors = kWidth / kLane;
  constexpr bool kAccumulate = kKind == TileKind::kAccumulate;
  using V = Vector<kLane>;
  typename V::Type acc[kRows * kVectors];
  Unrolled<kRows * kVectors>([&](auto i) {
    acc[i] = kAccumulate ? V::Load(c + i / kVectors * ldc + i % kVectors * kLane) : V::Zero();
  });
  for (int s = 0; s < steps; ++s) {
    typename V::Type bv[kVectors];
    Unrolled<kVectors>([&](auto v) { bv[v] = V::Load(b + v * kLane / kPanel * panel + v * kLane % kPanel); });
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

// Widest tile: two vectors a row, so that a broadcast of A serves two FMAs and loads don't hold them up.
constexpr int kWidestTile = 2 * kVectorLanes;

// Most rows of a tile: accumulators, B's vectors and a broadcast fit in the registers, and there are enough
// chains to hide the latency of an FMA.
template <int kWidth>
constexpr int kTileRows = kWidth <= kVectorLanes ? 12 : (kRegisters - 4) / (kWidth / kVectorLanes) / 2 * 2;

using TileFunction = void (*)(int steps, const float* a, ptrdiff_t lda, const float* b, ptrdiff_t ldb,
                              ptrdiff_t panel, float* c, ptrdiff_t ldc);

template <TileKind kKind, int kWidth, class Rows>
struct TileTable;
template <TileKind kKind, int kWidth, int... kRow>
struct TileTable<kKind, kWidth, std::integer_sequence<int, kRow...>> {
  static constexpr TileFunction of[] = {Tile<kKind, kRow + 1, kWidth>...};
};

// The tile of `rows` rows.
template <TileKind kKind, int kWidth>
MILL_HD TileFunction TileOf(int rows) {
  return TileTable<kKind, kWidth, std::make_integer_sequence<int, kTileRows<kWidth>>>::of[rows - 1];
}

// Rows of the next tile when `left` remain: full tiles, and the last two even, for a short tile has too few
// chains.
template <int kWidth>
constexpr int NextRows(int left) {
  constexpr int kMost = kTileRows<kWidth>;
  if (left >= 2 * kMost || left == kMost) return kMost;
  return left > kMost ? (left + 1) / 2 : left;
}

}  // namespace
}  // namespace millrace::gemm
