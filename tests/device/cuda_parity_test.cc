// Every parity case on the first CUDA device, against the CPU. Where there is no device it says so, and
// checks what can be checked without one: that the backend loads, has every op, and would launch each case
// within what a block may have. MILLRACE_REQUIRE_DEVICE=1 makes a missing device a failure.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "gtest/gtest.h"
#include "kernels/device/backend.h"
#include "kernels/testing/parity.h"

namespace millrace {
namespace {

const std::vector<ParityCase>& Cases() {
  static const std::vector<ParityCase> cases = ParityCases();
  return cases;
}

StatusOr<std::unique_ptr<Device>> FirstDevice() {
  return OpenDevice("cuda");
}

bool DeviceRequired() {
  const char* value = std::getenv("MILLRACE_REQUIRE_DEVICE");
  return value != nullptr && std::string(value) == "1";
}

TEST(CudaBackend, LoadsAndSaysWhatItIs) {
  const auto backend = LoadCudaBackend();
  ASSERT_TRUE(backend.ok()) << backend.status();
  std::printf("the CUDA backend: %s\n", (*backend)->build);
  const auto devices = (*backend)->count_devices();
  const auto driver = CountCudaDevices();
  if (driver.ok()) {
    ASSERT_TRUE(devices.ok()) << devices.status();
    EXPECT_EQ(*devices, *driver);
  } else {
    // Without a driver the runtime finds none, or says why.
    EXPECT_TRUE(!devices.ok() || *devices == 0);
  }
}

TEST(CudaBackend, MakingADeviceThatIsNotThereNamesTheCall) {
  const auto backend = LoadCudaBackend();
  ASSERT_TRUE(backend.ok()) << backend.status();
  const auto device = (*backend)->make_device(99, {});
  ASSERT_FALSE(device.ok());
  EXPECT_NE(device.status().message().find("cudaSetDevice"), std::string::npos) << device.status();
  EXPECT_NE(device.status().message().find("cudaError"), std::string::npos) << device.status();
}

TEST(CudaBackend, EveryCaseHasALaunchWithinABlocksLimits) {
  const auto backend = LoadCudaBackend();
  ASSERT_TRUE(backend.ok()) << backend.status();
  std::vector<size_t> shared(static_cast<size_t>(kOpCount));
  for (const ParityCase& c : Cases()) {
    if (c.op < 0) continue;
    std::vector<std::byte> memory = c.image.bytes();
    const auto params = c.params(ImageView{memory.data()});
    const auto shape = (*backend)->launch_shape(static_cast<OpId>(c.op), params.data(), params.size());
    ASSERT_TRUE(shape.ok()) << c.name << ": " << shape.status();
    EXPECT_GE(shape->tiles, 1) << c.name;
    EXPECT_GE(shape->blocks, 1) << c.name;
    EXPECT_LE(shape->blocks, shape->tiles) << c.name;
    EXPECT_EQ(shape->threads % 32, 0) << c.name;
    EXPECT_LE(shape->threads, 1024) << c.name;
    EXPECT_LE(shape->shared_bytes, size_t{99} << 10) << c.name;
    const bool in_turn = c.name.find(" stride 0") != std::string::npos;
    EXPECT_TRUE(!in_turn || shape->blocks == 1) << c.name;
    shared[static_cast<size_t>(c.op)] = shape->shared_bytes;
  }
  for (size_t op = 0; op < shared.size(); ++op)
    std::printf("  %-20s %6zu bytes shared\n", kOpNames[op], shared[op]);
}

TEST(CudaBackend, ParamsOfAnotherSizeAreRefusedByName) {
  const auto backend = LoadCudaBackend();
  ASSERT_TRUE(backend.ok()) << backend.status();
  for (int op = 0; op < kOpCount; ++op) {
    const auto shape = (*backend)->launch_shape(static_cast<OpId>(op), nullptr, 1);
    EXPECT_EQ(shape.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(shape.status().message().find(kOpNames[op]), std::string::npos) << shape.status();
  }
}

TEST(CudaParity, EveryCaseAgreesWithTheCpu) {
  const auto device = FirstDevice();
  if (!device.ok()) {
    const std::string why(device.status().message());
    std::printf("no CUDA device is present: %zu parity cases not run (%s)\n", Cases().size(), why.c_str());
    EXPECT_FALSE(DeviceRequired()) << "MILLRACE_REQUIRE_DEVICE is set and there is no device: " << why;
    return;
  }
  size_t passed = 0;
  for (const ParityCase& c : Cases()) {
    const Status status = RunParity(c, **device);
    EXPECT_TRUE(status.ok()) << status;
    passed += status.ok() ? 1 : 0;
  }
  std::printf("%zu of %zu parity cases agree on %s\n", passed, Cases().size(),
              (*device)->Info()->name.c_str());
}

// Twice the same work gives the same bits, products included.
TEST(CudaParity, TheSameRunGivesTheSameBits) {
  const auto device = FirstDevice();
  if (!device.ok()) {
    std::printf("no CUDA device is present: reproducibility not checked\n");
    EXPECT_FALSE(DeviceRequired());
    return;
  }
  const auto stream = (*device)->NewStream();
  ASSERT_TRUE(stream.ok()) << stream.status();
  for (const ParityCase& c : Cases()) {
    if (c.op >= 0) continue;
    std::vector<std::byte> first;
    for (int run = 0; run < 3; ++run) {
      const auto got = RunCase(c, **device, **stream, false);
      ASSERT_TRUE(got.ok()) << c.name << ": " << got.status();
      if (run == 0) first = *got;
      EXPECT_TRUE(first == *got) << c.name;
    }
  }
}

TEST(CudaDevice, CopiesEventsAndGraphsWork) {
  const auto device = FirstDevice();
  if (!device.ok()) {
    std::printf("no CUDA device is present: streams, events and graphs not run\n");
    EXPECT_FALSE(DeviceRequired());
    return;
  }
  constexpr size_t kBytes = 1 << 20;
  const auto memory = (*device)->Allocate(kBytes), pinned = (*device)->AllocateHost(kBytes);
  ASSERT_TRUE(memory.ok() && pinned.ok());
  const auto stream = (*device)->NewStream(), second = (*device)->NewStream();
  ASSERT_TRUE(stream.ok() && second.ok());
  const auto begin = (*device)->NewEvent(), end = (*device)->NewEvent();
  ASSERT_TRUE(begin.ok() && end.ok());
  std::memset((*pinned)->data(), 7, kBytes);
  // One stream fills, the other waits for it, clears half and reads back.
  ASSERT_TRUE((*stream)->Record(**begin).ok());
  ASSERT_TRUE((*stream)->CopyToDevice((*memory)->data(), (*pinned)->data(), kBytes).ok());
  ASSERT_TRUE((*stream)->Record(**end).ok());
  ASSERT_TRUE((*second)->Wait(**end).ok());
  ASSERT_TRUE((*second)->Zero((*memory)->data(), kBytes / 2).ok());
  std::vector<unsigned char> back(kBytes);
  ASSERT_TRUE((*second)->CopyToHost(back.data(), (*memory)->data(), kBytes).ok());
  ASSERT_TRUE((*second)->Synchronize().ok());
  EXPECT_EQ(back[kBytes / 2 - 1], 0);
  EXPECT_EQ(back[kBytes / 2], 7);
  ASSERT_TRUE((*end)->Synchronize().ok());
  const auto seconds = (*end)->SecondsSince(**begin);
  ASSERT_TRUE(seconds.ok()) << seconds.status();
  EXPECT_GE(*seconds, 0.0);
  // Too much memory is an error with the bytes in it, and the device goes on.
  const auto too_much = (*device)->Allocate(size_t{1} << 50);
  EXPECT_EQ(too_much.status().code(), absl::StatusCode::kResourceExhausted) << too_much.status();
  EXPECT_TRUE((*device)->Allocate(kBytes).ok());
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  std::printf("%s", millrace::DescribeDevices().c_str());
  return RUN_ALL_TESTS();
}
