#include "actor/envs/null/null.h"

#include <set>

#include "actor/envs/test_block.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using testing_support::TestBlock;

TEST(NullTest, HasTheShapesAskedFor) {
  TestBlock floats("Null", 2, {{"obs", "7"}, {"actions", "5"}});
  EXPECT_EQ(floats.spec().observations[0], (ArraySpec{"obs", DType::kF32, {7}}));
  EXPECT_EQ(floats.spec().action.nvec, std::vector<int32_t>{5});
  TestBlock bytes("Null", 2, {{"obs", "84x84x4"}, {"u8", "true"}, {"box", "6"}});
  EXPECT_EQ(bytes.spec().observations[0], (ArraySpec{"obs", DType::kU8, {84, 84, 4}}));
  EXPECT_EQ(bytes.obs_bytes, 84u * 84u * 4u);
  EXPECT_TRUE(bytes.spec().action.box());
  EXPECT_EQ(bytes.spec().action.width(), 6);
}

TEST(NullTest, ObservationsDifferFromStepToStep) {
  TestBlock block("Null", 1);
  block.Reset(0, 1);
  std::set<std::vector<std::byte>> seen;
  const int32_t action = 0;
  for (int step = 0; step < 500; ++step) {
    block.Step(&action);
    seen.insert(block.obs_of(0));
  }
  EXPECT_EQ(seen.size(), 500u);
}

TEST(NullTest, EpisodesHaveTheLengthAskedFor) {
  TestBlock block("Null", 1, {{"episode_length", "3"}, {"wait_us", "1"}});
  block.Reset(0, 1);
  const int32_t action = 0;
  for (const int ended : {0, 0, 1}) {
    block.Step(&action);
    EXPECT_EQ(block.terminated[0], ended);
  }
  TestBlock endless("Null", 1, {{"episode_length", "0"}});
  endless.Reset(0, 1);
  for (int step = 0; step < 2000; ++step) {
    endless.Step(&action);
    ASSERT_EQ(endless.terminated[0], 0);
  }
}

}  // namespace
}  // namespace millrace
