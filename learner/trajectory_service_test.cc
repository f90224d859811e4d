#include "learner/trajectory_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstring>
#include <map>
#include <thread>

#include "absl/strings/str_cat.h"
#include "learner/testing/fake_actor.h"

namespace millrace {
namespace {

using namespace std::chrono_literals;
using namespace trajectory_testing;
using testing::HasSubstr;

TEST(TrajectoryService, ARoundIsOneSegmentOfEachGroupInOrder) {
  Fixture f;
  FakeActor a(*f.service, "a"), b(*f.service, "b");
  ASSERT_TRUE(a.Connect().ok());
  ASSERT_TRUE(b.Connect().ok());
  for (uint64_t round = 0; round < 3; ++round) {
    f.service->Publish(Weights(round));
    OpenRound(*f.service);
    b.SendAll();
    a.SendAll();
    const auto batch = f.service->Take();
    ASSERT_TRUE(batch.ok()) << batch.status();
    EXPECT_THAT(batch->groups, testing::ElementsAre(0, 1, 2, 3));
    EXPECT_THAT(batch->first_steps, testing::Each(round * kSteps));
    f.service->Release();
    EXPECT_THAT(f.service->SaveRows().next_step, testing::Each((round + 1) * kSteps));
  }
  EXPECT_THAT(a.groups, testing::SizeIs(2)) << "shared since the first round";
  a.Update();
  EXPECT_EQ(a.acknowledged, 4u) << "with the last grants";
  ASSERT_TRUE(f.service->Receive(a.session, Heartbeat{}).ok());
  a.Update();
  EXPECT_EQ(a.acknowledged, a.sequence) << "and the rest with a heartbeat";
  EXPECT_EQ(b.link->version(), 2u);
}

TEST(TrajectoryService, TakeWaitsForTheLastSegment) {
  Fixture f;
  FakeActor a(*f.service, "a");
  ASSERT_TRUE(a.Connect().ok());
  OpenRound(*f.service);
  a.Update();
  ASSERT_EQ(a.grants.size(), 4u);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(a.SendGranted(a.grants[static_cast<size_t>(i)]).ok());
  Taker taker(*f.service);
  ASSERT_TRUE(a.SendGranted(a.grants[3]).ok());
  EXPECT_TRUE(taker.Join().ok());
}

TEST(TrajectoryService, ASegmentIsTakenInOnce) {
  Fixture f;
  FakeActor a(*f.service, "a");
  ASSERT_TRUE(a.Connect().ok());
  OpenRound(*f.service);
  a.Update();
  SegmentHeader header = a.Header(a.grants[0]);
  const auto bytes = a.Payload(a.groups.at(header.group), header);
  ASSERT_EQ(a.Send(header, bytes), StatusOr<bool>(false));
  EXPECT_EQ(a.Send(header, bytes), StatusOr<bool>(true)) << "the second time it is passed over";
  EXPECT_EQ(a.link->Drain<Ack>().back().sequence, 1u) << "and acknowledged at once";
  EXPECT_EQ(CounterOf(*f.service, "duplicates"), 1u);
  header.sequence = 5;
  EXPECT_THAT(a.Send(header, bytes).status().message(), HasSubstr("sequence: 5 where 2 was to come"));
}

TEST(TrajectoryService, AnActorWithWorkIsToldOfGrantsManyAtATime) {
  Fixture f(RunMode::kAsync, [](RunOptions& run) { run.learner.max_policy_lag = 4; });
  FakeActor a(*f.service, "a");
  ASSERT_TRUE(a.Connect().ok());
  a.Update();
  ASSERT_EQ(a.grants.size(), 8u) << "two for each group";
  const auto grants = std::exchange(a.grants, {});
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(a.SendGranted(grants[i]).ok());
    a.Update();
    EXPECT_TRUE(a.grants.empty()) << i;
    EXPECT_EQ(a.acknowledged, 0u) << i;
  }
  ASSERT_TRUE(a.SendGranted(grants[3]).ok());
  const std::vector<Grant> told = a.link->Drain<Grant>();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].groups.size(), 4u);
  EXPECT_EQ(told[0].acknowledged, 4u);
}

