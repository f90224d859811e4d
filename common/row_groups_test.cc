#include "common/row_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace millrace {
namespace {

TEST(RowGroups, CoverTheRows) {
  EXPECT_THAT(GroupRows(8, 0), testing::ElementsAre(4, 4));
  EXPECT_THAT(GroupRows(1, 0), testing::ElementsAre(1));
  EXPECT_THAT(GroupRows(20, 0), testing::ElementsAre(8, 8, 4));
  EXPECT_EQ(GroupRows(256, 0).size(), 8u);
  EXPECT_THAT(GroupRows(7, 3), testing::ElementsAre(3, 3, 1));
  EXPECT_EQ(GroupRows(1024, 0).size(), 16u);
}

TEST(RowGroups, AnUpdateTakesOneSegmentOfEachOrWhatTheLargestBatchCanUse) {
  RunOptions options;  // two groups of four rows, 8 x 256 samples due by one segment of each
  options.mode = RunMode::kAsync;
  EXPECT_EQ(MostSegments(options), 2u);
  options.algorithm = "sac";
  EXPECT_EQ(MostSegments(options), 2u);
  const auto with = [&options](uint32_t batch_max) {
    options.sac.batch_max = batch_max;
    return MostSegments(options);
  };
  EXPECT_EQ(with(100), 2u) << "never fewer";
  EXPECT_EQ(with(4096), 4u);
  EXPECT_EQ(with(4097), 5u) << "whole segments";
  options.sac.horizon = 4;
  EXPECT_EQ(with(4097), 2u);
  options.sac.horizon = 1;
  options.env.rows = 1;
  options.sac.batch_size = 100;
  for (const double ratio : {0.1, 0.7, 1.0 / 3, 1.1}) {
    options.sac.updates_per_step = ratio;
    for (uint32_t segments : {1, 3, 7, 10}) {
      const double due = segments * ratio * 100;
      if (due != std::round(due)) continue;
      EXPECT_EQ(with(static_cast<uint32_t>(due)), segments) << ratio;
    }
  }
  options.sac.updates_per_step = 0;
  options.replay.samples_per_insert = 50;
  EXPECT_EQ(with(500), 10u);
  options.mode = RunMode::kSync;
  EXPECT_EQ(with(500), 1u);
}

}  // namespace
}  // namespace millrace
