#include "learner/trajectory_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"

namespace millrace {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr int kSteps = 2;
constexpr size_t kRowState = 8;

class FakeLink : public ActorLink {
 public:
  explicit FakeLink(bool ring = false) : with_ring_(ring) {}
  void Send(LearnerMessage message) override {
    MutexLock lock(mutex_);
    messages_.push_back(std::move(message));
  }
  void SendWeights(WeightsPtr weights) override {
    MutexLock lock(mutex_);
    version_ = weights->version;
  }
  void Close(const Status& why) override {
    MutexLock lock(mutex_);
    closed_ = true;
    why_ = why;
  }
  bool OfferRing(uint32_t slots, size_t bytes) override {
    if (!with_ring_) return false;
    ring_.resize(slots);
    for (auto& slot : ring_) slot.resize(bytes / 8 + 1);
    return true;
  }
  std::byte* Slot(int32_t slot) override {
    const auto i = static_cast<size_t>(slot);
    return i < ring_.size() ? reinterpret_cast<std::byte*>(ring_[i].data()) : nullptr;
  }

  // All messages of one kind since the last call.
  template <class T>
  std::vector<T> Drain() {
    MutexLock lock(mutex_);
    std::vector<T> found;
    std::vector<LearnerMessage> rest;
    for (LearnerMessage& message : messages_) {
      if (auto* m = std::get_if<T>(&message)) {
        found.push_back(std::move(*m));
      } else {
        rest.push_back(std::move(message));
      }
    }
    messages_ = std::move(rest);
    return found;
  }
  bool closed() {
    MutexLock lock(mutex_);
    return closed_;
  }
  Status why() {
    MutexLock lock(mutex_);
    return why_;
  }
  uint64_t version() {
    MutexLock lock(mutex_);
    return version_;
  }

 private:
  const bool with_ring_;
  Mutex mutex_;
  std::vector<LearnerMessage> messages_ MILL_GUARDED_BY(mutex_);
  std::vector<std::vector<uint64_t>> ring_;
  bool closed_ MILL_GUARDED_BY(mutex_) = false;
  Status why_ MILL_GUARDED_BY(mutex_);
  uint64_t version_ MILL_GUARDED_BY(mutex_) = 0;
};

WeightsPtr Weights(uint64_t version) {
  auto blob = std::make_shared<WeightsBlob>();
  blob->version = version;
  blob->checksum = version;
  return blob;
}

struct Fixture {
  std::chrono::steady_clock::time_point now{100s};
  std::unique_ptr<TrajectoryService> service;
  RunOptions run;

  // 4 groups of 2 rows.
  explicit Fixture(RunMode mode = RunMode::kSync, const std::function<void(RunOptions&)>& change = nullptr) {
    run.mode = mode;
    run.env.rows = 8;
    run.env.group_rows = 2;
    run.ppo.horizon = kSteps;
    run.actors.lease_seconds = 10;
    if (change) change(run);
    TrajectoryServiceOptions options;
    options.run = run;
    options.spec.id = "Test";
    options.spec.observations = {ArraySpec{"state", DType::kF32, {2}}};
    options.spec.action.kind = ActionSpec::Kind::kDiscrete;
    options.spec.action.nvec = {2};
    options.row_state_bytes = kRowState;
    options.run_id = "run";
    options.kernel_bits = 7;
    options.now = [this] { return now; };
    auto made = TrajectoryService::Make(std::move(options));
    EXPECT_TRUE(made.ok()) << made.status();
    service = *std::move(made);
    service->Publish(Weights(0));
  }
};

// An actor as the service sees it.
struct FakeActor {
  TrajectoryService& service;
  std::shared_ptr<FakeLink> link;
  std::string name;
  uint64_t incarnation = 1;
  SessionId session = 0;
  uint64_t sequence = 0;
  Welcome welcome;
  std::map<uint32_t, LeasedGroup> groups;
  std::vector<GroupGrant> grants;
  uint64_t version = 0;

  FakeActor(TrajectoryService& s, std::string n, bool ring = false)
      : service(s), link(std::make_shared<FakeLink>(ring)), name(std::move(n)) {}