// Its threads would have nothing to do until the others' segments are here.
TEST(TrajectoryService, AnIdleThreadDoesNotWaitForGrants) {
  Fixture f(RunMode::kAsync, [](RunOptions& run) { run.learner.max_policy_lag = 4; });
  FakeActor a(*f.service, "a");
  ASSERT_TRUE(a.Connect(TransportKind::kInProcess, 4).ok());
  a.Update();
  const auto grants = std::exchange(a.grants, {});
  std::vector<GroupGrant> first;
  for (const GroupGrant& grant : grants) {
    if (grant.group == grants[0].group) first.push_back(grant);
  }
  ASSERT_EQ(first.size(), 2u);
  ASSERT_TRUE(a.SendGranted(first[0]).ok());
  a.Update();
  EXPECT_TRUE(a.grants.empty());
  ASSERT_TRUE(a.SendGranted(first[1]).ok());
  a.Update();
  EXPECT_FALSE(a.grants.empty()) << "a group without a grant";
}

TEST(TrajectoryService, DamagedAndImpossibleSegmentsNeverArrive) {
  Fixture f;
  FakeActor a(*f.service, "a");
  ASSERT_TRUE(a.Connect().ok());
  OpenRound(*f.service);
  a.Update();
  SegmentHeader header = a.Header(a.grants[0]);
  auto bytes = a.Payload(a.groups.at(header.group), header);
  bytes[100] ^= std::byte{1};
  EXPECT_TRUE(absl::IsDataLoss(a.Send(header, bytes).status()));
  EXPECT_EQ(CounterOf(*f.service, "checksum_errors"), 1u);
  bytes[100] ^= std::byte{1};
  GroupTable table(FakeActor::Spec(), kSteps, {2}, kRowState, false);
  static_cast<int32_t*>(SegmentView(&table.layout(0), bytes.data()).action())[0] = 2;
  header.checksum = XXH3_64bits(bytes.data(), bytes.size());
  EXPECT_THAT(a.Send(header, bytes).status().message(), HasSubstr("action"));
  header.bytes -= 1;
  EXPECT_THAT(a.Send(header, bytes).status().message(), HasSubstr("SegmentHeader.bytes"));
  header.bytes += 1;
  header.group = 99;
  EXPECT_THAT(a.Send(header, bytes).status().message(), HasSubstr("no group 99"));
  EXPECT_EQ(f.service->SaveRows().next_step[0], 0u);
}

TEST(TrajectoryService, RecordsOfThoseWhoAreGoneDoNotPileUp) {
  Fixture f;
  FakeActor a(*f.service, "a");
  ASSERT_TRUE(a.Connect().ok());
  for (int i = 0; i < 5000; ++i) {
    FakeActor passing(*f.service, absl::StrCat("passing-", i));
    ASSERT_TRUE(passing.Connect().ok()) << i;
    f.service->Lost(passing.session, absl::OkStatus());
  }
  RunStatus status;
  f.service->FillStatus(status);
  EXPECT_LE(status.actors.size(), 300u);
  EXPECT_EQ(status.actors.front().name, "a");
  EXPECT_EQ(status.actors.front().rows, 8u);
  EXPECT_EQ(status.actors.back().name, "passing-4999");
}

TEST(TrajectoryService, RefusesWhoDoesNotFit) {
  Fixture f;
  FakeActor a(*f.service, "a");
  Hello hello = a.MakeHello();
  hello.protocol_min = hello.protocol_max = 99;
  EXPECT_THAT(f.service->Open(hello, TransportKind::kGrpc, "", a.link).status().message(),
              HasSubstr("the learner is too old"));
  hello.protocol_min = hello.protocol_max = 0;
  EXPECT_THAT(f.service->Open(hello, TransportKind::kGrpc, "", a.link).status().message(),
              HasSubstr("the actor is too old"));
  hello = a.MakeHello();
  hello.kernel_bits = 8;
  EXPECT_THAT(f.service->Open(hello, TransportKind::kGrpc, "", a.link).status().message(),
              HasSubstr("computes other bits"));
  const auto session = f.service->Open(a.MakeHello(), TransportKind::kGrpc, "", a.link);
  ASSERT_TRUE(session.ok());
  const Status status = f.service->Receive(*session, Ready{1, "Test: other"});
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(status.message(), HasSubstr("actor:   Test: other"));
  Fixture async(RunMode::kAsync);
  EXPECT_TRUE(async.service->Open(hello, TransportKind::kGrpc, "", a.link).ok()) << "bits may differ there";
}

