// The gRPC face of the trajectory service: Join, and a Stream for each actor. A segment's payload is written
// once, from the slices that gRPC received into the slot where it will be trained from, its checksum computed
// on the way. Station: trajectory_service. Owner: the gRPC server. Any thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "common/weights.h"
#include "learner/trajectory_service.h"

namespace grpc {
class Service;
}

namespace millrace {

struct TrajectoryGrpcOptions {
  std::string run_id, program_version, unix_socket, no_socket_reason;  // as JoinReply has them
};

class TrajectoryServiceGrpc {
 public:
  // `trajectories` outlives all streams.
  TrajectoryServiceGrpc(TrajectoryService& trajectories, TrajectoryGrpcOptions options);
  ~TrajectoryServiceGrpc();

  grpc::Service* service();

  // Ends the streams that are still open, with a Bye that asks the actor to come back; new ones are refused.
  void Close();
  // False when some are left.
  bool WaitForNone(std::chrono::steady_clock::time_point deadline);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
