// What is stored of observations of all types, discrete actions and masks; the mapped file; and what joins a
// row's segments.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>

#include "common/testing/temp_dir.h"
#include "learner/testing/replay_feed.h"

namespace millrace {
namespace {

using replay_testing::Batch;
using replay_testing::Feed;
using replay_testing::FeedSpec;
using replay_testing::MakeReplay;
using replay_testing::Small;

// One step of three rows: bytes, whole numbers and floats, two discrete actions and masks, all of them told
// apart by their values.
class Mixed : public ::testing::Test {
 protected:
  static constexpr int kRows = 3;
  Mixed() {
    spec_.id = "Mixed";
    spec_.observations = {
        {"bytes", DType::kU8, {5}}, {"counts", DType::kI32, {2}}, {"state", DType::kF32, {3}}};
    spec_.action.kind = ActionSpec::Kind::kMultiDiscrete;
    spec_.action.nvec = {4, 3};
    spec_.action_mask = true;
    layout_ = SegmentLayout(spec_, 1, kRows, kRows);
    memory_.resize(layout_.bytes() / 8 + 1);
    segment_ = SegmentView(&layout_, reinterpret_cast<std::byte*>(memory_.data()));
    for (int i = 0; i < 2 * kRows * 5; ++i) Obs<uint8_t>(0)[i] = static_cast<uint8_t>(100 + i);
    for (int i = 0; i < 2 * kRows * 2; ++i) Obs<int32_t>(1)[i] = 1000 - i;
    for (int i = 0; i < 2 * kRows * 3; ++i) Obs<float>(2)[i] = 0.5f * static_cast<float>(i) - 2;
    for (int i = 0; i < kRows * 2; ++i) static_cast<int32_t*>(segment_.action())[i] = i % 3;
    for (int i = 0; i < 2 * kRows * 7; ++i) segment_.mask()[i] = static_cast<uint8_t>(i % 5 < 3);
    for (int i = 0; i < kRows; ++i) {
      segment_.valid()[i] = 1;
      segment_.reward()[i] = static_cast<float>(i);
    }
    // Row 1 is truncated: its final observation is neither of the segment's.
    segment_.truncated()[1] = 1;
    segment_.final_count() = 1;
    segment_.final_index()[0] = 1;
    std::memset(segment_.final_obs(0, 0), 77, 5);
    std::memset(segment_.final_obs(1, 0), 0, 8);
    std::memset(segment_.final_obs(2, 0), 0, 12);
  }
  template <class T>
  T* Obs(int array) const {
    return reinterpret_cast<T*>(segment_.obs(array, 0));
  }

