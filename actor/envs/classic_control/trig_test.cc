#include "actor/envs/classic_control/trig.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/ops/philox.h"

namespace millrace {
namespace {

// The distance from the true value in units of the last place of the result.
double UlpError(double got, long double want) {
  const double magnitude = std::max(std::fabs(got), std::numeric_limits<double>::min());
  const double ulp = std::nextafter(magnitude, HUGE_VAL) - magnitude;
  return static_cast<double>(std::fabs(static_cast<long double>(got) - want) / ulp);
}

void ExpectWithinOneUlp(double x) {
  const SinCosPair pair = SinCos(x);
  const long double exact = x;
  EXPECT_LE(UlpError(pair.sin, std::sin(exact)), 1.0) << "sin of " << x;
  EXPECT_LE(UlpError(pair.cos, std::cos(exact)), 1.0) << "cos of " << x;
}

TEST(TrigTest, RandomArgumentsOfEveryMagnitude) {
  for (uint32_t i = 0; i < 200'000; ++i) {
    const Philox4 words = PhiloxAt(1, Purpose::kTest, 0, i);
    const double limit = std::ldexp(1.0, static_cast<int>(words.v[2] % 18));  // 1 .. 131072, past the limit
    ExpectWithinOneUlp((2.0 * UniformDouble(words.v[0], words.v[1]) - 1.0) * limit);
    if (HasFailure()) return;
  }
}

TEST(TrigTest, NeighboursOfMultiplesOfQuarterPi) {
  for (int k = -130'000; k <= 130'000; k += 13) {
    const double near = static_cast<double>(k) * 0.78539816339744828;
    for (const double x : {std::nextafter(near, -HUGE_VAL), near, std::nextafter(near, HUGE_VAL)}) {
      ExpectWithinOneUlp(x);
      if (HasFailure()) return;
    }
  }
}

TEST(TrigTest, ExactAndSmallArguments) {
  EXPECT_EQ(SinCos(0.0).sin, 0.0);
  EXPECT_EQ(SinCos(0.0).cos, 1.0);
  for (const double x : {1e-300, 1e-20, 1e-9, 1e-4, -1e-4}) ExpectWithinOneUlp(x);
}

TEST(TrigTest, NotFiniteGivesNan) {
  EXPECT_TRUE(std::isnan(SinCos(std::numeric_limits<double>::infinity()).sin));
  EXPECT_TRUE(std::isnan(SinCos(std::numeric_limits<double>::quiet_NaN()).cos));
}

TEST(TrigTest, ArraysHaveTheBitsOfTheScalar) {
  for (const bool far : {false, true}) {
    std::vector<double> x(37), sin(37), cos(37);
    for (size_t i = 0; i < x.size(); ++i) x[i] = 0.37 * static_cast<double>(i) - 5.0;
    if (far) x[20] = 3e7;
    SinCosArray(x.data(), sin.data(), cos.data(), static_cast<int>(x.size()));
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(sin[i], SinCos(x[i]).sin);
      EXPECT_EQ(cos[i], SinCos(x[i]).cos);
    }
  }
}

}  // namespace
}  // namespace millrace
