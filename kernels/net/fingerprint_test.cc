#include "kernels/net/fingerprint.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace millrace {
namespace {

TEST(KernelFingerprint, IsTheSameEachTime) {
  EXPECT_EQ(KernelFingerprint(), KernelFingerprint());
  EXPECT_NE(KernelFingerprint(), 0u);
}

// Which set of kernels runs is chosen once a process, so this test starts itself anew for each.
TEST(KernelFingerprint, IsTheSameForEverySetOfKernels) {
  if (const char* expected = std::getenv("MILLRACE_EXPECTED_FINGERPRINT"); expected != nullptr) {
    EXPECT_EQ(std::to_string(KernelFingerprint()), expected);
    return;
  }
  char self[4096];
  std::FILE* name = std::fopen("/proc/self/cmdline", "rb");
  ASSERT_NE(name, nullptr);
  ASSERT_NE(std::fgets(self, sizeof(self), name), nullptr);  // up to the zero behind the program's path
  std::fclose(name);
  const std::string command =
      "MILLRACE_CPU_KERNELS=avx2 MILLRACE_EXPECTED_FINGERPRINT=" + std::to_string(KernelFingerprint()) +
      " '" + self + "' --gtest_filter=KernelFingerprint.IsTheSameForEverySetOfKernels >/dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

}  // namespace
}  // namespace millrace
