// RunState: what a run has done so far beyond the learner's and the environments' own state, and how all of
// it goes into a checkpoint and comes back. Used by the trainer, evaluation and warm start. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/checkpoint.h"
#include "common/options.h"
#include "common/status.h"
#include "learner/learner.h"
#include "learner/rollout_source.h"

namespace millrace {

// The last episodes' returns and lengths; a ring of fixed size.
class EpisodeWindow {
 public:
  explicit EpisodeWindow(size_t size) : returns_(size), lengths_(size) {}
  void Add(double ret, double length);
  size_t count() const { return total_ < returns_.size() ? static_cast<size_t>(total_) : returns_.size(); }
  size_t capacity() const { return returns_.size(); }
  uint64_t total() const { return total_; }
  // Means over the last n episodes (n at most count(), at least 1). Cheap while no episode has ended: a run
  // of single steps asks for them thousands of times a second.
  double ReturnMean(size_t n) const { return Mean(returns_, n, return_mean_); }
  double LengthMean(size_t n) const { return Mean(lengths_, n, length_mean_); }

 private:
  friend struct RunState;
  struct Known {  // the mean that was asked for last
    uint64_t total = 0;
    size_t n = 0;
    double mean = 0;
  };
  double Mean(const std::vector<double>& values, size_t n, Known& known) const;
  // Oldest first; and back, where the newest that fit are kept.
  std::vector<double> InOrder(const std::vector<double>& ring) const;
  void Fill(const std::vector<double>& returns, const std::vector<double>& lengths, uint64_t total);
  std::vector<double> returns_, lengths_;
  uint64_t total_ = 0;
  mutable Known return_mean_, length_mean_;
};

// What a checkpoint holds, apart from the run that goes on.
struct CheckpointCopy {
  CheckpointData data;  // views into `bytes`, and into the copy of Learner::Snapshot
  std::unique_ptr<std::byte[]> bytes;
};

struct RunState {
  explicit RunState(size_t window) : episodes(window) {}

  uint64_t steps = 0;  // environment steps
  double seconds = 0;  // of training, over all sessions of the run
  uint64_t updates_skipped = 0;
  bool target_reached = false;
  uint64_t target_steps = 0;  // when it was first reached
  double target_seconds = 0;
  bool has_best = false;
  double best_return = 0;  // of evaluations
  bool has_eval = false;   // of the last evaluation:
  double eval_return_mean = 0, eval_return_std = 0;
  uint64_t eval_episodes = 0;
  uint64_t next_eval = 0;  // steps
  EpisodeWindow episodes;

  // Calls `write` with everything a run needs to go on; the views in it live as long as the call.
  template <class Write>
  auto WithCheckpoint(const RunOptions& options, Learner& learner, const RolloutSource& source,
                      const Write& write) {
    return WithData(options, learner, learner.State(), source, write);
  }
  // The same as a copy, to be written while the run goes on; it holds until the learner's next Snapshot.
  CheckpointCopy Copy(const RunOptions& options, Learner& learner, const RolloutSource& source);
  // InvalidArgument naming the tensor when the checkpoint is of another network, other environments or
  // another replay; DataLoss where the content of one does not hold together. The learner is then of no
  // further use. A replay that the checkpoint does not have begins empty.
  Status Restore(const Checkpoint& checkpoint, const RunOptions& options, Learner& learner,
                 RolloutSource& source);

 private:
  template <class Write>
  auto WithData(const RunOptions& options, const Learner& learner, const std::vector<StateTensor>& state,
                const RolloutSource& source, const Write& write) const {
    const RowStates rows = source.SaveRows();
    const std::vector<int64_t> group_rows(rows.group_rows.begin(), rows.group_rows.end());
    const std::vector<int64_t> next_step(rows.next_step.begin(), rows.next_step.end());
    const std::vector<double> returns = episodes.InOrder(episodes.returns_);
    const std::vector<double> lengths = episodes.InOrder(episodes.lengths_);
    CheckpointData data = Pack(options, learner, state, rows);
    if (!InStep(options, rows)) {
      data.tensors.push_back(MakeTensor("env/group_rows", std::span<const int64_t>(group_rows)));
      data.tensors.push_back(MakeTensor("env/next_step", std::span<const int64_t>(next_step)));
      data.tensors.push_back(MakeTensor("env/known", std::span<const uint8_t>(rows.known)));
    }
    data.tensors.push_back(MakeTensor("episodes/returns", std::span<const double>(returns)));
    data.tensors.push_back(MakeTensor("episodes/lengths", std::span<const double>(lengths)));
    return write(data);
  }
  Status RestoreEpisodes(const Checkpoint& checkpoint, uint64_t total);
  CheckpointData Pack(const RunOptions& options, const Learner& learner,
                      const std::vector<StateTensor>& state, const RowStates& rows) const;
  // All groups are known, equally far, and as the options divide the rows: then the rows alone are saved.
  static bool InStep(const RunOptions& options, const RowStates& rows);
};

// Whether it was written with checkpoint.replay.
bool HasReplay(const Checkpoint& checkpoint);

// Loads weights and statistics only, for evaluation and warm start; the optimizer and the counters stay new.
Status RestoreWeights(const Checkpoint& checkpoint, Learner& learner);

// Opens a checkpoint: `run_or_file` itself where that is a .safetensors file, else one of that run. `which`:
// "best" (the latest where the run has none), "latest", or the name of a file in its checkpoints/ or
// anywhere. Damaged ones that "latest" passes over are added to `skipped`, if given.
StatusOr<Checkpoint> OpenCheckpoint(FileSystem& fs, const std::string& run_or_file, const std::string& which,
                                    std::vector<SkippedCheckpoint>* skipped);

}  // namespace millrace