TEST(TrajectoryService, ASpareGoesOnFromWhereTheDeadActorStood) {
  Fixture f;
  FakeActor a(*f.service, "a"), b(*f.service, "b");
  ASSERT_TRUE(a.Connect().ok());
  OpenRound(*f.service);
  a.SendAll();
  ASSERT_TRUE(f.service->Take().ok());
  f.service->Release();
  ASSERT_TRUE(b.Connect().ok());
  f.service->Publish(Weights(1));
  OpenRound(*f.service);
  a.Update();
  b.Update();
  ASSERT_EQ(a.groups.size(), 2u);
  ASSERT_EQ(b.groups.size(), 2u);
  EXPECT_EQ(b.groups.begin()->second.next_step, static_cast<uint64_t>(kSteps));
  EXPECT_EQ(b.groups.begin()->second.state, std::string(2 * kRowState, 'a'));
  ASSERT_TRUE(a.SendGranted(a.grants[0]).ok());  // one of two, then it dies
  f.service->Lost(a.session, absl::UnavailableError("gone"));
  b.SendAll();
  EXPECT_EQ(b.groups.size(), 4u);
  const auto batch = f.service->Take();
  ASSERT_TRUE(batch.ok());
  EXPECT_THAT(batch->actors, testing::UnorderedElementsAre("a", "b", "b", "b"));
}

TEST(TrajectoryService, ALeaseEndsInSilenceAndItsLateSegmentIsDropped) {
  Fixture f;
  FakeActor a(*f.service, "a"), b(*f.service, "b");
  ASSERT_TRUE(a.Connect().ok());
  ASSERT_TRUE(b.Connect().ok());
  OpenRound(*f.service);
  a.Update();
  b.Update();
  for (int i = 0; i < 6; ++i) {  // a says nothing for 12 seconds, b does
    f.now += 2s;
    ASSERT_TRUE(f.service->Receive(b.session, Heartbeat{}).ok());
    f.service->Tick();
  }
  EXPECT_TRUE(a.link->closed());
  EXPECT_EQ(CounterOf(*f.service, "leases_expired"), 1u);
  b.SendAll();
  EXPECT_TRUE(f.service->Take().ok());
  EXPECT_TRUE(absl::IsAborted(a.SendGranted(a.grants[0])));
}

TEST(TrajectoryService, StatusTellsByWhatAnActorActsBeforeItsNextHeartbeat) {
  Fixture f;
  FakeActor a(*f.service, "a");
  ASSERT_TRUE(a.Connect().ok());
  f.service->Publish(Weights(7));
  OpenRound(*f.service);
  a.Update();
  a.SendAll();
  RunStatus status;
  f.service->FillStatus(status);
  EXPECT_EQ(status.actors.at(0).policy_version, 7u);
  EXPECT_EQ(status.actors.at(0).policy_lag, 0u);
}

TEST(TrajectoryService, WhenTheLearnerStoodStillNobodyIsBlamed) {
  Fixture f;
  FakeActor a(*f.service, "a");
  ASSERT_TRUE(a.Connect().ok());
  f.now += 1h;
  f.service->Tick();
  EXPECT_FALSE(a.link->closed());
  f.now += 11s;
  f.service->Tick();
  EXPECT_FALSE(a.link->closed()) << "that tick was late as well";
}

