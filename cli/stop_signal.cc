#include "cli/stop_signal.h"

#include <unistd.h>
#include <csignal>
#include <ctime>

#include <atomic>

namespace millrace {
namespace {

std::atomic<bool> stop_requested{false};
std::atomic<int64_t> requested_at{0};  // milliseconds

// What one press of Ctrl-C may cause twice (a shell and its child, a bouncing key) is one request.
constexpr int64_t kSamePressMs = 300;

int64_t NowMs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

// Async-signal-safe: atomics, clock_gettime, write and _exit.
extern "C" void OnStopSignal(int) {
  const int64_t now = NowMs();
  if (!stop_requested.exchange(true)) {
    requested_at.store(now);
    constexpr char kText[] = "\nstopping after this update, with a checkpoint; once more to stop at once\n";
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kText, sizeof kText - 1);
  } else if (now - requested_at.load() > kSamePressMs) {
    _exit(130);
  }
}

}  // namespace

void InstallStopSignals() {
  struct sigaction action = {};
  action.sa_handler = OnStopSignal;
  sigemptyset(&action.sa_mask);
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal_number, &action, nullptr);
  // A reader that has gone or a file that may not grow is an error of the write, not the end of the run.
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
}

bool StopRequested() {
  return stop_requested.load(std::memory_order_relaxed);
}

}  // namespace millrace
