// GrpcServer: the learner's gRPC face - Trajectory, Weights, Status, Control, health and reflection on one
// port, and health alone on another for probes. Station: trajectory_service, weight_publisher,
// status_service. Owner: the learner's process; one thread starts and stops it.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "common/status.h"
#include "learner/control_target.h"
#include "learner/trajectory_service.h"

namespace millrace {

struct ServerOptions {
  std::string listen;         // host:port; port 0 chooses one
  std::string health_listen;  // health only; empty: none
  bool insecure = false;      // allows addresses that are not loopback, without encryption
  size_t max_segment_bytes = 0;
  std::string run_id, program_version, unix_socket, no_socket_reason;  // as JoinReply has them
};

class GrpcServer {
 public:
  // InvalidArgument naming the address when it can't be listened on (in use, malformed, not loopback without
  // `insecure`).
  static StatusOr<std::unique_ptr<GrpcServer>> Start(const ServerOptions& options, TrajectoryService& service,
                                                     ControlTarget& target);
  ~GrpcServer();

  // Whether Start could take these addresses at this moment; its errors.
  static Status Check(const std::string& listen, const std::string& health_listen, bool insecure);

  const std::string& address() const;         // host:port as bound
  const std::string& health_address() const;  // empty: none

  // Health's answer for the service (Trajectory, Weights, Status, Control) and, for an empty name, for all.
  void SetServing(const std::string& service, bool serving);

  // Ends streams after what is queued on them was sent, at most until the deadline. Called by the destructor.
  void Shutdown(std::chrono::milliseconds grace);

 private:
  class Impl;
  explicit GrpcServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