TEST(TrajectoryService, AnActorThatComesBackKeepsItsLeasesAndIsNotAskedTwice) {
  Fixture f;
  FakeActor a(*f.service, "a");
  ASSERT_TRUE(a.Connect(TransportKind::kGrpc).ok());
  OpenRound(*f.service);
  a.Update();
  const auto leases = a.groups;
  const auto first = a.grants;
  ASSERT_TRUE(a.SendGranted(first[0]).ok());
  f.service->Lost(a.session, absl::UnavailableError("cut"));
  a.link = std::make_shared<FakeLink>();
  ASSERT_TRUE(a.Connect(TransportKind::kGrpc).ok());
  a.grants.clear();
  a.groups.clear();
  a.Update();
  ASSERT_EQ(a.groups.size(), 4u);
  for (const auto& [g, group] : a.groups) EXPECT_EQ(group.lease, leases.at(g).lease);
  EXPECT_EQ(a.groups.at(first[0].group).next_step, static_cast<uint64_t>(kSteps)) << "it was taken in";
  EXPECT_EQ(a.grants.size(), 3u);
  a.SendAll();
  for (const GroupGrant& grant : std::exchange(a.grants, {})) EXPECT_TRUE(a.SendGranted(grant).ok());
  EXPECT_TRUE(f.service->Take().ok());
}

TEST(TrajectoryService, ANewProcessOfTheNameHasNoneOfTheOldLeases) {
  Fixture f;
  FakeActor a(*f.service, "a");
  ASSERT_TRUE(a.Connect(TransportKind::kGrpc).ok());
  OpenRound(*f.service);
  a.Update();
  FakeActor again(*f.service, "a");
  again.incarnation = 2;
  EXPECT_TRUE(absl::IsUnavailable(again.Connect())) << "the first one lives";
  f.service->Lost(a.session, absl::UnavailableError("killed"));
  ASSERT_TRUE(again.Connect().ok());
  again.SendAll();
  EXPECT_EQ(again.groups.size(), 4u);
  EXPECT_NE(again.groups.at(0).lease, a.groups.at(0).lease);
  EXPECT_TRUE(f.service->Take().ok());
}

// Over shared memory each connection of a process begins its sequences anew.
TEST(TrajectoryService, AProcessThatComesAgainHasNotRestarted) {
  Fixture f;
  FakeActor a(*f.service, "a"), again(*f.service, "a"), other(*f.service, "a");
  a.pid = again.pid = 5;
  again.incarnation = 2;
  other.incarnation = 3;
  other.pid = 6;
  ASSERT_TRUE(a.Connect().ok());
  OpenRound(*f.service);
  ASSERT_TRUE(again.Connect().ok()) << "before the learner has noticed that the first connection is gone";
  EXPECT_TRUE(a.link->closed());
  RunStatus status;
  f.service->FillStatus(status);
  EXPECT_EQ(status.actors[0].restarts, 0u);
  f.service->Lost(again.session, absl::UnavailableError("killed"));
  ASSERT_TRUE(other.Connect().ok());
  other.SendAll();
  EXPECT_TRUE(f.service->Take().ok());
  RunStatus after;
  f.service->FillStatus(after);
  EXPECT_EQ(after.actors[0].restarts, 1u);
}

TEST(TrajectoryService, AGapIsHealedByANewLease) {
  Fixture f;
  FakeActor a(*f.service, "a");
  ASSERT_TRUE(a.Connect().ok());
  OpenRound(*f.service);
  a.Update();
  const GroupGrant grant = a.grants[0];
  a.groups.at(grant.group).next_step += kSteps;  // a segment that never was
  EXPECT_TRUE(absl::IsAborted(a.SendGranted(grant)));
  EXPECT_EQ(CounterOf(*f.service, "dropped_gap"), 1u);
  a.grants.erase(a.grants.begin());
  a.SendAll();
  EXPECT_TRUE(f.service->Take().ok());
}

