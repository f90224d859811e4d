// A learner's service behind a ShmServer, and actors that join it over the socket: for tests of the
// shared-memory transport. Owner: the test. Threads: one, but for ShmServer's own.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>
#include <xxhash.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "actor/transport_shm.h"
#include "common/testing/temp_dir.h"
#include "learner/group_table.h"
#include "learner/shm_server.h"

namespace millrace {

inline constexpr std::chrono::seconds kPatience(60);  // far beyond what anything here takes

// Waits until `what` holds; false when patience ends first.
inline bool Eventually(const std::function<bool()>& what) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (!what()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

inline EnvSpec ShmTestSpec(int width) {
  EnvSpec spec;
  spec.id = "Test";
  spec.observations = {ArraySpec{"state", DType::kF32, {width}}};
  spec.action.kind = ActionSpec::Kind::kDiscrete;
  spec.action.nvec = {2};
  return spec;
}

// 4 groups of 2 rows, 2 steps a segment, in mode: sync.
struct ShmFixture {
  static constexpr int kSteps = 2;
  static constexpr size_t kRowState = 8;

  TempDir dir;
  const std::string path = dir.File("learner.sock");
  const int width;
  std::unique_ptr<TrajectoryService> service;
  std::unique_ptr<ShmServer> server;

  explicit ShmFixture(
      std::function<uint64_t()> memory = [] { return uint64_t{1} << 30; }, size_t weights_bytes = 100,
      int observation_width = 2)
      : width(observation_width) {
    TrajectoryServiceOptions options;
    options.run.mode = RunMode::kSync;
    options.run.env.rows = 8;
    options.run.env.group_rows = 2;
    options.run.ppo.horizon = kSteps;
    options.run.actors.lease_seconds = 3600;  // no test waits for it
    options.spec = ShmTestSpec(width);
    options.row_state_bytes = kRowState;
    options.run_id = "run";
    service = *TrajectoryService::Make(std::move(options));
    Publish(0, weights_bytes);
    auto started = ShmServer::Start(path, *service, std::move(memory));
    EXPECT_TRUE(started.ok()) << started.status();
    server = *std::move(started);
  }
  ~ShmFixture() { server.reset(); }

  void Publish(uint64_t version, size_t bytes) const {
    auto blob = std::make_shared<WeightsBlob>();
    blob->version = version;
    blob->bytes.resize(bytes);
    for (size_t i = 0; i < bytes; ++i) blob->bytes[i] = static_cast<std::byte>(i * 7 + version);
    blob->checksum = XXH3_64bits(blob->bytes.data(), bytes);
    service->Publish(std::move(blob));
  }
  // Grants a round to whoever is there, without waiting for it.
  void OpenRound() const {
    service->Interrupt();
    EXPECT_TRUE(absl::IsCancelled(service->Take().status()));
    service->Resume();
  }
  RunStatus GetStatus() const {
    RunStatus status;
    service->FillStatus(status);
    return status;
  }
  uint64_t CounterOf(const std::string& name) const {
    for (const Counter& counter : GetStatus().counters) {
      if (counter.name == name) return counter.value;
    }
    return 0;
  }
};

// An actor at its end of the transport.
struct ShmActor {
  std::unique_ptr<ActorTransport> transport;
  std::map<uint32_t, LeasedGroup> groups;
  std::vector<GroupGrant> grants;
  uint64_t sequence = 0, acknowledged = 0, version = 0;
  std::string weights;  // as far as they came
  uint64_t weights_version = 0, weights_bytes = 0, weights_checksum = 0;

  Status Join(const std::string& path, const std::string& name) {
    MILL_ASSIGN_OR_RETURN(transport, ConnectSharedMemory(path, kPatience));
    Hello hello;
    hello.actor = name;
    hello.incarnation = 1;
    hello.pid = static_cast<uint32_t>(::getpid());
    MILL_RETURN_IF_ERROR(transport->Send(hello));
    MILL_ASSIGN_OR_RETURN(const LearnerMessage first, transport->Receive(kPatience));
    if (!std::holds_alternative<Welcome>(first)) return Unexpected(first);
    const auto& welcome = std::get<Welcome>(first);
    return transport->Send(Ready{welcome.layout_hash, welcome.layout});
  }

  // Takes messages until `done` holds. The learner's Bye is returned as the status that it carries.
  Status Until(const std::function<bool()>& done) {
    while (!done()) {
      MILL_ASSIGN_OR_RETURN(const LearnerMessage message, transport->Receive(kPatience));
      if (const auto* lease = std::get_if<Lease>(&message)) {
        for (const uint32_t group : lease->drop) groups.erase(group);
        for (const LeasedGroup& group : lease->add) groups[group.group] = group;
      } else if (const auto* grant = std::get_if<Grant>(&message)) {
        version = grant->policy_version;
        if (grant->acknowledged > 0) acknowledged = grant->acknowledged;
        grants.insert(grants.end(), grant->groups.begin(), grant->groups.end());
      } else if (const auto* ack = std::get_if<Ack>(&message)) {
        acknowledged = ack->sequence;
      } else if (const auto* chunk = std::get_if<WeightsChunk>(&message)) {
        if (chunk->offset == 0) weights.clear();
        if (chunk->offset != weights.size()) return absl::InternalError("weights out of order");
        weights += chunk->data;
        weights_version = chunk->version;
        weights_bytes = chunk->total_bytes;
        weights_checksum = chunk->checksum;
      } else {
        return Unexpected(message);
      }
    }
    return absl::OkStatus();
  }
  Status UntilTheEnd() {
    return Until([] { return false; });
  }

  static Status Unexpected(const LearnerMessage& message) {
    if (const auto* bye = std::get_if<Bye>(&message)) {
      return Status(static_cast<absl::StatusCode>(bye->code), bye->reason);
    }
    return absl::InternalError("an unexpected message");
  }

  // A segment for this grant: zeros but for what the service looks at. In its slot, or in `own`.
  SegmentHeader Write(const GroupGrant& grant, int width, std::vector<std::byte>* own = nullptr) {
    const LeasedGroup& group = groups.at(grant.group);
    const GroupTable table(ShmTestSpec(width), ShmFixture::kSteps, {static_cast<int>(group.rows)},
                           ShmFixture::kRowState, false);
    const SegmentLayout& layout = table.layout(0);
    SegmentHeader header;
    header.sequence = ++sequence;
    header.group = grant.group;
    header.lease = grant.lease;
    header.first_step = group.next_step;
    header.policy_version = version;
    header.slot = grant.slot;
    header.bytes = layout.bytes();
    std::byte* memory = transport->Slot(grant.slot);
    if (own != nullptr) {
      own->resize(layout.bytes());
      memory = own->data();
    }
    std::memset(memory, 0, layout.bytes());
    const SegmentView view(&layout, memory);
    for (int t = 0; t < ShmFixture::kSteps; ++t) view.policy_version()[t] = version;
    std::memset(view.valid(), 1, static_cast<size_t>(layout.samples()));
    reinterpret_cast<float*>(view.obs(0, 0))[0] = static_cast<float>(100 * grant.group + group.next_step);
    header.checksum = XXH3_64bits(memory, layout.bytes());
    return header;
  }
  Status SendGranted(int width) {
    for (const GroupGrant& grant : std::exchange(grants, {})) {
      std::vector<std::byte> own;
      const SegmentHeader header = Write(grant, width, grant.slot < 0 ? &own : nullptr);
      int released = 0;
      MILL_RETURN_IF_ERROR(transport->SendSegment(
          header, grant.slot < 0 ? own.data() : transport->Slot(grant.slot), [&] { ++released; }));
      EXPECT_EQ(released, 1);
      groups.at(grant.group).next_step += ShmFixture::kSteps;
    }
    return absl::OkStatus();
  }
  // Joins in a round of all groups.
  Status PlayRound(int width) {
    MILL_RETURN_IF_ERROR(Until(
        [&] { return grants.size() == 4 && weights_version == version && weights.size() == weights_bytes; }));
    MILL_RETURN_IF_ERROR(SendGranted(width));
    return UntilAcknowledged();
  }
  // All that was sent; a heartbeat asks for it.
  Status UntilAcknowledged() {
    MILL_RETURN_IF_ERROR(transport->Send(Heartbeat{}));
    return Until([&] { return acknowledged == sequence; });
  }
};

}  // namespace millrace
