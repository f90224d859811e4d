// What tests of TrajectoryService share: a service without a network, whose clock is the test's, and actors
// that keep the protocol without environments. Test code only.
#pragma once

#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "learner/group_table.h"
#include "learner/trajectory_service.h"

namespace millrace::trajectory_testing {

inline constexpr int kSteps = 2;
inline constexpr size_t kRowState = 8;

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

inline WeightsPtr Weights(uint64_t version) {
  auto blob = std::make_shared<WeightsBlob>();
  blob->version = version;
  blob->checksum = version;
  return blob;
}

struct Fixture {
  std::chrono::steady_clock::time_point now{std::chrono::seconds(100)};
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
  uint32_t pid = 0;
  SessionId session = 0;
  uint64_t sequence = 0;
  Welcome welcome;
  std::map<uint32_t, LeasedGroup> groups;
  std::vector<GroupGrant> grants;
  uint64_t version = 0, acknowledged = 0;

  FakeActor(TrajectoryService& s, std::string n, bool ring = false)
      : service(s), link(std::make_shared<FakeLink>(ring)), name(std::move(n)) {}

  Hello MakeHello(uint32_t threads = 1) const {
    Hello hello;
    hello.actor = name;
    hello.incarnation = incarnation;
    hello.pid = pid;
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
      acknowledged = std::max(acknowledged, grant.acknowledged);
    }
    for (const Ack& ack : link->Drain<Ack>()) acknowledged = std::max(acknowledged, ack.sequence);
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

inline uint64_t CounterOf(TrajectoryService& service, const std::string& name) {
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
inline void OpenRound(TrajectoryService& service) {
  service.Interrupt();
  EXPECT_TRUE(absl::IsCancelled(service.Take().status()));
  service.Resume();
}

}  // namespace millrace::trajectory_testing