TEST(TrajectoryService, WaitsForItsActorWhereConfigured) {
  Fixture f(RunMode::kSync, [](RunOptions& run) { run.actors.on_lost = OnLost::kWait; });
  FakeActor a(*f.service, "a"), b(*f.service, "b");
  ASSERT_TRUE(a.Connect().ok());
  ASSERT_TRUE(b.Connect().ok());
  OpenRound(*f.service);
  a.Update();
  b.SendAll();
  f.service->Lost(a.session, absl::UnavailableError("killed"));
  for (int i = 0; i < 6; ++i) {
    f.now += 4s;
    ASSERT_TRUE(f.service->Receive(b.session, Heartbeat{}).ok());
    f.service->Tick();
  }
  b.Update();
  EXPECT_EQ(b.groups.size(), 2u);
  RunStatus status;
  f.service->FillStatus(status);
  EXPECT_EQ(status.rows_missing, 4u);
  EXPECT_EQ(status.awaited, std::vector<std::string>{"a"});
  FakeActor again(*f.service, "a");
  again.incarnation = 2;
  ASSERT_TRUE(again.Connect().ok());
  again.SendAll();
  EXPECT_TRUE(f.service->Take().ok());
}

TEST(TrajectoryService, InAsyncModeNoBlockWaitsForAName) {
  Fixture f(RunMode::kAsync, [](RunOptions& run) { run.actors.on_lost = OnLost::kWait; });
  FakeActor a(*f.service, "a");
  ASSERT_TRUE(a.Connect().ok());
  f.service->Lost(a.session, absl::OkStatus());
  for (int i = 0; i < 12; ++i) {
    f.now += 1s;
    f.service->Tick();
  }
  FakeActor b(*f.service, "b");
  ASSERT_TRUE(b.Connect().ok());
  b.Update();
  EXPECT_EQ(b.groups.begin()->first, 0u) << "else blocks would pile up with the names of those who are gone";
}

TEST(TrajectoryService, InTheRingSlotsComeBackWhenTheyWereTrainedOn) {
  Fixture f;
  FakeActor a(*f.service, "a", /*ring=*/true);
  ASSERT_TRUE(a.Connect(TransportKind::kSharedMemory).ok());
  std::map<int32_t, int> used;
  for (uint64_t round = 0; round < 20; ++round) {
    f.service->Publish(Weights(round));
    OpenRound(*f.service);
    a.Update();
    ASSERT_EQ(a.grants.size(), 4u) << "round " << round;
    for (const GroupGrant& grant : std::exchange(a.grants, {})) {
      ASSERT_GE(grant.slot, 0);
      ++used[grant.slot];
      ASSERT_TRUE(a.SendGranted(grant).ok());
    }
    const auto batch = f.service->Take();
    ASSERT_TRUE(batch.ok());
    EXPECT_EQ(batch->segments[0].base(), a.link->Slot(used.begin()->first))
        << "trained from where it was written";
    f.service->Release();
  }
  EXPECT_EQ(used.size(), 4u);
}

TEST(TrajectoryService, AsyncPacesByLagAndTakesTheOldest) {
  Fixture f(RunMode::kAsync, [](RunOptions& run) { run.learner.max_policy_lag = 2; });
  FakeActor a(*f.service, "a"), b(*f.service, "b");
  ASSERT_TRUE(a.Connect().ok());
  a.Update();
  EXPECT_EQ(a.grants.size(), 8u) << "two ahead of each group, and two batches in all";
  ASSERT_TRUE(b.Connect().ok());
  b.Update();
  EXPECT_EQ(b.groups.size(), 4u);
  EXPECT_TRUE(b.grants.empty()) << "the lag's budget is spent";
  for (size_t i = 0; i < 4; ++i) ASSERT_TRUE(a.SendGranted(a.grants[i]).ok());
  const auto batch = f.service->Take();
  ASSERT_TRUE(batch.ok());
  EXPECT_THAT(batch->groups, testing::UnorderedElementsAre(0, 1, 2, 3));
  b.Update();
  EXPECT_EQ(b.grants.size(), 4u) << "what the learner took makes room, and b's turn has come";
}

