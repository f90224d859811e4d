#include "kernels/ops/shuffle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/testing/same_bits.h"

namespace millrace {
namespace {

Philox4 Key(uint64_t epoch) {
  return PhiloxAt(17, Purpose::kShuffle, 0, epoch);
}

void ExpectBijection(uint32_t n, uint64_t epoch) {
  const Permutation p = MakePermutation(n, Key(epoch));
  std::vector<uint8_t> seen(n);
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t x = Permute(p, i);
    ASSERT_LT(x, n);
    ASSERT_EQ(seen[x], 0) << "n " << n << ": " << x << " twice";
    seen[x] = 1;
  }
}

TEST(Shuffle, IsABijection) {
  for (uint32_t n = 1; n <= 300; ++n) ExpectBijection(n, n);
  for (uint32_t n : {1024u, 65535u, 65536u, 65537u, 100003u}) ExpectBijection(n, 1);
}

TEST(Shuffle, StaysInsideLargeRanges) {
  for (uint32_t n : {0x40000000u, 0x40000001u, 0x7fffffffu, 0x80000000u}) {
    const Permutation p = MakePermutation(n, Key(2));
    for (uint32_t i = 0; i < 100; ++i) EXPECT_LT(Permute(p, n - 1 - i), n);
  }
}

TEST(Shuffle, KeysDiffer) {
  const uint32_t n = 1000;
  int same = 0, fixed = 0;
  for (uint32_t i = 0; i < n; ++i) {
    same += Permute(i, n, Key(1)) == Permute(i, n, Key(2));
    fixed += Permute(i, n, Key(1)) == i;
  }
  EXPECT_LT(same, 10);
  EXPECT_LT(fixed, 10);
}

// Chi-square over (position, value) cells and over the steps between neighbours, many keys: each cell is as
// likely.
void ExpectUniform(uint32_t n) {
  const int keys = 2000;
  std::vector<int> cell(static_cast<size_t>(n) * n), step(n);
  for (int k = 0; k < keys; ++k) {
    const Permutation p = MakePermutation(n, Key(static_cast<uint64_t>(k)));
    for (uint32_t i = 0; i < n; ++i) {
      const uint32_t x = Permute(p, i);
      ++cell[static_cast<size_t>(i) * n + x];
      ++step[(Permute(p, (i + 1) % n) + n - x) % n];
    }
  }
  const double expected = static_cast<double>(keys) / n;
  double chi = 0.0;
  for (int c : cell) chi += (c - expected) * (c - expected) / expected;
  const double freedom = (n - 1.0) * (n - 1.0);
  EXPECT_LT(chi, freedom + 5.0 * std::sqrt(2.0 * freedom)) << n;
  EXPECT_EQ(step[0], 0);
  const double steps = static_cast<double>(keys) * n / (n - 1);
  double chi_step = 0.0;
  for (uint32_t s = 1; s < n; ++s) chi_step += (step[s] - steps) * (step[s] - steps) / steps;
  EXPECT_LT(chi_step, n - 2 + 6.0 * std::sqrt(2.0 * (n - 2))) << n;
}

TEST(Shuffle, PositionsAreUniform) {
  for (uint32_t n : {5u, 8u, 16u, 23u, 32u, 60u}) ExpectUniform(n);
}

TEST(Shuffle, FillsAnySlice) {
  for (uint32_t n : {3000u, 4096u}) {
    const Permutation p = MakePermutation(n, Key(3));
    std::vector<int32_t> slice(1700);
    ExpectSameBits<FillPermutation>({p, 1234, 1700, slice.data()}, {slice});
    for (uint32_t i = 0; i < 1700; ++i) EXPECT_EQ(slice[i], static_cast<int32_t>(Permute(p, 1234 + i)));
  }
}

}  // namespace
}  // namespace millrace
