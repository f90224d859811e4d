// ControlTarget: what the Status and Control services ask of a running learner; implemented by the learner's
// session (cli). Any thread calls; the learner's own thread does the work between two updates.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "common/run_status.h"
#include "common/status.h"

namespace millrace {

class ControlTarget {
 public:
  virtual ~ControlTarget() = default;

  // Quick, whatever the learner does at the moment. (It hides the type, hence absl::Status below.)
  virtual RunStatus Status() = 0;

  struct Saved {
    std::string path;
    uint64_t update = 0;
  };
  // Waits until it is written, at most until `deadline` (DeadlineExceeded: it will still be written).
  virtual StatusOr<Saved> Checkpoint(std::chrono::steady_clock::time_point deadline) = 0;
  // These return when the learner has taken notice: its present update may go on.
  virtual absl::Status Pause() = 0;
  virtual absl::Status Resume() = 0;
  virtual absl::Status Drain() = 0;
  virtual absl::Status Stop() = 0;
  // For people, before the answer leaves: who asked for what, and how that ended.
  virtual void Note(const std::string& line) { static_cast<void>(line); }
  // All of `settings` (key.path=value) or none.
  virtual absl::Status Set(const std::vector<std::string>& settings) = 0;
};

}  // namespace millrace
