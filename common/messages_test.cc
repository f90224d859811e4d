#include "common/messages.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(Messages, TheLastAcknowledgementCoversThoseThatWait) {
  std::deque<LearnerMessage> queue;
  Enqueue(queue, Ack{1});
  Enqueue(queue, Grant{false, 3, 10, {{1, 5, -1}}});
  ASSERT_EQ(queue.size(), 1u);
  EXPECT_EQ(std::get<Grant>(queue[0]).acknowledged, 1u) << "the grant carries it";
  Enqueue(queue, Ack{2});
  Enqueue(queue, Grant{false, 3, 20, {{2, 6, -1}}});
  ASSERT_EQ(queue.size(), 1u);
  const Grant& grant = std::get<Grant>(queue[0]);
  EXPECT_EQ(grant.acknowledged, 2u);
  EXPECT_EQ(grant.bytes, 30u);
  ASSERT_EQ(grant.groups.size(), 2u);
  EXPECT_EQ(grant.groups[1].group, 2u);
  Enqueue(queue, Grant{false, 3, 20, {{2, 6, -1}}, 3});
  EXPECT_EQ(std::get<Grant>(queue[0]).acknowledged, 3u);
}

TEST(Messages, GrantsOfOtherVersionsStayApart) {
  std::deque<LearnerMessage> queue;
  Enqueue(queue, Grant{true, 3, 10, {{1, 5, -1}}});
  Enqueue(queue, Grant{true, 4, 10, {{1, 5, -1}}});
  Enqueue(queue, Grant{true, 3, 10, {{2, 5, -1}}});
  EXPECT_EQ(queue.size(), 3u) << "and none overtakes another";
}

TEST(Messages, NothingIsJoinedAcrossALease) {
  std::deque<LearnerMessage> queue;
  Enqueue(queue, Ack{1});
  Enqueue(queue, Grant{false, 3, 10, {{1, 5, -1}}});
  Enqueue(queue, Lease{{1}, {}});
  Enqueue(queue, Ack{2});
  Enqueue(queue, Grant{false, 3, 10, {{1, 6, -1}}});
  EXPECT_EQ(queue.size(), 3u);
  EXPECT_EQ(std::get<Grant>(queue[0]).acknowledged, 1u);
  EXPECT_EQ(std::get<Grant>(queue[2]).acknowledged, 2u);
}

TEST(Messages, JoiningKeepsTheWeight) {
  const LearnerMessage messages[] = {Ack{1},
                                     Grant{false, 3, 10, {{1, 5, -1}}},
                                     Lease{{1, 2}, {LeasedGroup{}}},
                                     Ack{2},
                                     Grant{false, 3, 10, {{1, 6, -1}, {2, 7, -1}}},
                                     Grant{false, 3, 9, {{3, 7, -1}}}};
  std::deque<LearnerMessage> queue;
  uint64_t each = 0, joined = 0;
  for (const LearnerMessage& message : messages) {
    each += Weight(message);
    Enqueue(queue, message);
  }
  for (const LearnerMessage& message : queue) joined += Weight(message);
  EXPECT_LT(queue.size(), 6u);
  EXPECT_EQ(each, 7u);
  EXPECT_EQ(joined, each);
}

}  // namespace
}  // namespace millrace
