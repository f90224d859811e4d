#include "learner/group_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace millrace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

EnvSpec Spec() {
  EnvSpec spec;
  spec.id = "Test";
  spec.observations = {ArraySpec{"state", DType::kF32, {2}}};
  spec.action.kind = ActionSpec::Kind::kDiscrete;
  spec.action.nvec = {2};
  return spec;
}

GroupTable Table(bool async, std::vector<int> rows = {4, 4, 4, 4, 4, 4, 4, 2}) {
  return GroupTable(Spec(), 3, std::move(rows), 8, async);
}

std::vector<uint64_t> Holders(const GroupTable& table) {
  std::vector<uint64_t> holders;
  for (const HeldGroup& group : table.groups()) holders.push_back(group.holder);
  return holders;
}

TEST(GroupTable, SyncGivesAllToTheFirstAndSharesWhenAnotherComes) {
  GroupTable table = Table(false);
  EXPECT_EQ(table.missing_rows(), 30u);
  table.Deal({{1, "a", 2}}, false);
  EXPECT_THAT(Holders(table), ElementsAre(1, 1, 1, 1, 1, 1, 1, 1));
  EXPECT_EQ(table.missing_rows(), 0u);
  EXPECT_TRUE(table.Deal({{1, "a", 2}, {2, "b", 2}}, false).empty())
      << "nothing moves in the middle of a round";
  table.Deal({{1, "a", 2}, {2, "b", 2}}, true);
  EXPECT_THAT(Holders(table), ElementsAre(1, 1, 1, 1, 2, 2, 2, 2));
  EXPECT_TRUE(table.Deal({{1, "a", 2}, {2, "b", 2}}, true).empty()) << "and nothing for nothing";
}

TEST(GroupTable, SharesFollowThreads) {
  GroupTable table = Table(false);
  table.Deal({{1, "a", 3}, {2, "b", 1}}, true);
  EXPECT_THAT(Holders(table), ElementsAre(1, 1, 1, 1, 1, 1, 2, 2));
}

TEST(GroupTable, WhoIsTooManyIsASpareAndStepsIn) {
  GroupTable table = Table(false, {4, 4});
  table.Deal({{1, "a", 1}, {2, "b", 1}, {3, "c", 1}}, true);
  EXPECT_THAT(Holders(table), ElementsAre(1, 2));
  table.Free(table.groups()[0]);
  table.Deal({{2, "b", 1}, {3, "c", 1}}, false);
  EXPECT_THAT(Holders(table), ElementsAre(3, 2)) << "the spare, not the one that has a group";
}

TEST(GroupTable, ALeaseIsNeverGivenTwice) {
  GroupTable table = Table(false, {4});
  table.Deal({{1, "a", 1}}, true);
  const uint64_t first = table.groups()[0].lease;
  table.Renew(table.groups()[0]);
  const uint64_t second = table.groups()[0].lease;
  table.Free(table.groups()[0]);
  table.Deal({{1, "a", 1}}, true);
  EXPECT_NE(first, second);
  EXPECT_NE(second, table.groups()[0].lease);
  EXPECT_NE(first, table.groups()[0].lease);
}

TEST(GroupTable, AReservedGroupWaitsForItsName) {
  GroupTable table = Table(false, {4, 4});
  table.Deal({{1, "a", 1}, {2, "b", 1}}, true);
  table.Free(table.groups()[0], "a");
  table.Deal({{2, "b", 1}}, true);
  EXPECT_THAT(Holders(table), ElementsAre(kNoHolder, 2));
  table.Deal({{2, "b", 1}, {3, "a", 1}}, false);
  EXPECT_THAT(Holders(table), ElementsAre(3, 2));
}

