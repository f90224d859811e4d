// A learner's gRPC server around a real trajectory service and a target that only remembers, and an actor's
// end that only moves messages. Owner: a test.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actor/transport_grpc.h"
#include "common/mutex.h"
#include "common/rpc/channel_grpc.h"
#include "learner/group_table.h"
#include "learner/server_grpc.h"

namespace millrace {

inline constexpr std::chrono::milliseconds kWait{20'000};  // for what must come; never slept in full

inline WeightsPtr MakeWeights(uint64_t version, size_t bytes) {
  auto blob = std::make_shared<WeightsBlob>();
  blob->version = version;
  blob->bytes.resize(bytes);
  for (size_t i = 0; i < bytes; ++i)
    blob->bytes[i] = static_cast<std::byte>((i * 2654435761u + version) >> 7);
  blob->checksum = XXH3_64bits(blob->bytes.data(), bytes);
  return blob;
}

class FakeTarget final : public ControlTarget {
 public:
  RunStatus Status() override {
    MutexLock lock(mutex_);
    RunStatus status;
    status.run_id = "run-1";
    status.state = state_;
    status.steps = ++asked_;
    return status;
  }
  StatusOr<Saved> Checkpoint(std::chrono::steady_clock::time_point deadline) override {
    if (deadline < std::chrono::steady_clock::now()) return absl::DeadlineExceededError("late");
    MutexLock lock(mutex_);
    ++saving_;
    while (hold_ && std::chrono::steady_clock::now() < deadline) {
      changed_.WaitFor(mutex_, deadline - std::chrono::steady_clock::now());
    }
    return Saved{"checkpoints/7", 7};
  }
  // While held, checkpoints are not done.
  void Hold(bool hold) {
    MutexLock lock(mutex_);
    hold_ = hold;
    changed_.NotifyAll();
  }
  int saving() {
    MutexLock lock(mutex_);
    return saving_;
  }
  void Note(const std::string& line) override {
    MutexLock lock(mutex_);
    notes_ += line + "\n";
  }
  std::string notes() {
    MutexLock lock(mutex_);
    return notes_;
  }
  absl::Status Pause() override { return Become("paused"); }
  absl::Status Resume() override { return Become("training"); }
  absl::Status Drain() override { return Become("draining"); }
  absl::Status Stop() override { return Become("done"); }
  absl::Status Set(const std::vector<std::string>& settings) override {
    if (settings != std::vector<std::string>{"ppo.learning_rate=0.1"}) {
      return absl::InvalidArgumentError("env.id: can't change while the run goes on");
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Become(const char* state) {
    MutexLock lock(mutex_);
    state_ = state;
    return absl::OkStatus();
  }
  Mutex mutex_;
  CondVar changed_;
  bool hold_ MILL_GUARDED_BY(mutex_) = false;
  int saving_ MILL_GUARDED_BY(mutex_) = 0;
  std::string notes_ MILL_GUARDED_BY(mutex_);
  std::string state_ MILL_GUARDED_BY(mutex_) = "training";
  uint64_t asked_ MILL_GUARDED_BY(mutex_) = 0;
};

struct Learner {
  RunOptions run;
  FakeTarget target;
  std::unique_ptr<GroupTable> table;
  std::unique_ptr<TrajectoryService> service;
  std::unique_ptr<GrpcServer> server;

  // Async, 4 groups of 2 rows, segments of some 64 KiB.
  explicit Learner(const std::string& unix_socket = "", const std::string& health_listen = "") {
    run.mode = RunMode::kAsync;
    run.env.rows = 8;
    run.env.group_rows = 2;
    run.ppo.horizon = 31;
    run.learner.max_policy_lag = 1000;
    TrajectoryServiceOptions options;
    options.run = run;
    options.spec.id = "Test";
    options.spec.observations = {ArraySpec{"state", DType::kF32, {256}}};
    options.spec.action.kind = ActionSpec::Kind::kDiscrete;
    options.spec.action.nvec = {2};
    options.row_state_bytes = 8;
    options.run_id = "run-1";
    table = std::make_unique<GroupTable>(options.spec, 31, std::vector<int>{2, 2, 2, 2},
                                         options.row_state_bytes, true);
    auto made = TrajectoryService::Make(std::move(options));
    EXPECT_TRUE(made.ok()) << made.status();
    service = *std::move(made);
    ServerOptions serve;
    serve.listen = "127.0.0.1:0";
    serve.health_listen = health_listen;
    serve.max_segment_bytes = layout(0).bytes();
    serve.run_id = "run-1";
    serve.program_version = "0.0-test";
    serve.unix_socket = unix_socket;
    if (unix_socket.empty()) serve.no_socket_reason = "no room";
    auto started = GrpcServer::Start(serve, *service, target);
    EXPECT_TRUE(started.ok()) << started.status();
    server = *std::move(started);
  }
  ~Learner() { server.reset(); }

  const SegmentLayout& layout(uint32_t group) const { return table->layout(group); }

  uint64_t Count(const std::string& name) const {
    RunStatus status;
    service->FillStatus(status);
    for (const Counter& counter : status.counters) {
      if (counter.name == name) return counter.value;
    }
    return 0;
  }
};

// An actor's messages, sorted by kind as they come.
struct Actor {
  std::unique_ptr<ActorTransport> transport;
  Welcome welcome;
  std::map<uint32_t, LeasedGroup> groups;
  std::vector<GroupGrant> grants;
  std::string weights;
  std::vector<uint64_t> versions;  // whose chunks began
  uint64_t weights_checksum = 0, acknowledged = 0, sequence = 0;
  bool weights_whole = false;
  std::optional<Bye> bye;
  Status lost;

  explicit Actor(const Learner& learner)
      : transport(MakeGrpcTransport(MakeChannel(learner.server->address()), learner.server->address())) {}

  static Hello MakeHello(const std::string& name) {
    Hello hello;
    hello.actor = name;
    hello.incarnation = 5;
    hello.threads = 1;
    return hello;
  }

  // Receives until `done` or the end of the connection or of kWait.
  template <typename Done>
  bool Until(Done done) {
    const auto deadline = std::chrono::steady_clock::now() + kWait;
    while (!done()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      auto message = transport->Receive(std::chrono::milliseconds(100));
      if (absl::IsDeadlineExceeded(message.status())) continue;
      if (!message.ok()) {
        lost = message.status();
        return done();
      }
      std::visit([this](auto& one) { this->Take(one); }, *message);
    }
    return true;
  }
  void Take(Welcome& message) { welcome = message; }
  void Take(Lease& message) {
    for (const uint32_t group : message.drop) groups.erase(group);
    for (const LeasedGroup& group : message.add) groups[group.group] = group;
  }
  void Take(Grant& message) {
    grants.insert(grants.end(), message.groups.begin(), message.groups.end());
    if (message.acknowledged > 0) acknowledged = message.acknowledged;
  }
  void Take(Ack& message) { acknowledged = message.sequence; }
  void Take(WeightsChunk& message) {
    if (message.offset == 0) {
      weights.clear();
      versions.push_back(message.version);
    }
    EXPECT_EQ(message.offset, weights.size());
    weights += message.data;
    weights_checksum = message.checksum;
    weights_whole = weights.size() == message.total_bytes;
  }
  void Take(Drain&) {}
  void Take(Bye& message) { bye = message; }

  void Connect(const std::string& name = "a") {
    ASSERT_TRUE(transport->Send(MakeHello(name)).ok());
    ASSERT_TRUE(Until([&] { return welcome.lease_ms != 0; })) << lost;
    ASSERT_TRUE(transport->Send(Ready{welcome.layout_hash, welcome.layout}).ok());
  }

  // A segment that the service takes, its observations counted through from `seed`.
  std::vector<std::byte> Payload(const SegmentLayout& layout, SegmentHeader& header, uint32_t seed) const {
    std::vector<std::byte> bytes(layout.bytes());
    const SegmentView view(&layout, bytes.data());
    std::memset(view.valid(), 1, static_cast<size_t>(layout.samples()));
    for (int t = 0; t < layout.steps(); ++t) view.policy_version()[t] = header.policy_version;
    auto* obs = reinterpret_cast<float*>(view.obs(0, 0));
    const size_t values = static_cast<size_t>(layout.steps() + 1) * static_cast<size_t>(layout.rows()) * 256;
    for (size_t i = 0; i < values; ++i) obs[i] = static_cast<float>(seed + i);
    header.bytes = bytes.size();
    header.checksum = XXH3_64bits(bytes.data(), bytes.size());
    return bytes;
  }
  SegmentHeader Header(const GroupGrant& grant) {
    SegmentHeader header;
    header.sequence = ++sequence;
    header.group = grant.group;
    header.lease = grant.lease;
    header.first_step = groups.at(grant.group).next_step;
    header.slot = grant.slot;
    return header;
  }
};

}  // namespace millrace
