// RunControl: what others ask of a running learner, kept until its loop has a moment for it, and the run's
// numbers for those who ask. Station: status_service and control, on the learner's side. Owner: the host of
// a served run (cli/learner_host.h).
//
// Threads: the half of ControlTarget may be called from any thread; the rest belongs to the loop, but for End
// and Waiting. Whatever is asked for ends the loop's wait for segments (TrajectoryService::Interrupt), so it
// is done between two updates even where no actor comes.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/metrics.h"
#include "common/mutex.h"
#include "common/options.h"
#include "common/run_status.h"
#include "common/status.h"
#include "learner/control_target.h"
#include "learner/trajectory_service.h"

namespace millrace {

class RunControl final : public ControlTarget {
 public:
  // Why the loop is to end before the run is done.
  enum class End : uint8_t { kNone, kSignal, kStop, kDrain, kFailed };

  // `say`: a line for people, from any thread.
  RunControl(TrajectoryService& service, const RunOptions& options, std::string run_dir,
             std::function<void(const std::string&)> say = nullptr);
  ~RunControl() override;

  // ---- ControlTarget ----
  RunStatus Status() override;
  StatusOr<Saved> Checkpoint(std::chrono::steady_clock::time_point deadline) override;
  absl::Status Pause() override;
  absl::Status Resume() override;
  absl::Status Drain() override;
  absl::Status Stop() override;
  absl::Status Set(const std::vector<std::string>& settings) override;
  void Note(const std::string& line) override;

  // ---- any thread ----
  // The first call counts; `why` is of kFailed.
  void EndRun(End end, absl::Status why = absl::OkStatus());
  // Nothing but actors is missing to go on.
  bool Waiting() const;

  // ---- the loop ----
  struct Work {
    bool checkpoint = false;
    std::optional<RunOptions> options;  // to be applied
    End end = End::kNone;
    absl::Status why;
    bool none() const { return !checkpoint && !options && end == End::kNone; }
  };
  // What is to be done now; waits while the run is paused and there is nothing. When there is none, the loop
  // may wait for segments again.
  Work Take();
  // Answers all who asked for a checkpoint up to the last Take.
  void Checkpointed(const StatusOr<Saved>& saved);
  // What checkpoint there is, without having been asked for one.
  void NoteCheckpoint(const Saved& saved, std::chrono::steady_clock::time_point at);
  // The run as it stands, before its first update here.
  void NoteRun(uint64_t steps, uint64_t updates, uint64_t episodes, double seconds);
  void NoteUpdate(const MetricsRow& row);
  void SetEvaluating(bool evaluating);
  // The loop has ended: who still waits is answered, and who asks is told so.
  void Close();

  End end() const;
  bool draining() const;
  const RunOptions& options() const { return applied_; }

 private:
  struct Ask;  // somebody waits for a checkpoint
  struct Sample {
    std::chrono::steady_clock::time_point at;
    uint64_t steps = 0;
  };

  void Wake() MILL_REQUIRES(mutex_);
  absl::Status CheckOpen() const MILL_REQUIRES(mutex_);
  void AddSample(uint64_t steps) MILL_REQUIRES(mutex_);
  double RecentRate(std::chrono::steady_clock::time_point now) const MILL_REQUIRES(mutex_);
  void FillReplay(RunStatus& status) const MILL_REQUIRES(mutex_);
  void NoteReplay(const MetricsRow& row) MILL_REQUIRES(mutex_);
  void NoteCounter(const char* name, uint64_t value) MILL_REQUIRES(mutex_);
  std::string StateOf(const RunStatus& status) const MILL_REQUIRES(mutex_);

  TrajectoryService& service_;
  const bool sac_;
  const std::function<void(const std::string&)> say_;
  RunOptions applied_;  // the loop's own

  mutable Mutex mutex_;
  CondVar changed_;
  RunOptions options_ MILL_GUARDED_BY(mutex_);  // with what was set and not applied yet
  bool options_changed_ MILL_GUARDED_BY(mutex_) = false;
  std::vector<std::shared_ptr<Ask>> asked_ MILL_GUARDED_BY(mutex_), taken_ MILL_GUARDED_BY(mutex_);
  bool paused_ MILL_GUARDED_BY(mutex_) = false, draining_ MILL_GUARDED_BY(mutex_) = false,
               evaluating_ MILL_GUARDED_BY(mutex_) = false, closed_ MILL_GUARDED_BY(mutex_) = false;
  End end_ MILL_GUARDED_BY(mutex_) = End::kNone;
  absl::Status why_ MILL_GUARDED_BY(mutex_);
  RunStatus numbers_ MILL_GUARDED_BY(mutex_);
  double insert_wait_ MILL_GUARDED_BY(mutex_) = MetricsRow::kUnknown,
                      sample_wait_ MILL_GUARDED_BY(mutex_) = MetricsRow::kUnknown,
                      prefetch_ MILL_GUARDED_BY(mutex_) = MetricsRow::kUnknown;
  std::optional<std::chrono::steady_clock::time_point> checkpoint_at_ MILL_GUARDED_BY(mutex_);
  std::deque<Sample> samples_ MILL_GUARDED_BY(mutex_);  // of the last ten seconds, and the one before
};

}  // namespace millrace
