// Process: a child of the test - the built program, mostly - whose output is read as it comes, and which
// never outlives the test. Owner: the test. Station: none, it runs whole programs.
//
// Threads: commands from one; two of its own read the output and wait for the end. Every wait has a deadline.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/mutex.h"

namespace millrace {

// Long enough for the slowest machine that tests run on; nothing that passes waits so long.
inline constexpr std::chrono::seconds kPatient{60};

class Process {
 public:
  struct Options {
    std::map<std::string, std::string> environment;  // beside the test's own
    rlim_t largest_file = RLIM_INFINITY;             // bytes; writing more fails as on a full disk
  };
  // `words[0]` is the program's path. Aborts where no process can be made.
  explicit Process(std::vector<std::string> words) : Process(std::move(words), Options()) {}
  Process(std::vector<std::string> words, const Options& options);
  ~Process();  // by SIGKILL, if it still runs
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  // Does nothing when it has ended.
  void Signal(int signal_number);
  // SIGKILL, and waits for the end.
  void Kill();

  bool running() const;
  // Standard output and error together, so far.
  std::string output() const;
  // The first line, of what was written or will be, that has `text`; nothing when it ends or time runs out
  // first.
  std::optional<std::string> WaitForLine(const std::string& text,
                                         std::chrono::milliseconds deadline = kPatient);
  // The exit code, 128 + N after signal N; nothing when it still runs at the deadline.
  std::optional<int> WaitForEnd(std::chrono::milliseconds deadline = kPatient);

  // Bytes of memory that it holds now; 0 when it has ended.
  size_t resident_bytes() const;

 private:
  void Read(int fd);
  void AwaitEnd();

  pid_t pid_ = -1;
  mutable Mutex mutex_;
  CondVar changed_;
  std::string output_ MILL_GUARDED_BY(mutex_);
  bool read_all_ MILL_GUARDED_BY(mutex_) = false;
  std::optional<int> code_ MILL_GUARDED_BY(mutex_);
  std::thread reader_, waiter_;
};

}  // namespace millrace
