// EnvPool: all row groups of one process with their rollout slots. Station: env_pool. The threads of the
// ThreadPool own fixed blocks of groups; a group that has stepped is inferred at once by the thread that
// stepped it, with no lock and no waiting for other groups, and a thread whose block is done takes groups
// that another has not begun. While one group steps, another infers. Bits depend on the seed alone: never on
// threads, on who took a group, or on group sizes.
#pragma once

#include <memory>
#include <vector>

#include "actor/rollout_buffer.h"
#include "actor/row_group.h"
#include "actor/segment_collector.h"
#include "common/options.h"
#include "kernels/core/thread_pool.h"

namespace millrace {

class EnvPool {
 public:
  // Makes all groups and starts an episode in each row. Random numbers come from `seed`; horizon in agent
  // steps; uniform_steps as in SegmentCollector.
  static StatusOr<std::unique_ptr<EnvPool>> Make(const EnvSection& env, uint64_t seed, int horizon,
                                                 ThreadPool& threads, uint64_t uniform_steps = 0);

  const EnvSpec& spec() const { return groups_[0]->spec(); }
  int horizon() const { return horizon_; }
  int rows() const { return rows_; }
  const std::vector<SegmentView>& segments() const { return buffer_->slots(); }
  const std::vector<std::unique_ptr<RowGroup>>& groups() const { return groups_; }

  // One rollout: every group acts by `policy` for `horizon` steps into its segment. `first_step` counts agent
  // steps since the run began and keys the actions' randomness. Afterwards Fault() has the first fault in row
  // order.
  void Collect(const PolicyView& policy, uint64_t first_step, bool deterministic = false);
  // Steps with the actions that already stand in the segments; no inference. For benchmarks.
  void StepOnly();
  const EnvFault* fault() const;
  void ClearFaults();

  // Seconds of the last Collect that threads spent in the network, over all threads; an estimate from every
  // 8th step.
  double inference_seconds() const;

  // All rows' state after a rollout, in row order: [rows, row_state_bytes].
  std::vector<std::byte> SaveRows() const;
  Status LoadRows(const std::vector<std::byte>& state);

 private:
  EnvPool() = default;

  // A line a worker, so that counters of different threads never share one.
  struct alignas(64) WorkerState {
    std::unique_ptr<SegmentCollector> collector;
    double inference_seconds = 0;
  };

  ThreadPool* threads_ = nullptr;
  std::unique_ptr<RolloutBuffer> buffer_;
  std::vector<std::unique_ptr<RowGroup>> groups_;
  std::vector<WorkerState> workers_;
  const ActorCritic* net_ = nullptr;  // the collectors' network
  uint64_t seed_ = 0, uniform_steps_ = 0;
  int horizon_ = 0, rows_ = 0;
};

}  // namespace millrace
