// What the fault tests share: a run of the built program - its learner and actors as processes - and what is
// read of it afterwards. Owner: the test; one thread. Station: around all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/run_status.h"
#include "tests/faults/process.h"

namespace millrace {

// MILLRACE_FAULTS_LONG=1: the long form of each test, of minutes instead of seconds.
bool LongForm();

// A folder of this process's own that does not exist yet.
std::string FreshDir(const std::string& name);
std::string ReadText(const std::string& path);

using Settings = std::vector<std::string>;  // key.path=value

// CartPole, 8 rows in 4 groups, 256 steps an update, without end: nothing in it depends on run.steps, so runs
// of any length are beginnings of each other.
Settings SmallRun();
// The same by the Ledger environment, with segments.jsonl.
Settings SmallLedger();

// `millrace learner` on a free port of loopback.
class Learner {
 public:
  // Goes on with what is in `run_dir`.
  Learner(const std::string& run_dir, const Settings& settings)
      : Learner(run_dir, settings, Process::Options()) {}
  Learner(const std::string& run_dir, const Settings& settings, const Process::Options& options,
          const std::string& listen = "127.0.0.1:0");

  Process& process() { return *process_; }
  const std::string& run_dir() const { return run_dir_; }
  // Where it listens; empty, with a failure of the test, when it does not come to that.
  std::string address(std::chrono::milliseconds deadline = kPatient);
  uint16_t port();

  // What `millrace status` shows; a status without a run's id when there is no answer in time.
  RunStatus Status();
  uint64_t Counter(const std::string& name);
  // False when `what` does not come true in time, or the learner ends.
  bool WaitFor(const std::function<bool(const RunStatus&)>& what,
               std::chrono::milliseconds deadline = kPatient);
  // Updates that it has done more than now. The test fails when it does not.
  void WaitForUpdates(uint64_t more, std::chrono::milliseconds deadline = kPatient);
  // Asks it to stop after a checkpoint and waits for its end.
  void Stop();

 private:
  std::string run_dir_, address_;
  std::unique_ptr<Process> process_;
};

// `millrace actor`; the flags beside --learner.
std::unique_ptr<Process> StartActor(const std::string& learner, const std::string& name,
                                    const std::string& transport = "grpc");

// ---- what a run left ----

std::vector<std::string> Checkpoints(const std::string& run_dir);  // names, oldest first
uint64_t UpdateOf(const std::string& checkpoint_name);
// All tensors with their names, as bytes: equal where the state of a run is the same bit for bit.
std::string Tensors(const std::string& run_dir, const std::string& checkpoint_name);
// The run's newest checkpoint equals, bit for bit, that of `millrace train` in one process after as many
// updates. `steps`: of an update.
void ExpectBitsOfTrain(const std::string& run_dir, const Settings& settings, uint64_t steps,
                       std::chrono::milliseconds deadline = kPatient);

}  // namespace millrace
