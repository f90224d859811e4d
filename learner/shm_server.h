// ShmServer: accepts actors of this host on a Unix socket and gives each a ring of slots in shared memory,
// where segments are written by the actor and trained from. Station: trajectory_service. Owner: the
// learner's process; one thread starts and stops it, threads of its own serve.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/resource_usage.h"
#include "common/run_status.h"
#include "common/status.h"
#include "learner/trajectory_service.h"

namespace millrace {

class ShmServer {
 public:
  // The socket is for this user only. A path left by a dead learner is taken over; AlreadyExists when a
  // living one has it, InvalidArgument when it is too long for a socket.
  // `available_memory`: bytes that rings may still take.
  static StatusOr<std::unique_ptr<ShmServer>> Start(
      const std::string& path, TrajectoryService& service,
      std::function<uint64_t()> available_memory = [] { return AvailableMemory(); });
  ~ShmServer();
  // A path of this user's, short enough, unlike that of any other learner.
  static std::string DefaultPath();
  // Removes what learners of this user that were killed have left beside such paths; how many.
  static int SweepAbandoned();

  // Says Bye to all (Unavailable) who were not told to go, and waits for them to read it, at most for
  // `grace`. Called by the destructor.
  void Shutdown(std::chrono::milliseconds grace);

  // Why an actor got no ring and sends payloads over the socket, the last such reason; empty: none.
  std::string ring_error() const;
  // Messages that wait for sockets to take them.
  QueueStatus OutQueue() const;

 private:
  class Impl;
  explicit ShmServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
