// A learner's service with its two servers, and an actor's end without environments: what `bench transport`
// sends through. Both ends are in this process, on loopback or a Unix socket as between processes. Owner: the
// benchmark.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "actor/transport.h"
#include "common/run_status.h"
#include "learner/control_target.h"
#include "learner/server_grpc.h"
#include "learner/shm_server.h"
#include "learner/trajectory_service.h"

namespace millrace {

// The shape of the segments: steps x rows of `obs` floats.
struct WireShape {
  int steps = 64, rows = 8, obs = 124;
};

class BenchLearner : private ControlTarget {
 public:
  static StatusOr<std::unique_ptr<BenchLearner>> Start(const WireShape& shape);
  ~BenchLearner() override;

  TrajectoryService& service() { return *service_; }
  const std::string& address() const { return grpc_->address(); }
  size_t segment_bytes() const { return segment_bytes_; }
  // Takes batches and releases them as fast as they come.
  void Consume();

 private:
  RunStatus Status() override;
  StatusOr<Saved> Checkpoint(std::chrono::steady_clock::time_point) override { return Nothing(); }
  millrace::Status Pause() override { return Nothing(); }
  millrace::Status Resume() override { return Nothing(); }
  millrace::Status Drain() override { return Nothing(); }
  millrace::Status Stop() override { return Nothing(); }
  millrace::Status Set(const std::vector<std::string>&) override { return Nothing(); }
  static millrace::Status Nothing() { return absl::UnimplementedError("a benchmark has nothing to control"); }

  std::unique_ptr<TrajectoryService> service_;
  std::unique_ptr<ShmServer> shm_;
  std::unique_ptr<GrpcServer> grpc_;
  std::thread consumer_;
  size_t segment_bytes_ = 0;
};

// Sends a valid segment for each grant, checksum included, and counts what is acknowledged.
class BenchActor {
 public:
  static StatusOr<std::unique_ptr<BenchActor>> Connect(BenchLearner& learner, TransportKind kind,
                                                       const std::string& name);
  ~BenchActor();

  uint64_t acknowledged_bytes() const { return acknowledged_ * segment_bytes_; }
  uint64_t version() const { return version_; }  // of the newest weights that are here whole
  Status status();                               // Ok while it runs

 private:
  BenchActor() = default;
  Status Greet(const std::string& name);
  void Run();
  Status Handle(const LearnerMessage& message);
  Status Answer(const Grant& grant);
  std::byte* Memory(const GroupGrant& grant);
  void FillSegment(std::byte* memory) const;

  std::unique_ptr<ActorTransport> transport_;
  size_t segment_bytes_ = 0;
  std::unique_ptr<SegmentLayout> layout_;
  std::map<uint32_t, uint64_t> next_step_;
  std::map<int32_t, bool> filled_;  // slots of the ring
  std::vector<uint64_t> own_;       // memory of a segment; the same is sent for each grant
  uint64_t sequence_ = 0;
  std::atomic<uint64_t> acknowledged_{0}, version_{0};
  std::vector<std::byte> weights_;
  std::atomic<bool> failed_{false};
  Status status_;
  std::thread thread_;
};

}  // namespace millrace
