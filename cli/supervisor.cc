#include "cli/supervisor.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <cstring>

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/commands.h"
#include "common/file_system.h"

namespace millrace {
namespace {

using std::chrono_literals::operator""ms;

constexpr auto kEndsAsked = 3000ms;  // after SIGTERM
constexpr size_t kLastWords = 1000;  // bytes of a log that a message quotes
constexpr size_t kLastLines = 3;

// What the process wrote last, as one line.
std::string LastWords(const std::string& log, uint64_t from) {
  PosixFileSystem fs;
  const StatusOr<uint64_t> size = fs.Size(log);
  if (!size.ok() || *size <= from) return "nothing";
  const uint64_t begin = std::max(from, *size > kLastWords ? *size - kLastWords : 0);
  const StatusOr<std::string> text = fs.Read(log, begin, *size - begin);
  if (!text.ok()) return "nothing";
  std::vector<std::string> lines = absl::StrSplit(*text, '\n', absl::SkipWhitespace());
  if (lines.size() > kLastLines) lines.erase(lines.begin(), lines.end() - kLastLines);
  return lines.empty() ? "nothing" : absl::StrJoin(lines, " / ");
}

// In the child, between fork and exec: only what is safe there.
[[noreturn]] void BecomeActor(char* const* argv, int log, pid_t parent) {
  setpgid(0, 0);  // Ctrl-C is the learner's affair
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kExitFailed);  // it died before that
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  const int null = open("/dev/null", O_RDONLY);
  if (null >= 0) dup2(null, STDIN_FILENO);
  close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);  // the run's lock, above all, must not be held by a child
  execv(argv[0], argv);
  _exit(127);
}

}  // namespace

std::string Supervisor::Exit::Describe() const {
  return signal != 0 ? absl::StrFormat("ended by signal %d (%s)", signal, strsignal(signal))
                     : absl::StrFormat("ended with code %d", code);
}

Supervisor::Supervisor(SupervisorOptions options) : options_(std::move(options)) {
  for (int i = 0; i < options_.processes; ++i) {
    auto child = std::make_unique<Child>();
    child->name = absl::StrCat("actor-", i);
    child->log = JoinPath(options_.log_dir, absl::StrCat(child->name, ".log"));
    children_.push_back(std::move(child));
  }
  {
    const MutexLock lock(mutex_);
    running_ = options_.processes;
  }
  // The thread that forks must live as long as the child: it is whose death the child is told of.
  for (const auto& child : children_) child->thread = std::thread([this, c = child.get()] { Watch(*c); });
}

Supervisor::~Supervisor() {
  Stopping();
  if (!AllGoneWithin(options_.patience)) {
    SignalAll(SIGTERM);
    if (!AllGoneWithin(kEndsAsked)) SignalAll(SIGKILL);
  }
  for (const auto& child : children_) child->thread.join();
}

void Supervisor::Stopping() {
  const MutexLock lock(mutex_);
  stopping_ = true;
  changed_.NotifyAll();
}

bool Supervisor::IsStopping() const {
  const MutexLock lock(mutex_);
  return stopping_;
}

bool Supervisor::SleepUnlessStopping(std::chrono::milliseconds time) {
  const auto until = std::chrono::steady_clock::now() + time;
  const MutexLock lock(mutex_);
  while (!stopping_ && std::chrono::steady_clock::now() < until) {
    changed_.WaitFor(mutex_, until - std::chrono::steady_clock::now());
  }
  return !stopping_;
}

bool Supervisor::AllGoneWithin(std::chrono::milliseconds time) {
  const auto until = std::chrono::steady_clock::now() + time;
  const MutexLock lock(mutex_);
  while (running_ > 0 && std::chrono::steady_clock::now() < until) {
    changed_.WaitFor(mutex_, until - std::chrono::steady_clock::now());
  }
  return running_ == 0;
}

void Supervisor::SignalAll(int signal_number) {
  const MutexLock lock(mutex_);
  for (const auto& child : children_) {
    if (child->pid > 0) kill(child->pid, signal_number);
  }
}

Status Supervisor::Spawn(Child& child) {
  std::vector<std::string> words = options_.command;
  words.push_back(child.name);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int log = open(child.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) return FileError(errno, "write", child.log);
  struct stat info = {};
  child.log_offset = fstat(log, &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
  const pid_t parent = getpid();
  Status status = absl::OkStatus();
  {
    const MutexLock lock(mutex_);
    child.pid = stopping_ ? -1 : fork();
    if (child.pid == 0) BecomeActor(argv.data(), log, parent);
    if (child.pid < 0) {
      status =
          stopping_
              ? absl::CancelledError("stopping")
              : absl::ResourceExhaustedError(absl::StrCat("cannot start a process: ", std::strerror(errno)));
    }
  }
  close(log);
  return status;
}

// Reaps only after the pid is no longer ours to signal.
Supervisor::Exit Supervisor::Wait(Child& child) {
  siginfo_t info = {};
  while (waitid(P_PID, static_cast<id_t>(child.pid), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
  int status = 0;
  {
    const MutexLock lock(mutex_);
    while (waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
    }
    child.pid = -1;
  }
  Exit exit;
  if (WIFSIGNALED(status)) {
    exit.signal = WTERMSIG(status);
  } else {
    exit.code = WEXITSTATUS(status);
  }
  return exit;
}

void Supervisor::GiveUp(const Child& child, const std::string& what) {
  {
    const MutexLock lock(mutex_);
    if (stopping_ || gave_up_) return;
    gave_up_ = true;
  }
  options_.give_up(absl::InternalError(
      absl::StrCat(child.name, ": ", what, "; its last output: ", LastWords(child.log, child.log_offset),
                   " (", child.log, ")")));
}

void Supervisor::Left(const Child& child) {
  options_.say(absl::StrCat(child.name, " has left"));
  bool last = false;
  {
    const MutexLock lock(mutex_);
    last = ++left_ == options_.processes;
  }
  if (last) GiveUp(child, "has left, and it was the last one");
}

void Supervisor::Watch(Child& child) {
  std::minstd_rand random{std::random_device{}()};
  std::uniform_real_distribution<double> jitter(0.5, 1.0);
  auto backoff = options_.first_backoff;
  uint64_t segments_before = 0;
  uint32_t crashes = 0;  // since it last brought something
  while (!IsStopping()) {
    if (const Status spawned = Spawn(child); !spawned.ok()) {
      if (!absl::IsCancelled(spawned)) GiveUp(child, std::string(spawned.message()));
      break;
    }
    const Exit exit = Wait(child);
    if (IsStopping()) break;
    if (exit.code == 0) {
      Left(child);
      break;
    }
    if (exit.code == kExitUsage) {  // it was refused, and would be again
      GiveUp(child, exit.Describe());
      break;
    }
    if (const uint64_t segments = options_.segments(child.name); segments > segments_before) {
      segments_before = segments;
      crashes = 0;
      backoff = options_.first_backoff;
    }
    if (++crashes > options_.max_restarts) {
      GiveUp(child,
             absl::StrCat(exit.Describe(), ", ", crashes, " times in a row with nothing done between"));
      break;
    }
    const auto wait = std::chrono::milliseconds(
        static_cast<int64_t>(static_cast<double>(backoff.count()) * jitter(random)));
    options_.say(
        absl::StrCat(child.name, " ", exit.Describe(), "; it starts again in ", wait.count(), " ms"));
    if (!SleepUnlessStopping(wait)) break;
    backoff = std::min(2 * backoff, options_.longest_backoff);
  }
  const MutexLock lock(mutex_);
  --running_;
  changed_.NotifyAll();
}

}  // namespace millrace
