#include "common/segment.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>

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
  const SegmentLayout layout(TwoArrays(), T, N, F);
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

}  // namespace
}  // namespace millrace
