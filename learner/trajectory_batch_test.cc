// How many segments a batch of mode async has where sac.batch_max lets it take what is ready.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>

#include "learner/testing/fake_actor.h"

namespace millrace {
namespace {

using namespace trajectory_testing;
using testing::HasSubstr;

constexpr size_t kGroups = 4;
constexpr uint32_t kLag = 12;

// Two samples are due for each transition, and a segment has four of them.
void Adaptive(RunOptions& run) {
  run.algorithm = "sac";
  run.sac.horizon = kSteps;
  run.sac.batch_size = 8;
  run.sac.updates_per_step = 0.25;
  run.sac.batch_min = 8;
  run.sac.batch_max = 316;  // 39.5 segments' worth
  run.learner.max_policy_lag = kLag;
}

size_t Waiting(const TrajectoryService& service) {
  RunStatus status;
  service.FillStatus(status);
  return status.queues.at(0).depth;
}

// So many segments wait, the new ones acted by this version or that of their grants; fewer where no more are
// granted.
void Fill(const TrajectoryService& service, FakeActor& actor, size_t segments,
          std::optional<uint64_t> version = std::nullopt) {
  actor.Update();
  while (Waiting(service) < segments && !actor.grants.empty()) {
    const GroupGrant grant = actor.grants.front();
    actor.grants.erase(actor.grants.begin());
    actor.version = version.value_or(actor.version);
    ASSERT_TRUE(actor.SendGranted(grant).ok());
    actor.Update();
  }
}

// Each group's segments follow one another.
void ExpectInOrder(const TrajectoryService::Batch& batch, std::map<uint32_t, uint64_t>& next) {
  for (size_t i = 0; i < batch.groups.size(); ++i) {
    EXPECT_EQ(batch.first_steps[i], next[batch.groups[i]]) << "segment " << i << " of the batch";
    next[batch.groups[i]] += kSteps;
  }
}

TEST(TrajectoryBatch, TakesAllThatIsReadyWithinItsBounds) {
  Fixture f(RunMode::kAsync, Adaptive);
  FakeActor a(*f.service, "a");
  ASSERT_TRUE(a.Connect().ok());
  std::map<uint32_t, uint64_t> next;
  uint64_t version = 0;
  for (const size_t ready : {4, 10, 5, 40, 48, 4}) {
    Fill(*f.service, a, ready);
    ASSERT_EQ(Waiting(*f.service), std::max<size_t>(ready, 4));
    const auto batch = f.service->Take();
    ASSERT_TRUE(batch.ok()) << batch.status();
    EXPECT_EQ(batch->segments.size(), std::min<size_t>(ready, 40));
    EXPECT_EQ(batch->actors.size(), batch->segments.size());
    ExpectInOrder(*batch, next);
    f.service->Release();
    const RowStates rows = f.service->SaveRows();
    for (uint32_t g = 0; g < kGroups; ++g) EXPECT_EQ(rows.next_step[g], next[g]) << "what was trained on";
    f.service->Publish(Weights(++version));
    if (ready == 48) {  // what was left
      ASSERT_EQ(Waiting(*f.service), 8u);
      const auto rest = f.service->Take();
      ASSERT_TRUE(rest.ok());
      EXPECT_EQ(rest->segments.size(), 8u);
      ExpectInOrder(*rest, next);
      f.service->Release();
    }
  }
  EXPECT_EQ(CounterOf(*f.service, "dropped_stale"), 0u);
}

TEST(TrajectoryBatch, WaitsForOneSegmentOfEachGroupAtLeast) {
  Fixture f(RunMode::kAsync, Adaptive);
  FakeActor a(*f.service, "a");
  ASSERT_TRUE(a.Connect().ok());
  Fill(*f.service, a, 3);
  Taker taker(*f.service);
  Fill(*f.service, a, 4);
  const auto batch = taker.Join();
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(batch->segments.size(), kGroups);
}

TEST(TrajectoryBatch, WithoutBatchMaxABatchHasAlwaysTheSameNumber) {
  Fixture f(RunMode::kAsync, [](RunOptions& run) {
    Adaptive(run);
    run.sac.batch_min = run.sac.batch_max = 0;
  });
  FakeActor a(*f.service, "a");
  ASSERT_TRUE(a.Connect().ok());
  for (const size_t ready : {4, 10, 48}) {
    Fill(*f.service, a, ready);
    const auto batch = f.service->Take();
    ASSERT_TRUE(batch.ok());
    EXPECT_EQ(batch->segments.size(), kGroups);
    f.service->Release();
  }
}

TEST(TrajectoryBatch, NoMoreWaitThanTheLagAllowsAndSlotsOfTheRingSuffice) {
  Fixture f(RunMode::kAsync, Adaptive);
  FakeActor a(*f.service, "a", /*ring=*/true);
  ASSERT_TRUE(a.Connect(TransportKind::kSharedMemory).ok());
  std::set<int32_t> slots;
  for (uint64_t round = 0; round < 20; ++round) {
    for (int i = 0; i < 200; ++i) {  // the batch before is still trained on
      a.Update();
      if (a.grants.empty()) break;
      slots.insert(a.grants.front().slot);
      ASSERT_TRUE(a.SendGranted(a.grants.front()).ok());
      a.grants.erase(a.grants.begin());
    }
    ASSERT_EQ(Waiting(*f.service), kLag * kGroups) << "round " << round;
    f.service->Release();
    f.service->Publish(Weights(round + 1));
    a.version = round + 1;
    const auto batch = f.service->Take();
    ASSERT_TRUE(batch.ok());
    EXPECT_EQ(batch->segments.size(), 40u);
  }
  EXPECT_LE(slots.size(), 48u + 40 + 4) << "what may wait, what is trained on, and one of each group";
}

// A few segments at the front of a batch that are recent do not hide older ones behind them.
TEST(TrajectoryBatch, WhatIsTooOldIsDroppedFromTheWholeBatch) {
  Fixture f(RunMode::kAsync, Adaptive);
  FakeActor a(*f.service, "a");
  ASSERT_TRUE(a.Connect().ok());
  f.service->Publish(Weights(kLag + 1));
  Fill(*f.service, a, 6, kLag + 1);
  Fill(*f.service, a, 20, 0);
  const auto batch = f.service->Take();
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(batch->segments.size(), 6u);
  EXPECT_EQ(CounterOf(*f.service, "dropped_stale"), 14u);
}

TEST(TrajectoryBatch, TheBudgetInBytesHoldsTheLargestBatch) {
  const auto make = [](uint32_t mib) {
    TrajectoryServiceOptions options;
    Adaptive(options.run);
    options.run.mode = RunMode::kAsync;
    options.run.env.rows = 64;
    options.run.sac.horizon = 64;
    options.run.sac.batch_max = 100'000;  // of 8,192 that one segment of each group makes due
    options.run.learner.queue_mib = mib;
    options.spec = FakeActor::Spec();
    options.row_state_bytes = kRowState;
    return TrajectoryService::Make(std::move(options)).status();
  };
  EXPECT_THAT(make(1).message(), testing::AllOf(HasSubstr("learner.queue_mib: 1 MiB do not hold the 98"),
                                                HasSubstr("lower sac.batch_max, env.rows")));
  EXPECT_TRUE(make(16).ok()) << make(16);
}

}  // namespace
}  // namespace millrace
