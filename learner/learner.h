// Learner: what every algorithm's learner is to the loop, checkpoints, evaluation and the service around it:
// it turns batches of segments into weights. It owns them and all that it keeps between updates. Station:
// train_step. Called from one thread; it may spread its work over others.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/metrics.h"
#include "common/options.h"
#include "common/segment.h"
#include "common/status.h"
#include "kernels/net/policy_view.h"

namespace millrace {

struct LearnerReport : LearnerMetrics {
  int minibatches = 0;  // gradient steps that were tried
  int skipped = 0;      // of them, dropped because a loss or gradient was not finite
};

// A part of what Update changes, where it lies. One of the pointers is set.
struct StateTensor {
  std::string name;
  std::vector<uint64_t> shape;
  float* f32 = nullptr;
  double* f64 = nullptr;
  int64_t* i64 = nullptr;
  std::byte* bytes = nullptr;
  // What acting needs, and a new run that begins with these weights: not the optimizer, not what belongs to
  // the environments' present rows.
  bool warm = false;
  bool copy = false;  // of Snapshot: it does not change before the next one

  size_t elements() const {
    size_t n = 1;
    for (const uint64_t d : shape) n *= static_cast<size_t>(d);
    return n;
  }
};

class Learner {
 public:
  virtual ~Learner() = default;

  // The current policy; valid until the next Update.
  virtual PolicyView policy() const = 0;

  // Takes in one batch: a segment of every row group, in row order; or in async mode segments of any groups,
  // whose global numbers `groups` has (statistics.h says which rows are theirs), the older of one group
  // first. Empty: segment i is of group i. progress in [0, 1] drives the schedules. An on-policy learner
  // makes one update of it; an off-policy one adds it to its replay and takes as many gradient steps as are
  // due, maybe none. DataLoss naming the op when a loss or a gradient is not finite and run.on_nonfinite is
  // `stop`; the weights are then those of before the bad gradient step. (SAC's critics step before its policy
  // does: where the policy's gradient is bad, that of the critics has been taken.)
  virtual StatusOr<LearnerReport> Update(std::span<const SegmentView> segments, double progress,
                                         std::span<const uint32_t> groups = {}) = 0;

  // Counts an update whose batch is not to be trained on; running statistics of rewards go on.
  virtual void SkipUpdate(std::span<const SegmentView> segments, std::span<const uint32_t> groups = {}) = 0;

  // Takes over, between two updates, what may change while a run goes on (kChangeable in cli/run_control.cc)
  // of these valid options. InvalidArgument, and nothing changes, when they differ in another setting of the
  // algorithm; sections that the learner does not read are not looked at.
  virtual Status Apply(const RunOptions& changed) = 0;

  // Calls of Update and SkipUpdate, over all sessions of the run: the policy's version.
  virtual uint64_t updates() const = 0;
  virtual uint64_t optimizer_steps() const = 0;

  // Rows of different groups that Update may ever see; groups beyond these must not come.
  virtual uint64_t most_rows() const { return ~uint64_t{0}; }

  // Everything that Update changes, for checkpoints. Written to by a loader, who then calls Loaded.
  virtual std::vector<StateTensor> State() = 0;
  // State of this moment, for a checkpoint that is written while updates go on: what is large is brought up
  // to date in a copy and marked so; the rest lies where State has it. Nobody may read the copy meanwhile.
  virtual std::vector<StateTensor> Snapshot() { return State(); }
  // Before State, for each tensor of a checkpoint: state whose size varies (rewards of async mode's actors,
  // the replay's content) becomes as large as it was; `first` is the tensor's first dimension. Nothing for
  // other tensors. ResourceExhausted or InvalidArgument where it cannot.
  virtual Status ResizeState(std::string_view name, uint64_t first) = 0;
  // Takes over what was written to State. DataLoss naming the tensor where its content does not hold
  // together, InvalidArgument where it is of other settings; the learner is then of no further use.
  virtual Status Loaded(uint64_t updates, uint64_t optimizer_steps) = 0;
};

}  // namespace millrace
