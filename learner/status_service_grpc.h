// The Status service: Get, and Watch by a timer. Station: status_service. Owner: the gRPC server. Any thread.
#pragma once

#include <chrono>
#include <memory>

#include "learner/control_target.h"

namespace grpc {
class Service;
}

namespace millrace {

class StatusServiceGrpc {
 public:
  explicit StatusServiceGrpc(ControlTarget& target);
  ~StatusServiceGrpc();

  grpc::Service* service();

  // Ends the watches, with a last status; new ones are refused.
  void Close();
  // False when some are left.
  bool WaitForNone(std::chrono::steady_clock::time_point deadline);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
