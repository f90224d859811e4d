// PoolSource: batches from environments in this process. Joins env_pool and policy_runner behind the
// interface that the trainer reads. Station: between rollout_buffer and batch_assembler. Owner: the trainer,
// whose thread pool it borrows; called from the trainer's thread, Stop from any.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "actor/env_pool.h"
#include "common/options.h"
#include "common/segment_log.h"
#include "kernels/core/thread_pool.h"
#include "learner/rollout_source.h"

namespace millrace {

class PoolSource final : public RolloutSource {
 public:
  // Errors as EnvPool::Make's. `threads` must outlive the source.
  static StatusOr<std::unique_ptr<PoolSource>> Make(const RunOptions& options, ThreadPool& threads);

  const EnvSpec& spec() const { return pool_->spec(); }
  const std::vector<int>& batch_rows() const { return batch_rows_; }  // of each segment of a batch

  // What the last Collect gave, for segments.jsonl.
  std::span<const SegmentEntry> Describe();

  StatusOr<Rollout> Collect(const PolicyView& policy) override;
  RowStates SaveRows() const override;
  Status LoadRows(const RowStates& states) override;
  void Stop() override { stopped_.store(true); }

 private:
  PoolSource(std::unique_ptr<EnvPool> pool, std::vector<int> batch_rows, int threads);

  std::unique_ptr<EnvPool> pool_;
  std::vector<int> batch_rows_;
  std::vector<uint32_t> groups_;  // 0, 1, 2 ...
  std::vector<SegmentEntry> entries_;
  int threads_;
  uint64_t next_step_ = 0;  // agent steps that every row has done
  std::atomic<bool> stopped_{false};
};

}  // namespace millrace
