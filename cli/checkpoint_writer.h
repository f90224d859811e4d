// CheckpointWriter: writes one checkpoint at a time beside training. Station: beside the loop, after an
// update. Owner: the run's session. All calls come from the loop's thread; the store, and the copy that is
// written, are the writer's own from Start until Take has returned its result.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>

#include "cli/run_state.h"
#include "common/checkpoint.h"
#include "common/status.h"

namespace millrace {

class CheckpointWriter {
 public:
  struct Job {
    uint64_t update = 0;
    bool best = false;  // best.safetensors, else a numbered one, after which only `keep` stay
    uint32_t keep = 1;
    std::chrono::steady_clock::time_point at;  // of the state
    CheckpointCopy copy;
  };
  struct Written {
    std::string path;
    uint64_t update = 0;
    bool best = false;
    std::chrono::steady_clock::time_point at;
  };

  // The store must outlive the writer.
  explicit CheckpointWriter(CheckpointStore& store) : store_(store) {}
  ~CheckpointWriter();  // waits for what is being written
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Not while busy.
  void Start(Job job);
  // Something was started whose result was not taken yet.
  bool busy() const { return thread_.joinable(); }
  // The result of what was started last, once; nothing where there is none. `wait`: until it is written.
  std::optional<StatusOr<Written>> Take(bool wait);

 private:
  void Write();

  CheckpointStore& store_;
  std::thread thread_;
  std::atomic<bool> done_{false};
  Job job_;
  StatusOr<Written> result_ = absl::UnknownError("");
};

}  // namespace millrace
