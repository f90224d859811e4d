#include "cli/pool_source.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/row_groups.h"

namespace millrace {

StatusOr<std::unique_ptr<PoolSource>> PoolSource::Make(const RunOptions& options, ThreadPool& threads) {
  MILL_ASSIGN_OR_RETURN(
      auto pool, EnvPool::Make(options.env, options.run.seed, static_cast<int>(Horizon(options)), threads,
                               UniformSteps(options)));
  std::vector<int> batch_rows = GroupRows(pool->rows(), static_cast<int>(options.env.group_rows));
  return std::unique_ptr<PoolSource>(
      new PoolSource(std::move(pool), std::move(batch_rows), threads.threads()));
}

PoolSource::PoolSource(std::unique_ptr<EnvPool> pool, std::vector<int> batch_rows, int threads)
    : pool_(std::move(pool)),
      batch_rows_(std::move(batch_rows)),
      groups_(batch_rows_.size()),
      threads_(threads) {
  std::iota(groups_.begin(), groups_.end(), 0u);
}

StatusOr<Rollout> PoolSource::Collect(const PolicyView& policy) {
  if (stopped_.load()) return absl::CancelledError("the run was asked to stop");
  pool_->Collect(policy, next_step_);
  next_step_ += static_cast<uint64_t>(pool_->horizon());
  Rollout rollout;
  rollout.segments = pool_->segments();
  rollout.groups = groups_;
  rollout.inference_seconds = pool_->inference_seconds() / threads_;
  if (const EnvFault* fault = pool_->fault()) {
    rollout.fault = fault->ToStatus();
    pool_->ClearFaults();
  }
  return rollout;
}

std::span<const SegmentEntry> PoolSource::Describe() {
  entries_.clear();
  const uint64_t first_step = next_step_ - static_cast<uint64_t>(pool_->horizon());
  for (const uint32_t g : groups_)
    entries_.push_back(DescribeSegment(pool_->segments()[g], g, first_step, {}));
  return entries_;
}

RowStates PoolSource::SaveRows() const {
  RowStates states;
  states.row_bytes = pool_->groups()[0]->row_state_bytes();
  states.bytes = pool_->SaveRows();
  states.group_rows.assign(batch_rows_.begin(), batch_rows_.end());
  states.next_step.assign(batch_rows_.size(), next_step_);
  states.known.assign(batch_rows_.size(), 1);
  return states;
}

Status PoolSource::LoadRows(const RowStates& states) {
  if (!std::equal(states.group_rows.begin(), states.group_rows.end(), batch_rows_.begin(), batch_rows_.end(),
                  [](uint32_t saved, int own) { return static_cast<int64_t>(saved) == own; })) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the checkpoint's rows stand in ", states.group_rows.size(), " groups of ",
        states.group_rows.empty() ? 0 : states.group_rows[0], ", this run's in ", batch_rows_.size(),
        " groups of ", batch_rows_[0], ": env.* must be as it was to resume"));
  }
  const auto differs = [&](uint64_t step) { return step != states.next_step[0]; };
  if (std::any_of(states.next_step.begin(), states.next_step.end(), differs) ||
      std::find(states.known.begin(), states.known.end(), 0) != states.known.end()) {
    return absl::InvalidArgumentError(
        "the checkpoint's row groups have come differently far, which only `millrace learner` can go on "
        "with");
  }
  MILL_RETURN_IF_ERROR(pool_->LoadRows(states.bytes));
  next_step_ = states.next_step[0];
  return absl::OkStatus();
}

}  // namespace millrace
