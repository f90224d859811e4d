#include "common/row_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace millrace
