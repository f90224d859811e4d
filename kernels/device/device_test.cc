#include "kernels/device/device.h"

#include <vector>

#include "gtest/gtest.h"
#include "kernels/device/kernels.h"
#include "kernels/ops/all_ops.h"

namespace millrace {
namespace {

class CpuDeviceTest : public testing::Test {
 protected:
  Status Fill(float value) {  // out = value, by an op: pre = value, no activation
    in_ = value;
    return device_->kernels().Run<ApplyActivation>(*stream_, {1, 1, Activation::kNone, &in_, 1, &out_, 1});
  }

  std::unique_ptr<Device> device_ = MakeCpuDevice();
  std::unique_ptr<Stream> stream_ = *device_->NewStream();
  float in_ = 0.0f, out_ = -1.0f;
};

TEST_F(CpuDeviceTest, BuffersHoldWhatIsCopied) {
  const auto buffer = device_->Allocate(12);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>((*buffer)->data()) % 256, 0u);
  const std::vector<int32_t> host = {1, 2, 3};
  std::vector<int32_t> back(3);
  ASSERT_TRUE(stream_->CopyToDevice((*buffer)->data(), host.data(), 12).ok());
  ASSERT_TRUE(stream_->Zero((*buffer)->data(), 4).ok());
  ASSERT_TRUE(stream_->CopyToHost(back.data(), (*buffer)->data(), 12).ok());
  ASSERT_TRUE(stream_->Synchronize().ok());
  EXPECT_EQ(back, (std::vector<int32_t>{0, 2, 3}));
}

TEST_F(CpuDeviceTest, AnEmptyBufferIsNull) {
  const auto buffer = device_->Allocate(0);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ((*buffer)->data(), nullptr);
}

TEST_F(CpuDeviceTest, MoreMemoryThanThereIsNamesTheBytes) {
  const auto buffer = device_->Allocate(SIZE_MAX - 7);
  EXPECT_EQ(buffer.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(buffer.status().message().find(std::to_string(SIZE_MAX - 7)), std::string::npos)
      << buffer.status();
}

TEST_F(CpuDeviceTest, CapturedWorkRunsWhenLaunchedAndReadsMemoryThen) {
  ASSERT_TRUE(stream_->BeginCapture().ok());
  ASSERT_TRUE(Fill(3.0f).ok());
  EXPECT_FALSE(stream_->Synchronize().ok());
  EXPECT_FALSE(stream_->BeginCapture().ok());
  auto graph = stream_->EndCapture();
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(out_, -1.0f);
  ASSERT_TRUE(stream_->Launch(**graph).ok());
  EXPECT_EQ(out_, 3.0f);
  in_ = 5.0f;
  ASSERT_TRUE(stream_->Launch(**graph).ok());
  EXPECT_EQ(out_, 5.0f);
  EXPECT_FALSE(stream_->EndCapture().ok());
}

TEST_F(CpuDeviceTest, EventsMeasure) {
  const auto begin = device_->NewEvent(), end = device_->NewEvent();
  ASSERT_TRUE(begin.ok() && end.ok());
  EXPECT_EQ((*end)->SecondsSince(**begin).status().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(stream_->Record(**begin).ok());
  ASSERT_TRUE(stream_->Record(**end).ok());
  ASSERT_TRUE(stream_->Wait(**begin).ok());
  EXPECT_GE(*(*end)->SecondsSince(**begin), 0.0);
}

TEST_F(CpuDeviceTest, ParamsOfAnotherSizeAreRefusedByName) {
  const int wrong = 0;
  const Status status = device_->kernels().RunOp(*stream_, OpId::kGae, &wrong, sizeof(wrong));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("Gae"), std::string::npos) << status;
}

TEST_F(CpuDeviceTest, ItSaysWhatItIs) {
  const auto info = device_->Info();
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->kind, DeviceKind::kCpu);
  EXPECT_GE(info->total_bytes, info->free_bytes);
}

}  // namespace
}  // namespace millrace
