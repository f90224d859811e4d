// Supervisor: the actor processes of `train` with actors.processes. Starts them, starts those again that
// crashed (with backoff and jitter), and gives up when that does not help. They die with this process.
// Station: beside the loop, on the way to the actors. Owner: the host of a served run; a thread a process.
#pragma once

#include <sys/types.h>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/mutex.h"
#include "common/status.h"

namespace millrace {

struct SupervisorOptions {
  int processes = 1;
  // The command of each process, whose name actor-0, actor-1 ... follows it; [0] is a path.
  std::vector<std::string> command;
  std::string log_dir;  // actor-I.log: what it prints, over all its lives
  uint32_t max_restarts = 5;
  std::chrono::milliseconds first_backoff{200}, longest_backoff{5000};
  std::chrono::milliseconds patience{5000};  // with processes that should end by themselves
  // Segments that the learner has from the actor of this name.
  std::function<uint64_t(const std::string& name)> segments;
  std::function<void(const std::string& line)> say;
  // At most once: the run can't go on by these processes. The message has the exit code or signal and the
  // last output.
  std::function<void(const Status& why)> give_up;
};

class Supervisor {
 public:
  // The three functions are called from its threads, until Stopping has returned.
  explicit Supervisor(SupervisorOptions options);
  // Waits for the processes, which should know that the run has ended; asks those to end that have not after
  // a while, and in the end kills them.
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // From here on, a process that ends is not started again.
  void Stopping();

 private:
  struct Child {
    std::string name, log;
    pid_t pid = -1;           // -1: none now
    uint64_t log_offset = 0;  // where its present life begins
    std::thread thread;
  };
  struct Exit {
    int code = -1, signal = 0;  // one of them
    std::string Describe() const;
  };

  void Watch(Child& child);
  Status Spawn(Child& child);
  Exit Wait(Child& child);
  bool SleepUnlessStopping(std::chrono::milliseconds time);
  bool IsStopping() const;
  void SignalAll(int signal_number);
  bool AllGoneWithin(std::chrono::milliseconds time);
  void GiveUp(const Child& child, const std::string& what);
  void Left(const Child& child);

  const SupervisorOptions options_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ MILL_GUARDED_BY(mutex_) = false, gave_up_ MILL_GUARDED_BY(mutex_) = false;
  int running_ MILL_GUARDED_BY(mutex_) = 0;  // threads
  int left_ MILL_GUARDED_BY(mutex_) = 0;     // processes that ended well
  std::vector<std::unique_ptr<Child>> children_;
};

}  // namespace millrace
