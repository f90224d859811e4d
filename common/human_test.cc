#include "common/human.h"

#include <cmath>

#include "gtest/gtest.h"

namespace millrace {
namespace {

TEST(Human, Counts) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(999.7), "1.00k");
  EXPECT_EQ(FormatCount(1000), "1.00k");
  EXPECT_EQ(FormatCount(9995), "10.0k");
  EXPECT_EQ(FormatCount(12345), "12.3k");
  EXPECT_EQ(FormatCount(99'960), "100k");
  EXPECT_EQ(FormatCount(999'499), "999k");
  EXPECT_EQ(FormatCount(999'500), "1.00M");
  EXPECT_EQ(FormatCount(1.5e9), "1.50G");
  EXPECT_EQ(FormatCount(1.5e12), "1.50T");
  EXPECT_EQ(FormatCount(NAN), "-");
}

TEST(Human, Durations) {
  EXPECT_EQ(FormatDuration(0), "0s");
  EXPECT_EQ(FormatDuration(-1), "0s");
  EXPECT_EQ(FormatDuration(0.00001), "0s");
  EXPECT_EQ(FormatDuration(0.844), "0.84s");
  EXPECT_EQ(FormatDuration(3.96), "4s");
  EXPECT_EQ(FormatDuration(9.999), "10s");
  EXPECT_EQ(FormatDuration(59.4), "59s");
  EXPECT_EQ(FormatDuration(59.6), "1m00s");
  EXPECT_EQ(FormatDuration(185), "3m05s");
  EXPECT_EQ(FormatDuration(7440), "2h04m");
  EXPECT_EQ(FormatDuration(273600), "3d04h");
  EXPECT_EQ(FormatDuration(INFINITY), "-");
}

TEST(Human, Reals) {
  EXPECT_EQ(FormatReal(475), "475");
  EXPECT_EQ(FormatReal(-199.87), "-199.9");
  EXPECT_EQ(FormatReal(123456), "1.235e+05");
  EXPECT_EQ(FormatReal(NAN), "-");
}

}  // namespace
}  // namespace millrace
