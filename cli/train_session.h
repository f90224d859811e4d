// TrainSession: a run's folder, checkpoints, metrics, progress and evaluation around the Trainer's loop, for
// `train` and `learner` alike. Owner: the command. One thread calls everything but Say. Station: around all
// of the learner's.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "cli/args.h"
#include "cli/checkpoint_writer.h"
#include "cli/trainer.h"
#include "common/checkpoint.h"
#include "common/curve.h"
#include "common/file_system.h"
#include "common/metrics.h"
#include "common/mutex.h"
#include "common/progress.h"
#include "common/resource_usage.h"
#include "common/run_dir.h"
#include "common/run_summary.h"
#include "common/segment_log.h"
#include "common/tensorboard.h"

namespace millrace {

class TrainSession;
enum class RunOutcome : uint8_t { kDone, kStopped };

// Where a session's rollouts come from, and what goes on beside its loop.
class RunHost {
 public:
  virtual ~RunHost() = default;

  // `resumed_dir`: the folder of the run that goes on; empty for a new one, which has no folder yet.
  virtual StatusOr<std::unique_ptr<Trainer>> MakeTrainer(const RunOptions& options,
                                                         const std::string& resumed_dir) = 0;
  // The folder is there and locked, the state restored: what serves may begin.
  virtual Status Begin(TrainSession& session) = 0;
  // Before each update, and again whenever the source gave up waiting. False: the run stops here, with a
  // checkpoint. An error ends it in the same way, as a failure.
  virtual StatusOr<bool> MayGoOn() = 0;
  virtual void AfterUpdate(const MetricsRow& row) = 0;
  // Those of the update that is just done, before anything is saved.
  virtual std::span<const SegmentEntry> Segments() = 0;
  virtual void Evaluating(bool begins) = 0;
  // The loop has ended, so the last checkpoint is written; the folder is still locked.
  virtual void End(const StatusOr<RunOutcome>& outcome) = 0;
};

class TrainSession {
 public:
  // `go_on`: the command that resumes this run, up to its folder.
  TrainSession(const TrainCommand& command, std::string go_on, std::chrono::steady_clock::time_point started,
               RunHost& host);

  Status Prepare();
  // A resumed run with nothing left to do: says so, and its summary stands.
  bool AlreadyDone();
  StatusOr<RunOutcome> Loop();
  // The summary on the terminal and on disk.
  Status Finish(const StatusOr<RunOutcome>& outcome);

  // ---- for the host ----
  // A line for the user, at any time and from any thread.
  void Say(const std::string& line);
  // Waits for a checkpoint that is being written, and writes one of this moment.
  Status SaveCheckpoint();
  // From now on; config.yaml says so.
  Status Apply(const RunOptions& options);

  const RunOptions& options() const { return options_; }
  Trainer& trainer() { return *trainer_; }
  RunDir& dir() { return *dir_; }
  FileSystem& file_system() { return fs_; }
  const std::string& last_checkpoint() const { return last_checkpoint_; }  // empty: none
  uint64_t checkpointed_update() const { return checkpointed_update_; }
  std::chrono::steady_clock::time_point checkpointed_at() const { return checkpointed_at_; }

 private:
  Status CreateDir();
  Status PrepareNew();
  Status PrepareResumed();
  Status CheckSameSource() const;
  Status CheckSameCourse(const Checkpoint& checkpoint) const;
  Status WarmStart();
  Status Record(const MetricsRow& row);
  Status EvaluateIfDue(MetricsRow& row, bool last);
  Status AfterUpdate(MetricsRow& row);
  Status KeepBest(double return_mean);
  Status CheckpointIfDue(uint64_t update);
  // Hands a copy of the state to the writer.
  void StartWriting(bool best);
  // Takes up what the writer has written, if it has; `wait`: once it has.
  Status TakeWritten(bool wait);
  StatusOr<RunOutcome> RunToTheEnd();
  Status SaveAndFail(const Status& why);
  RunSummary Summarize(const StatusOr<RunOutcome>& outcome) const;
  void Show(std::string_view text) const;
  ProgressState Now() const;

  const TrainCommand& command_;
  const std::string go_on_;
  const std::chrono::steady_clock::time_point started_;
  const Terminal terminal_;
  RunHost& host_;
  PosixFileSystem fs_;
  RunOptions options_;
  std::unique_ptr<Trainer> trainer_;
  std::optional<RunDir> dir_;
  std::optional<CheckpointStore> store_;
  std::optional<MetricsWriter> metrics_;
  MetricsWindow window_;  // updates since the last line
  std::optional<TensorBoardWriter> tensorboard_;
  std::optional<SegmentLog> segments_;
  std::optional<CpuShare> cpu_;
  Mutex console_;
  std::optional<Progress> progress_ MILL_GUARDED_BY(console_);
  Curve curve_;
  std::string last_checkpoint_;
  uint64_t checkpointed_update_ = 0;
  bool checkpoint_due_ = false;  // and another is being written
  std::chrono::steady_clock::time_point checkpointed_at_ = std::chrono::steady_clock::now();
  double target_wall_seconds_ = 0;          // from the command's start
  std::optional<CheckpointWriter> writer_;  // of checkpoint.replay; last: its thread reads what is above
};

// What the process ends with: 0 done or ended on request, 3 failed (the reason is printed), 130 stopped by a
// signal.
int ExitCode(const StatusOr<RunOutcome>& outcome, const Status& finished);

}  // namespace millrace