TEST(GroupTable, AsyncGivesEachActorABlockAndFreeOnesFirst) {
  GroupTable table = Table(true, {4, 2});
  EXPECT_TRUE(table.groups().empty());
  table.Deal({{1, "a", 1}, {2, "b", 1}}, false);
  EXPECT_THAT(Holders(table), ElementsAre(1, 1, 2, 2));
  EXPECT_EQ(table.groups()[2].first_row, 6u);
  for (size_t g : {0, 1}) table.Free(table.groups()[g]);
  table.Deal({{2, "b", 1}, {3, "c", 1}}, false);
  EXPECT_THAT(Holders(table), ElementsAre(3, 3, 2, 2));
}

TEST(GroupTable, AsyncDealsNoMoreRowsThanThereMayBe) {
  GroupTable table = Table(true, {4, 2});
  table.SetMostRows(13);
  table.Deal({{1, "a", 1}, {2, "b", 1}, {3, "c", 1}}, false);
  EXPECT_THAT(Holders(table), ElementsAre(1, 1, 2, 2)) << "a third block makes 18 rows";
  for (size_t g : {0, 1}) table.Free(table.groups()[g]);
  table.Deal({{2, "b", 1}, {3, "c", 1}}, false);
  EXPECT_THAT(Holders(table), ElementsAre(3, 3, 2, 2));
  // A checkpoint's blocks beyond the bound are kept, and nobody gets them.
  table.SetMostRows(0);
  table.Free(table.groups()[0]), table.Free(table.groups()[1]);
  table.Free(table.groups()[2]), table.Free(table.groups()[3]);
  table.Deal({{4, "d", 1}, {5, "e", 1}}, false);
  EXPECT_THAT(Holders(table), ElementsAre(4, 4, kNoHolder, kNoHolder));
}

TEST(GroupTable, StateIsOfTheNewestSegmentTakenInAndWhatIsSavedOfTheLastTrainedOn) {
  GroupTable table = Table(false, {2});
  HeldGroup& group = table.groups()[0];
  EXPECT_EQ(table.StateOf(group), "");
  const std::string older(16, 'o'), newer(16, 'n');
  group.newest = reinterpret_cast<const std::byte*>(newer.data());
  table.Saved(group, 3, reinterpret_cast<const std::byte*>(older.data()));
  EXPECT_EQ(table.StateOf(group), newer) << "a later segment waits";
  EXPECT_EQ(table.Save().next_step[0], 3u);
  table.Saved(group, 6, reinterpret_cast<const std::byte*>(newer.data()));
  EXPECT_EQ(group.newest, nullptr) << "its memory is about to be used again";
  EXPECT_EQ(table.StateOf(group), newer);
}

TEST(GroupTable, SavedStatesComeBack) {
  for (const bool async : {false, true}) {
    GroupTable table = Table(async, {2, 1});
    table.Deal({{1, "a", 1}, {2, "b", 1}}, true);
    const std::string state(16, 's');
    table.Saved(table.groups()[0], 9, reinterpret_cast<const std::byte*>(state.data()));
    const RowStates states = table.Save();
    GroupTable other = Table(async, {2, 1});
    ASSERT_TRUE(other.Load(states).ok());
    EXPECT_EQ(other.groups().size(), table.groups().size());
    EXPECT_EQ(other.StateOf(other.groups()[0]), state);
    EXPECT_EQ(other.groups()[0].next_step, 9u);
    EXPECT_EQ(other.StateOf(other.groups()[1]), "") << "unknown stays unknown";
    EXPECT_EQ(other.groups()[0].holder, kNoHolder);
  }
}

TEST(GroupTable, RefusesStatesOfOtherRows) {
  GroupTable table = Table(false, {2, 1});
  RowStates states = Table(false, {2, 2}).Save();
  EXPECT_THAT(table.Load(states).message(), HasSubstr("row group 1 has 2 rows, this run's 1"));
  states = Table(false, {2}).Save();
  EXPECT_THAT(table.Load(states).message(), HasSubstr("1 row groups, this run's 2"));
  states = Table(false, {2, 1}).Save();
  states.row_bytes = 4;
  EXPECT_THAT(table.Load(states).message(), HasSubstr("rows have 4 bytes, this run's 8"));
}

}  // namespace
}  // namespace millrace