  EnvSpec spec_;
  SegmentLayout layout_;
  std::vector<uint64_t> memory_;
  SegmentView segment_;
};

TEST_F(Mixed, ComesBackAsTheEncoderReadsSegments) {
  ObsEncoder encoder(spec_, true, 3.0f);
  std::vector<double> mean(10), variance(10, 4.0);
  std::iota(mean.begin(), mean.end(), 0.0);
  encoder.SetStatistics(mean.data(), variance.data());
  auto replay = MakeReplay(Small(50, kRows), spec_, encoder);
  ASSERT_TRUE(replay->Add(segment_, 0).ok());
  ASSERT_EQ(replay->size(), 3u);
  Batch batch(64, 10, 0);
  std::vector<int32_t> action(64 * 2);
  std::vector<uint8_t> mask(64 * 7), next_mask(64 * 7);
  batch.view.action = action.data();
  batch.view.mask = mask.data();
  batch.view.next_mask = next_mask.data();
  replay->Sample(0, 1, batch.view);
  bool seen[kRows] = {};
  for (size_t i = 0; i < 64; ++i) {
    const int row = static_cast<int>(batch.reward[i]);
    const auto r = static_cast<size_t>(row);
    seen[row] = true;
    std::vector<float> x(10), next(10);
    encoder.EncodeRow(segment_, 0, row, x.data());
    if (row == 1) {
      encoder.EncodeFinal(segment_, 0, next.data());
    } else {
      encoder.EncodeRow(segment_, 1, row, next.data());
    }
    EXPECT_EQ(std::vector<float>(&batch.x[i * 10], &batch.x[i * 10] + 10), x);
    EXPECT_EQ(std::vector<float>(&batch.next_x[i * 10], &batch.next_x[i * 10] + 10), next);
    EXPECT_EQ(action[2 * i], row * 2 % 3);
    EXPECT_EQ(action[2 * i + 1], (row * 2 + 1) % 3);
    EXPECT_EQ(std::memcmp(&mask[i * 7], segment_.mask() + r * 7, 7), 0);
    const uint8_t all[7] = {1, 1, 1, 1, 1, 1, 1};
    EXPECT_EQ(std::memcmp(&next_mask[i * 7], row == 1 ? all : segment_.mask() + (kRows + r) * 7, 7), 0);
  }
  EXPECT_TRUE(seen[0] && seen[1] && seen[2]);
}

TEST(ReplayFields, SlotsHoldTheFieldsAndNoMore) {
  EnvSpec spec = FeedSpec(3);
  spec.observations.push_back({"image", DType::kU8, {7}});
  EXPECT_EQ(ReplayLayout::Make(spec, 1)->stride, 3 * 4 + 7 + 2 * 4 + 4u);
  spec.observations.push_back({"count", DType::kI32, {1}});
  const ReplayLayout layout = *ReplayLayout::Make(spec, 1);
  EXPECT_EQ(layout.stride % 4, 0u);
  EXPECT_EQ(layout.arrays[2].at % 4, 0u) << "whole numbers can be read in place";
  EXPECT_EQ(ReplayLayout::Make(FeedSpec(3), 4).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ReplayFields, AFileHoldsWhatMemoryHolds) {
  const TempDir dir;
  const EnvSpec spec = FeedSpec();
  const ObsEncoder encoder(spec, false, 0);
  ReplayOptions in_memory = Small(300, 4), in_file = in_memory;
  in_file.file = dir.File("replay.bin");
  auto a = MakeReplay(in_memory, spec, encoder), b = MakeReplay(in_file, spec, encoder);
  Feed feed(spec, 2, 4, {.05, .05, .02}, 1, 1);
  for (int i = 0; i < 100; ++i) {
    const SegmentView segment = feed.Next();
    ASSERT_TRUE(a->Add(segment, 0).ok());
    ASSERT_TRUE(b->Add(segment, 0).ok());
  }
  Batch one(64, 3, 2), two(64, 3, 2);
  a->Sample(1, 1, one.view);
  b->Sample(1, 1, two.view);
  EXPECT_EQ(one.x, two.x);
  EXPECT_EQ(one.next_x, two.next_x);
  EXPECT_EQ(Replay::Make(in_file, spec, encoder).status().code(), absl::StatusCode::kAborted) << "in use";
  in_file.capacity = 301;
  b.reset();
  EXPECT_EQ(Replay::Make(in_file, spec, encoder).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ReplayFields, AFileStaysWhenSomethingWasAddedOnly) {
  const TempDir dir;
  const EnvSpec spec = FeedSpec();
  const ObsEncoder encoder(spec, false, 0);
  ReplayOptions options = Small(300, 4);
  options.file = dir.File("replay.bin");
  std::ofstream(options.file + ".copy") << "something else";
  auto replay = MakeReplay(options, spec, encoder);
  EXPECT_EQ(replay->MakeShadow().status().code(), absl::StatusCode::kInvalidArgument);
  replay.reset();
  EXPECT_FALSE(std::filesystem::exists(options.file)) << "of a start that was refused";
  EXPECT_TRUE(std::filesystem::remove(options.file + ".copy")) << "it was there before";
  replay = MakeReplay(options, spec, encoder);
  {
    auto shadow = replay->MakeShadow();
    ASSERT_TRUE(shadow.ok()) << shadow.status();
    Feed feed(spec, 2, 4, {}, 1, 1);
    ASSERT_TRUE(replay->Add(feed.Next(), 0).ok());
    replay->UpdateShadow(**shadow);
  }
  replay.reset();
  EXPECT_TRUE(std::filesystem::exists(options.file));
  EXPECT_TRUE(std::filesystem::exists(options.file + ".copy"));
}

// All observations alike, so that they join: then the count of steps tells segments apart that do not follow.
TEST(ReplayFields, AGapInTheStepsEndsWindows) {
  const EnvSpec spec = FeedSpec(1);
  const ObsEncoder encoder(spec, false, 0);
  ReplayOptions options = Small(100, 1);
  options.n_step = 4;
  options.gamma = 0.5;
  auto replay = MakeReplay(options, spec, encoder);
  const SegmentLayout layout(spec, 1, 1, 1);
  std::vector<uint64_t> memory(layout.bytes() / 8 + 1);
  const SegmentView view(&layout, reinterpret_cast<std::byte*>(memory.data()));
  view.valid()[0] = 1;
  float reward = 1;
  for (uint64_t step : {10, 11, 15, 16}) {
    view.reward()[0] = reward;
    reward *= 10;
    ASSERT_TRUE(replay->Add(view, 0, step).ok());
  }
  Batch batch(64, 1, 2);
  replay->Sample(0, 1, batch.view);
  for (size_t i = 0; i < 64; ++i) {
    const float r = batch.reward[i];
    EXPECT_TRUE(r == 6 || r == 10 || r == 600 || r == 1000) << r;
    EXPECT_EQ(batch.discount[i], r == 6 || r == 600 ? 0.25f : 0.5f);
  }
}

}  // namespace
}  // namespace millrace
