// LearnerClient: what the command line asks of a running learner - its status, and to pause, resume, save,
// drain or stop. Station: in front of status_service, for people and scripts. Owner: whoever asks; one
// thread at a time.
//
// Every error names the address and is for people: nobody listens there (Unavailable), no answer in time
// (DeadlineExceeded), no Millrace learner (FailedPrecondition), or what the learner itself refused.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/run_status.h"
#include "common/status.h"

namespace millrace {

class LearnerClient {
 public:
  // InvalidArgument when the address is malformed. Connects with the first call.
  static StatusOr<std::unique_ptr<LearnerClient>> Make(const std::string& address);
  ~LearnerClient();

  StatusOr<RunStatus> GetStatus(std::chrono::milliseconds deadline);

  // Calls `next` with the status at once and then at every interval (100 ms to 60 s), until it returns false
  // (Ok) or the learner ends (Unavailable, or Ok where it said so).
  Status WatchStatus(std::chrono::milliseconds interval, const std::function<bool(const RunStatus&)>& next);

  struct Checkpoint {
    std::string path;
    uint64_t update = 0;
  };
  StatusOr<Checkpoint> SaveCheckpoint(std::chrono::milliseconds deadline);

  // These give the run's state afterwards.
  StatusOr<std::string> Pause(std::chrono::milliseconds deadline);
  StatusOr<std::string> Resume(std::chrono::milliseconds deadline);
  StatusOr<std::string> Drain(std::chrono::milliseconds deadline);
  StatusOr<std::string> Stop(std::chrono::milliseconds deadline);
  StatusOr<std::string> Set(const std::vector<std::string>& settings, std::chrono::milliseconds deadline);

 private:
  class Impl;
  explicit LearnerClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
