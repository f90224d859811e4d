#include "common/cpu_check.h"

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(CpuCheckTest, TheCpuThatRunsTheTestsSuffices) {
  EXPECT_TRUE(CheckCpu().ok());
  EXPECT_TRUE(CheckCpu(0, 0).ok());
  EXPECT_TRUE(CheckCpu(kCpuAvx, kCpuAvx | kCpuAvx2).ok());
}

TEST(CpuCheckTest, TheBuildNeedsWhatItsTargetHas) {
#if defined(__AVX2__)
  EXPECT_TRUE(kBuildCpuFeatures & kCpuAvx2);
#else
  EXPECT_FALSE(kBuildCpuFeatures & kCpuAvx2);
#endif
}

TEST(CpuCheckTest, NamesWhatIsMissingAndTheOption) {
  const Status status = CheckCpu(kCpuAvx2 | kCpuFma | kCpuAvx512vl, kCpuFma);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr(": avx2 avx512vl;"));
  EXPECT_THAT(status.message(), HasSubstr("-DMILLRACE_MARCH="));
  EXPECT_THAT(status.message(), Not(HasSubstr("fma")));
}

TEST(CpuCheckTest, TheLongestMessageIsWhole) {
  EXPECT_TRUE(absl::EndsWith(CheckCpu(~0u, 0).message(), "builds)"));
}

}  // namespace
}  // namespace millrace
