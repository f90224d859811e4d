// InProcessConnector: joins actors and the trajectory service of one process - the transport without a wire.
// A segment's payload is copied once, into the memory where it is trained from, by the worker that made it.
// Station: trajectory_writer ==> trajectory_service. The connector and its transports borrow the service; a
// transport is closed before the service goes. Threads: as ActorTransport and ActorConnector.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "actor/transport.h"
#include "learner/trajectory_service.h"

namespace millrace {

class InProcessConnector final : public ActorConnector {
 public:
  explicit InProcessConnector(TrajectoryService& service) : service_(service) {}

  StatusOr<std::unique_ptr<ActorTransport>> Connect(std::chrono::milliseconds deadline,
                                                    std::string* note) override;
  void Shutdown() override { shut_.store(true); }

 private:
  TrajectoryService& service_;
  std::atomic<bool> shut_{false};
};

}  // namespace millrace
