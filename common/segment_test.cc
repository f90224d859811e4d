#include "common/segment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <utility>

#include "common/text.h"

namespace millrace {
namespace {

EnvSpec TwoArrays() {
  EnvSpec spec;
  spec.observations = {{"image", DType::kU8, {3, 5}}, {"vector", DType::kF32, {7}}};
  spec.action = {ActionSpec::Kind::kMultiDiscrete, {3, 2}, {}, {}};
  spec.action_mask = true;
  return spec;
}

TEST(SegmentLayout, ColumnsAreAlignedDisjointAndInsideTheSegment) {
  const int T = 6, N = 5, F = 4;
  const SegmentLayout layout(TwoArrays(), T, N, F, 37);
  std::vector<std::byte> memory(layout.bytes() + 64);
  auto* base = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
  const SegmentView view(&layout, base);
  const std::vector<std::pair<void*, size_t>> columns = {
      {base, 8},
      {view.policy_version(), T * 8},
      {view.obs(0, 0), (T + 1) * N * 15},
      {view.obs(1, 0), (T + 1) * N * 28},
      {view.action(), T * N * 2 * 4},
      {view.mask(), (T + 1) * N * 5},
      {view.log_prob(), T * N * 4},
      {view.value(), T * N * 4},
      {view.reward(), T * N * 4},
      {view.terminated(), T * N},
      {view.truncated(), T * N},
      {view.valid(), T * N},
      {view.final_index(), F * 4},
      {view.final_obs(0, 0), F * 15},
      {view.final_obs(1, 0), F * 28},
      {view.episodes(), T * N * sizeof(EpisodeRecord)},
      {view.snapshot(), N * 37},
  };
  std::vector<int> owners(layout.bytes(), 0);
  for (const auto& [pointer, bytes] : columns) {
    const auto offset = static_cast<size_t>(static_cast<std::byte*>(pointer) - base);
    EXPECT_EQ(offset % 64, 0u);
    ASSERT_LE(offset + bytes, layout.bytes());
    for (size_t i = offset; i < offset + bytes; ++i) ++owners[i];
  }
  for (int count : owners) ASSERT_LE(count, 1);
}

TEST(SegmentLayout, WithoutAMaskThereIsNoMaskColumn) {
  EnvSpec spec = TwoArrays();
  spec.action_mask = false;
  const SegmentLayout layout(spec, 2, 2, 1);
  std::vector<std::byte> memory(layout.bytes());
  EXPECT_EQ(SegmentView(&layout, memory.data()).mask(), nullptr);
}

TEST(SegmentLayout, FinalCapacityCoversEveryTruncationThatALimitAllows) {
  EXPECT_EQ(SegmentLayout::FinalCapacity(500, 32, 8), 16);  // at most one a row, and one more at the seam
  EXPECT_EQ(SegmentLayout::FinalCapacity(10, 32, 8), 5 * 8);
  EXPECT_EQ(SegmentLayout::FinalCapacity(1, 4, 2), 4 * 2);
  EXPECT_GE(SegmentLayout::FinalCapacity(0, 4, 2), 2);
}

TEST(SegmentLayout, TheSnapshotMovesNothingElse) {
  const SegmentLayout without(TwoArrays(), 6, 5, 4), with(TwoArrays(), 6, 5, 4, 37);
  std::vector<std::byte> memory(with.bytes());
  const SegmentView a(&without, memory.data()), b(&with, memory.data());
  EXPECT_EQ(a.snapshot(), nullptr);
  EXPECT_EQ(b.snapshot(), memory.data() + without.bytes());
  EXPECT_EQ(a.episodes(), b.episodes());
  EXPECT_GE(with.bytes(), without.bytes() + 5 * 37);
}

TEST(SegmentLayout, DescribesAllThatOffsetsFollowFrom) {
  EnvSpec spec = TwoArrays();
  spec.id = "Game-v1";
  const SegmentLayout layout(spec, 6, 5, 4, 37);
  EXPECT_EQ(layout.Describe(),
            Cat("Game-v1: image u8[3,5] vector f32[7], action multi_discrete{3,2} with mask, T 6, N 5, final "
                "capacity 4, row state 37 B, segment ",
                layout.bytes(), " B"));
  const std::string text = layout.Describe();
  EXPECT_EQ(layout.Hash(), XXH3_64bits(text.data(), text.size()));
  spec.action = {ActionSpec::Kind::kBox, {}, {-1, -1}, {1, 1}};
  spec.action_mask = false;
  EXPECT_THAT(SegmentLayout(spec, 6, 5, 4).Describe(), testing::HasSubstr("action box[2], T 6"));
  EXPECT_NE(SegmentLayout(spec, 6, 5, 4).Hash(), layout.Hash());
}

// A whole, proper segment that a case then spoils. T 6, N 2; step 3 (t 1, row 1) was truncated, step 8
// terminated, step 10 truncated with no place for its final observation.
struct Proper {
  Proper() : layout(TwoArrays(), 6, 2, 1, 8), memory(layout.bytes()) {
    view = SegmentView(&layout, memory.data());
    std::memset(view.valid(), 1, 12);
    std::memset(view.mask(), 1, 14 * 5);
    for (int t = 0; t < 6; ++t) view.policy_version()[t] = 3;
    view.truncated()[3] = view.terminated()[8] = view.truncated()[10] = 1;
    view.valid()[10] = 0;
    view.final_count() = 1;
    view.final_index()[0] = 3;
    view.episode_count() = 3;
    view.episodes()[0] = {3, 5, 1.0};
    view.episodes()[1] = {8, 2, -1.0};
    view.episodes()[2] = {10, 9, 0.0};
  }
  SegmentLayout layout;
  std::vector<std::byte> memory;
  SegmentView view;
};

TEST(CheckSegment, AcceptsAProperOne) {
  Proper p;
  EXPECT_TRUE(CheckSegment(p.view).ok()) << CheckSegment(p.view);
  p.view.log_prob()[0] = p.view.value()[0] = NAN;  // of a diverged network, which the update will name
  EXPECT_TRUE(CheckSegment(p.view).ok()) << CheckSegment(p.view);
  p.view.mask()[0] = 0;
  EXPECT_TRUE(CheckSegment(p.view).ok()) << CheckSegment(p.view);
}

TEST(CheckSegment, NamesWhatItRefuses) {
  struct Case {
    const char* message;
    std::function<void(const SegmentView&)> spoil;
  };
  using View = const SegmentView&;
  const std::vector<Case> cases = {
      {"final_count is -1", [](View v) { v.final_count() = -1; }},
      {"final_count is 2; the table holds 1", [](View v) { v.final_count() = 2; }},
      {"episode_count is -5", [](View v) { v.episode_count() = -5; }},
      {"episode_count is 13; the segment has 12 steps", [](View v) { v.episode_count() = 13; }},
      {"terminated[7] is 2", [](View v) { v.terminated()[7] = 2; }},
      {"truncated[11] is 255", [](View v) { v.truncated()[11] = 255; }},
      {"valid[0] is 16", [](View v) { v.valid()[0] = 16; }},
      {"mask[69] is 3", [](View v) { v.mask()[69] = 3; }},
      {"reward[5] is not finite", [](View v) { v.reward()[5] = INFINITY; }},
      {"observation `vector`[97] is not finite",
       [](View v) { reinterpret_cast<float*>(v.obs(1, 6))[13] = NAN; }},
      {"final observation `vector`[6] is not finite",
       [](View v) { reinterpret_cast<float*>(v.final_obs(1, 0))[6] = NAN; }},
      {"action[4] is 3; there are 3", [](View v) { static_cast<int32_t*>(v.action())[4] = 3; }},
      {"action[23] is -1; there are 2", [](View v) { static_cast<int32_t*>(v.action())[23] = -1; }},
      {"action[3] is 1, which the mask forbids",
       [](View v) { static_cast<int32_t*>(v.action())[3] = 1, v.mask()[9] = 0; }},
      {"policy_version[4] is older", [](View v) { v.policy_version()[4] = 2; }},
      {"final_index[0] is step 2, which was not truncated",
       [](View v) { v.final_index()[0] = 2, v.valid()[3] = 0; }},
      {"final_index[0] is step 8, which was not truncated",
       [](View v) { v.final_index()[0] = 8, v.valid()[3] = 0; }},
      {"final_index[0] is -1; steps", [](View v) { v.final_index()[0] = -1, v.valid()[3] = 0; }},
      {"final_index[0] is 12; steps", [](View v) { v.final_index()[0] = 12, v.valid()[3] = 0; }},
      {"truncated[3] has no final observation", [](View v) { v.final_count() = 0; }},
      {"truncated[4] has no final observation", [](View v) { v.truncated()[4] = 1; }},
      {"episodes[0] ends at step -1; steps rise", [](View v) { v.episodes()[0].index = -1; }},
      {"episodes[2] ends at step 12; steps rise, up to 11", [](View v) { v.episodes()[2].index = 12; }},
      {"episodes[1] ends at step 3; steps rise", [](View v) { v.episodes()[1].index = 3; }},
      {"episodes[1] ends at step 9, where no episode ended", [](View v) { v.episodes()[1].index = 9; }},
      {"episodes[2] has no length", [](View v) { v.episodes()[2].length = 0; }},
      {"episodes[0] has no length, or a return that is not finite",
       [](View v) { v.episodes()[0].ret = NAN; }},
  };
  for (const Case& c : cases) {
    Proper p;
    c.spoil(p.view);
    const Status status = CheckSegment(p.view);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(c.message));
  }
}

TEST(CheckSegment, FinalObservationsStandOnceAndInOrder) {
  Proper p;
  p.layout = SegmentLayout(TwoArrays(), 6, 2, 3, 8);
  p.memory.assign(p.layout.bytes(), std::byte{0});
  SegmentView v(&p.layout, p.memory.data());
  std::memset(v.valid(), 1, 12);
  std::memset(v.mask(), 1, 14 * 5);
  v.truncated()[3] = v.truncated()[5] = 1;
  v.final_count() = 2;
  v.final_index()[0] = 3, v.final_index()[1] = 5;
  EXPECT_TRUE(CheckSegment(v).ok()) << CheckSegment(v);
  v.final_index()[0] = 5, v.final_index()[1] = 3;
  EXPECT_FALSE(CheckSegment(v).ok());
  v.final_count() = 3;
  v.final_index()[0] = 3, v.final_index()[1] = 5, v.final_index()[2] = 5;
  EXPECT_FALSE(CheckSegment(v).ok());
}

}  // namespace
}  // namespace millrace
