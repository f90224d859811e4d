// What happens where something is missing. Machines differ, so each test takes what it needs from
// CountCudaDevices.
#include "kernels/device/backend.h"

#include "gtest/gtest.h"

namespace millrace {
namespace {

TEST(Backend, TheCpuIsAlwaysThere) {
  const auto device = OpenDevice("cpu");
  ASSERT_TRUE(device.ok());
  EXPECT_EQ((*device)->Info()->name, "cpu");
}

TEST(Backend, AnUnknownNameListsTheKnownOnes) {
  for (const char* name : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda1", "CPU"}) {
    const auto device = OpenDevice(name);
    EXPECT_EQ(device.status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_NE(device.status().message().find("cpu, cuda and cuda:N"), std::string::npos) << name;
  }
}

TEST(Backend, ADeviceThatIsNotThereIsAnErrorAndNothingElse) {
  const auto device = OpenDevice("cuda:99");
  ASSERT_FALSE(device.ok());
  EXPECT_FALSE(device.status().message().empty());
}

TEST(Backend, AFileThatIsNoLibraryIsNamed) {
  const auto missing = LoadCudaBackendFrom("/nowhere/libmillrace_cuda.so");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(missing.status().message().find("/nowhere/libmillrace_cuda.so"), std::string::npos);
}

TEST(Backend, ALibraryThatIsNotOursIsNamed) {
  const auto other = LoadCudaBackendFrom("libm.so.6");
  EXPECT_EQ(other.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(other.status().message().find("libm.so.6 is no CUDA backend"), std::string::npos)
      << other.status();
}

TEST(Backend, ALibraryOfAnotherInterfaceIsRefused) {
  const auto other = LoadCudaBackendFrom(MILLRACE_OTHER_BACKEND);
  EXPECT_EQ(other.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(other.status().message().find("was built for another Millrace"), std::string::npos)
      << other.status();
}

TEST(Backend, TheDescriptionHasALineForTheCpuAndOneForCuda) {
  const std::string text = DescribeDevices();
  EXPECT_EQ(text.rfind("cpu", 0), 0u) << text;
  EXPECT_NE(text.find("\ncuda"), std::string::npos) << text;
  const auto devices = CountCudaDevices();
  const std::string why = devices.ok() ? "" : std::string(devices.status().message());
  EXPECT_NE(text.find(why), std::string::npos) << text;
}

}  // namespace
}  // namespace millrace
