// SIGINT, SIGTERM and SIGHUP ask a command to stop in good order; a second one ends the process at once with
// code 130. Station: beside every command that runs for long. Process-wide.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace millrace {

// `notice`, a line for standard error, says what the first signal leads to. It must outlive the process.
void InstallStopSignals(
    const char* notice = "stopping after this update, with a checkpoint; once more to stop at once");
bool StopRequested();

// A thread that calls `on_stop` once when a stop is requested, and `on_tick` at every `period` all along.
// For those who wait for something else and must not miss either. Both are called from that thread.
class StopWatcher {
 public:
  StopWatcher(std::function<void()> on_stop, std::chrono::milliseconds period, std::function<void()> on_tick);
  // Returns when the thread has ended; neither is called afterwards.
  ~StopWatcher();
  StopWatcher(const StopWatcher&) = delete;
  StopWatcher& operator=(const StopWatcher&) = delete;

 private:
  void Main();

  const std::function<void()> on_stop_, on_tick_;
  const std::chrono::milliseconds period_;
  int quit_fd_;  // an eventfd
  std::thread thread_;
};

}  // namespace millrace
