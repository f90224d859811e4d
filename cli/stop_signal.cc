#include "cli/stop_signal.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <csignal>
#include <cstring>
#include <ctime>

#include <atomic>
#include <utility>

#include "common/status.h"

namespace millrace {
namespace {

std::atomic<bool> stop_requested{false};
std::atomic<int64_t> requested_at{0};  // milliseconds
std::atomic<const char*> notice_text{""};
std::atomic<int> stop_fd{-1};  // an eventfd that is readable from the first signal on

// What one press of Ctrl-C may cause twice (a shell and its child, a bouncing key) is one request.
constexpr int64_t kSamePressMs = 300;

int64_t NowMs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

void Raise(int fd) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(fd, &one, sizeof one);
}

// Async-signal-safe: atomics, clock_gettime, strlen, write and _exit.
extern "C" void OnStopSignal(int) {
  const int64_t now = NowMs();
  if (!stop_requested.exchange(true)) {
    requested_at.store(now);
    const char* const text = notice_text.load();
    for (const char* part : {"\n", text, "\n"}) {
      [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, part, std::strlen(part));
    }
    Raise(stop_fd.load());
  } else if (now - requested_at.load() > kSamePressMs) {
    _exit(130);
  }
}

}  // namespace

void InstallStopSignals(const char* notice) {
  notice_text.store(notice);
  if (stop_fd.load() < 0) stop_fd.store(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
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

StopWatcher::StopWatcher(std::function<void()> on_stop, std::chrono::milliseconds period,
                         std::function<void()> on_tick)
    : on_stop_(std::move(on_stop)),
      on_tick_(std::move(on_tick)),
      period_(period),
      quit_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  MILL_CHECK(quit_fd_ >= 0);
  thread_ = std::thread([this] { Main(); });
}

StopWatcher::~StopWatcher() {
  Raise(quit_fd_);
  thread_.join();
  close(quit_fd_);
}

void StopWatcher::Main() {
  using Clock = std::chrono::steady_clock;
  pollfd fds[2] = {{quit_fd_, POLLIN, 0}, {stop_fd.load(), POLLIN, 0}};
  for (Clock::time_point due = Clock::now() + period_;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(due - Clock::now());
    poll(fds, 2, left.count() > 0 ? static_cast<int>(left.count()) : 0);
    if (fds[0].revents != 0) return;
    if (fds[1].fd >= 0 && fds[1].revents != 0) {
      fds[1].fd = -1;  // poll passes it over: it stays readable
      on_stop_();
    }
    if (Clock::now() < due) continue;
    on_tick_();
    due = Clock::now() + period_;
  }
}

}  // namespace millrace
