// The Weights service: pushes each version to all who watch, in chunks that are slices of the blob itself.
// Station: weight_publisher. Owner: the gRPC server. Any thread.
//
// One write at a time a watcher; when it is done with a version it goes on with the newest, so a slow reader
// passes over those between and never makes the learner keep more than two for it.
#pragma once

#include <chrono>
#include <memory>

#include "common/weights.h"
#include "learner/trajectory_service.h"

namespace grpc {
class Service;
}

namespace millrace {

class WeightsServiceGrpc {
 public:
  explicit WeightsServiceGrpc(const TrajectoryService& trajectories);
  ~WeightsServiceGrpc();

  grpc::Service* service();

  // Wakes the watchers.
  void Announce(const WeightsPtr& weights);

  // Ends the watches after the chunk that is underway; new ones are refused.
  void Close();
  // False when some are left.
  bool WaitForNone(std::chrono::steady_clock::time_point deadline);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