TEST(TrajectoryService, AsyncDropsWhatIsTooOldAndCountsIt) {
  Fixture f(RunMode::kAsync, [](RunOptions& run) { run.learner.max_policy_lag = 1; });
  FakeActor a(*f.service, "a");
  ASSERT_TRUE(a.Connect().ok());
  a.SendAll();
  f.service->Publish(Weights(2));
  Taker taker(*f.service);
  while (CounterOf(*f.service, "dropped_stale") < 4) std::this_thread::yield();
  a.version = 2;
  a.SendAll();
  const auto batch = taker.Join();
  ASSERT_TRUE(batch.ok());
  EXPECT_THAT(batch->first_steps, testing::Each(kSteps));
  EXPECT_EQ(CounterOf(*f.service, "dropped_stale"), 4u);
}

TEST(TrajectoryService, TheBudgetInBytesHoldsABatchAtLeast) {
  TrajectoryServiceOptions options;
  options.run.env.rows = 4096;
  options.run.ppo.horizon = 4096;
  options.run.learner.queue_mib = 1;
  options.spec = FakeActor::Spec();
  options.row_state_bytes = kRowState;
  EXPECT_THAT(TrajectoryService::Make(std::move(options)).status().message(),
              HasSubstr("learner.queue_mib: 1 MiB do not hold the 64 segments of one batch; set it to"));
}

TEST(TrajectoryService, LargeStatesGoInSeveralLeases) {
  Fixture f;
  const size_t state = (kMaxControlBytes / 2 / kRowState + 1) * kRowState;
  TrajectoryServiceOptions options;
  options.run = f.run;
  options.spec = FakeActor::Spec();
  options.row_state_bytes = state;
  options.kernel_bits = 7;
  auto service = TrajectoryService::Make(options);
  ASSERT_TRUE(service.ok()) << service.status();
  RowStates states = (*service)->SaveRows();
  states.known.assign(4, 1);
  ASSERT_TRUE((*service)->LoadRows(states).ok());
  FakeActor a(**service, "a");
  ASSERT_TRUE(a.Connect().ok());
  const auto leases = a.link->Drain<Lease>();
  EXPECT_EQ(leases.size(), 4u);
  for (const Lease& lease : leases) EXPECT_EQ(lease.add.size(), 1u);
  options.row_state_bytes = size_t{40} << 20;
  options.run.learner.queue_mib = 1024;
  EXPECT_THAT(TrajectoryService::Make(options).status().message(), HasSubstr("env.group_rows"));
}

TEST(TrajectoryService, StatusNamesActorsAndQueues) {
  Fixture f;
  FakeActor a(*f.service, "a"), b(*f.service, "b");
  ASSERT_TRUE(a.Connect().ok());
  OpenRound(*f.service);
  ASSERT_TRUE(b.Connect().ok());
  a.SendAll();
  RunStatus status;
  f.service->FillStatus(status);
  ASSERT_EQ(status.actors.size(), 2u);
  EXPECT_EQ(status.actors[0].state, "active");
  EXPECT_EQ(status.actors[0].rows, 8u);
  EXPECT_EQ(status.actors[0].steps, 16u);
  EXPECT_EQ(status.actors[1].state, "spare");
  EXPECT_EQ(status.queues[0].depth, 4u);
  EXPECT_EQ(status.mode, "sync");
  EXPECT_TRUE(status.bit_exact);
  f.service->Lost(b.session, absl::OkStatus());
  ASSERT_TRUE(f.service->Receive(a.session, Goodbye{"done"}).ok());
  RunStatus after;
  f.service->FillStatus(after);
  EXPECT_EQ(after.actors[0].state, "gone");
  EXPECT_EQ(after.rows_missing, 8u);
  EXPECT_TRUE(a.link->closed());
  EXPECT_TRUE(a.link->why().ok());
}

