#include "kernels/core/fma_peak.h"

#include "gtest/gtest.h"

namespace millrace {
namespace {

// Plausible for anything from an emulator to a core of two 512-bit units at 6 GHz; a loop that was optimised
// away is not.
TEST(FmaPeak, IsPlausible) {
  const double gflops = FmaPeakGflops(0.002);
  EXPECT_GT(gflops, 0.01);
  EXPECT_LT(gflops, 400);
}

}  // namespace
}  // namespace millrace