  Hello MakeHello(uint32_t threads = 1) const {
    Hello hello;
    hello.actor = name;
    hello.incarnation = incarnation;
    hello.threads = threads;
    hello.kernel_bits = 7;
    return hello;
  }
  Status Connect(TransportKind kind = TransportKind::kInProcess, uint32_t threads = 1) {
    const auto opened = service.Open(MakeHello(threads), kind, "here", link);
    if (!opened.ok()) return opened.status();
    session = *opened;
    welcome = link->Drain<Welcome>().at(0);
    return service.Receive(session, Ready{welcome.layout_hash, welcome.layout});
  }
  void Update() {
    for (const Lease& lease : link->Drain<Lease>()) {
      for (uint32_t g : lease.drop) groups.erase(g);
      for (const LeasedGroup& g : lease.add) groups[g.group] = g;
    }
    for (const Grant& grant : link->Drain<Grant>()) {
      version = std::max(version, grant.policy_version);
      grants.insert(grants.end(), grant.groups.begin(), grant.groups.end());
    }
  }
  // A segment that is all zeros but for what the service looks at.
  std::vector<std::byte> Payload(const LeasedGroup& group, SegmentHeader& header) const {
    GroupTable table(Spec(), kSteps, {static_cast<int>(group.rows)}, kRowState, false);
    const SegmentLayout& layout = table.layout(0);
    std::vector<std::byte> bytes(layout.bytes());
    const SegmentView view(&layout, bytes.data());
    for (int t = 0; t < kSteps; ++t) view.policy_version()[t] = header.policy_version;
    std::memset(view.valid(), 1, static_cast<size_t>(layout.samples()));
    std::memset(view.snapshot(), static_cast<int>('a' + header.first_step), group.rows * kRowState);
    header.bytes = bytes.size();
    header.checksum = XXH3_64bits(bytes.data(), bytes.size());
    return bytes;
  }
  static EnvSpec Spec() {
    EnvSpec spec;
    spec.observations = {ArraySpec{"state", DType::kF32, {2}}};
    spec.action.kind = ActionSpec::Kind::kDiscrete;
    spec.action.nvec = {2};
    return spec;
  }
  SegmentHeader Header(const GroupGrant& grant) {
    SegmentHeader header;
    header.sequence = ++sequence;
    header.group = grant.group;
    header.lease = grant.lease;
    header.first_step = groups.at(grant.group).next_step;
    header.policy_version = version;
    header.slot = grant.slot;
    return header;
  }
  // Sends what was granted for one group; returns whether it was passed over.
  StatusOr<bool> Send(const SegmentHeader& asked, const std::vector<std::byte>& bytes) {
    MILL_ASSIGN_OR_RETURN(const auto ingest, service.BeginIngest(session, asked));
    if (ingest.skip) return true;
    std::memcpy(ingest.memory, bytes.data(), bytes.size());
    MILL_RETURN_IF_ERROR(service.EndIngest(ingest, XXH3_64bits(ingest.memory, bytes.size())));
    groups.at(asked.group).next_step += kSteps;
    return false;
  }
  Status SendGranted(const GroupGrant& grant) {
    SegmentHeader header = Header(grant);
    const auto bytes = Payload(groups.at(grant.group), header);
    const auto skipped = Send(header, bytes);
    if (!skipped.ok()) return skipped.status();
    return *skipped ? absl::AbortedError("passed over") : absl::OkStatus();
  }
  void SendAll() {
    Update();
    for (const GroupGrant& grant : std::exchange(grants, {})) {
      const Status status = SendGranted(grant);
      EXPECT_TRUE(status.ok()) << status;
    }
  }
};

uint64_t CounterOf(TrajectoryService& service, const std::string& name) {
  RunStatus status;
  service.FillStatus(status);
  for (const Counter& counter : status.counters) {
    if (counter.name == name) return counter.value;
  }
  return 0;
}

// Take in a thread of its own; it ends when the segments are there.
struct Taker {
  explicit Taker(TrajectoryService& service) : thread([&service, this] { batch = service.Take(); }) {}
  ~Taker() {
    if (thread.joinable()) thread.join();
  }
  StatusOr<TrajectoryService::Batch> Join() {
    thread.join();
    return std::move(batch);
  }
  StatusOr<TrajectoryService::Batch> batch = absl::UnknownError("not taken");
  std::thread thread;
};

// Opens a round without waiting for it.
void OpenRound(TrajectoryService& service) {
  service.Interrupt();
  EXPECT_TRUE(absl::IsCancelled(service.Take().status()));
  service.Resume();
}

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
  EXPECT_EQ(a.link->Drain<Ack>().back().sequence, a.sequence);
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
  EXPECT_EQ(a.link->Drain<Ack>().size(), 2u) << "and acknowledged again";
  EXPECT_EQ(CounterOf(*f.service, "duplicates"), 1u);
  header.sequence = 5;
  EXPECT_THAT(a.Send(header, bytes).status().message(), HasSubstr("sequence: 5 where 2 was to come"));
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
