#include "actor/envs/ledger/ledger.h"

#include "actor/envs/test_block.h"
#include "actor/row_group.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using testing_support::TestBlock;

const int32_t kActions[] = {0, 1};

TEST(LedgerTest, RewardsNumberTheTransitionsOverEpisodes) {
  TestBlock block("Ledger", 2, {{"episode_length", "3"}});
  block.Reset(0, 1);
  block.Reset(1, 2);
  for (int k = 1; k <= 9; ++k) {
    block.Step(kActions);
    for (int row : {0, 1}) {
      EXPECT_EQ(block.reward[row], k);
      EXPECT_EQ(block.terminated[row], k % 3 == 0);
      EXPECT_EQ(block.obs(row)[0], static_cast<float>(k) / 1024);
      EXPECT_EQ(block.obs(row)[1], 1.0f);
      if (block.terminated[row] != 0) block.Reset(row, 7);
    }
  }
  EXPECT_EQ(block.SaveAs<LedgerState>(0).transitions, 9u);
}

TEST(LedgerTest, ASavedRowKeepsItsCountThroughAReset) {
  TestBlock from("Ledger", 2), to("Ledger", 1);
  from.Reset(0, 1);
  from.Reset(1, 1);
  for (int i = 0; i < 1500; ++i) from.Step(kActions);
  to.LoadFrom(0, from.SaveAs<LedgerState>(1));
  to.Reset(0, 3);
  EXPECT_EQ(to.obs(0)[0], 1500 % 1024 / 1024.0f);
  to.Step(kActions);
  EXPECT_EQ(to.reward[0], 1501);
}

// As actors hand groups on: what a segment's rewards add up to names its transitions.
TEST(LedgerTest, ASegmentsSumProvesItsTransitionsAfterAHandOver) {
  constexpr int kRows = 2, kSteps = 40;
  EnvSection options;
  options.id = "Ledger";
  options.params = {{"episode_length", "7"}};
  auto first = RowGroup::Make(options, 1, 0, kRows), second = RowGroup::Make(options, 1, 0, kRows);
  ASSERT_TRUE(first.ok() && second.ok());
  const SegmentLayout layout((*first)->spec(), kSteps, kRows, kRows * kSteps);
  std::vector<std::byte> memory(layout.bytes());
  const SegmentView segment(&layout, memory.data());
  const auto run = [&](RowGroup& group) {
    group.BeginSegment(segment, segment);
    for (int t = 0; t < kSteps; ++t) group.Step(segment, t);
    double sum = 0;
    for (int i = 0; i < kRows * kSteps; ++i) sum += static_cast<double>(segment.reward()[i]);
    return sum;
  };
  (*first)->Reset(segment, kSteps);
  EXPECT_EQ(run(**first), kRows * kSteps * (kSteps + 1) / 2);
  std::vector<std::byte> state(kRows * (*first)->row_state_bytes());
  (*first)->SaveRows(segment, kSteps, state.data());
  (*second)->Reset(segment, kSteps);
  (*second)->LoadRows(segment, kSteps, state.data());
  EXPECT_EQ(run(**second), kRows * (kSteps * (kSteps + 1) / 2 + kSteps * kSteps));
}

TEST(LedgerTest, EpisodesNeedNotEnd) {
  TestBlock block("Ledger", 1, {{"episode_length", "0"}});
  block.Reset(0, 1);
  for (int i = 0; i < 200; ++i) {
    block.Step(kActions);
    ASSERT_EQ(block.terminated[0], 0);
  }
}

}  // namespace
}  // namespace millrace
