#include "cli/stop_signal.h"

#include <unistd.h>
#include <csignal>

#include <atomic>

namespace millrace {
namespace {

std::atomic<bool> stop_requested{false};

extern "C" void OnStopSignal(int) {
  if (stop_requested.exchange(true)) _exit(130);
}

}  // namespace

void InstallStopSignals() {
  struct sigaction action = {};
  action.sa_handler = OnStopSignal;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool StopRequested() {
  return stop_requested.load(std::memory_order_relaxed);
}

}  // namespace millrace