TEST(TrajectoryService, TheLearnersTimeIsUpdatePublishingAndWaiting) {
  Fixture f;
  FakeActor a(*f.service, "a");
  ASSERT_TRUE(a.Connect().ok());
  for (uint64_t round = 0; round < 3; ++round) {
    f.service->Publish(Weights(round));
    f.now += 1s;  // until Take, of which the first begins nothing
    OpenRound(*f.service);
    a.SendAll();
    ASSERT_TRUE(f.service->Take().ok());
    f.now += 3s;
    f.service->Tick();
    f.service->Release();
  }
  RunStatus status;
  f.service->FillStatus(status);
  std::map<std::string, double> busy;
  for (const StationShare& station : status.stations) busy[station.station] = station.busy;
  EXPECT_NEAR(busy["publish"], 0.25, 1e-9);
  EXPECT_NEAR(busy["update"], 0.75, 1e-9);
}

TEST(TrajectoryService, AMessageThatNeverArrivedEndsTheConnection) {
  Fixture f;
  FakeActor a(*f.service, "a");
  ASSERT_TRUE(a.Connect().ok());
  OpenRound(*f.service);  // four groups leased and granted
  const auto beat = [&](uint64_t received) {
    f.now += 4s;
    f.service->Tick();
    return f.service->Receive(a.session, Heartbeat{{}, received});
  };
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(beat(8).ok()) << "all is there";
  a.SendAll();
  ASSERT_TRUE(f.service->Take().ok());
  f.service->Release();
  f.service->Publish(Weights(1));
  OpenRound(*f.service);  // four groups granted, of which one arrives
  EXPECT_TRUE(beat(9).ok()) << "they may be on their way";
  EXPECT_TRUE(beat(9).ok());
  EXPECT_TRUE(beat(9).ok());
  EXPECT_TRUE(absl::IsDataLoss(beat(9)));
  EXPECT_EQ(CounterOf(*f.service, "messages_lost"), 1u);
}

TEST(TrajectoryService, WhoIsNeverReadyHoldsNothing) {
  Fixture f;
  FakeActor a(*f.service, "a");
  const auto session = f.service->Open(a.MakeHello(), TransportKind::kGrpc, "", a.link);
  ASSERT_TRUE(session.ok());
  for (int i = 0; i < 4; ++i) {
    f.now += 4s;
    static_cast<void>(f.service->Receive(*session, Heartbeat{}));
    f.service->Tick();
  }
  EXPECT_TRUE(a.link->closed());
}

TEST(TrajectoryService, AsyncGoesOnWithoutAnActorThatHangs) {
  Fixture f(RunMode::kAsync, [](RunOptions& run) { run.learner.max_policy_lag = 2; });
  FakeActor a(*f.service, "a"), b(*f.service, "b");
  ASSERT_TRUE(a.Connect().ok());
  a.Update();
  ASSERT_EQ(a.grants.size(), 8u) << "all of the budget";
  ASSERT_TRUE(b.Connect().ok());
  for (int i = 0; i < 4; ++i) {  // a lives, and sends nothing
    f.now += 4s;
    for (SessionId session : {a.session, b.session}) {
      ASSERT_TRUE(f.service->Receive(session, Heartbeat{}).ok());
    }
    f.service->Tick();
  }
  b.SendAll();
  EXPECT_TRUE(f.service->Take().ok());
  f.service->Release();
  EXPECT_EQ(CounterOf(*f.service, "overdue"), 4u);
  for (const GroupGrant& grant : std::exchange(a.grants, {})) {
    const Status sent = a.SendGranted(grant);
    EXPECT_TRUE(sent.ok()) << "late is better than never: " << sent;
  }
  EXPECT_TRUE(f.service->Take().ok());
}

TEST(TrajectoryService, StopEndsTheWaitAndTellsEverybodyWhy) {
  Fixture f;
  FakeActor a(*f.service, "a");
  ASSERT_TRUE(a.Connect().ok());
  Taker taker(*f.service);
  f.service->Stop(absl::UnavailableError("back soon"));
  EXPECT_TRUE(absl::IsCancelled(taker.Join().status()));
  EXPECT_EQ(a.link->why().message(), "back soon");
  FakeActor b(*f.service, "b");
  EXPECT_THAT(b.Connect().message(), HasSubstr("back soon"));
}

}  // namespace
}  // namespace millrace
