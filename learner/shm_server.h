// ShmServer: accepts actors of this host on a Unix socket and gives each a ring of slots in shared memory,
// where segments are written by the actor and trained from. Station: trajectory_service. Owner: the
// learner's process; one thread starts and stops it, threads of its own serve.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "common/status.h"
#include "learner/trajectory_service.h"

namespace millrace {

class ShmServer {
 public:
  // The socket is for this user only. A path left by a dead learner is taken over; AlreadyExists when a
  // living one has it, InvalidArgument when it is too long for a socket.
  static StatusOr<std::unique_ptr<ShmServer>> Start(const std::string& path, TrajectoryService& service);
  ~ShmServer();
  // A path of this user's, short enough, unlike that of any other learner.
  static std::string DefaultPath();

  void Shutdown(std::chrono::milliseconds grace);

 private:
  class Impl;
  explicit ShmServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
