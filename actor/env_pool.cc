#include "actor/env_pool.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/row_groups.h"

namespace millrace {

StatusOr<std::unique_ptr<EnvPool>> EnvPool::Make(const EnvSection& env, uint64_t seed, int horizon,
                                                 ThreadPool& threads, uint64_t uniform_steps) {
  auto pool = std::unique_ptr<EnvPool>(new EnvPool);
  pool->threads_ = &threads;
  pool->seed_ = seed;
  pool->uniform_steps_ = uniform_steps;
  pool->horizon_ = horizon;
  pool->rows_ = static_cast<int>(env.rows);
  const std::vector<int> sizes = GroupRows(pool->rows_, static_cast<int>(env.group_rows));
  uint32_t first_row = 0;
  for (int rows : sizes) {
    MILL_ASSIGN_OR_RETURN(auto group, RowGroup::Make(env, seed, first_row, rows));
    pool->groups_.push_back(std::move(group));
    first_row += static_cast<uint32_t>(rows);
  }
  MILL_ASSIGN_OR_RETURN(auto buffer, RolloutBuffer::Make(pool->spec(), horizon, sizes));
  pool->buffer_ = std::make_unique<RolloutBuffer>(std::move(buffer));
  pool->workers_ = std::vector<WorkerState>(static_cast<size_t>(threads.threads()));
  threads.ParallelFor(static_cast<int>(sizes.size()), [&](int g, int) {
    const auto group = static_cast<size_t>(g);
    pool->groups_[group]->Reset(pool->segments()[group], horizon);
  });
  return pool;
}

void EnvPool::Collect(const PolicyView& policy, uint64_t first_step, bool deterministic) {
  if (net_ != policy.net) {  // once: the collectors' scratch fits one network
    int widest = 0;
    for (const auto& group : groups_) widest = std::max(widest, group->rows());
    for (WorkerState& worker : workers_)
      worker.collector = std::make_unique<SegmentCollector>(*policy.net, spec(), widest, uniform_steps_);
    net_ = policy.net;
  }
  for (WorkerState& worker : workers_) worker.inference_seconds = 0;
  const SegmentCollector::Keys keys{seed_, first_step, deterministic};
  threads_->ParallelFor(static_cast<int>(groups_.size()), [&](int g, int w) {
    const SegmentView& segment = segments()[static_cast<size_t>(g)];
    WorkerState& worker = workers_[static_cast<size_t>(w)];
    const auto collected = worker.collector->Collect(*groups_[static_cast<size_t>(g)], segment, segment, keys,
                                                     [&] { return policy; });
    worker.inference_seconds += collected.inference_seconds;
  });
}

void EnvPool::StepOnly() {
  threads_->ParallelFor(static_cast<int>(groups_.size()), [&](int g, int) {
    const auto group = static_cast<size_t>(g);
    groups_[group]->BeginSegment(segments()[group], segments()[group]);
    for (int t = 0; t < horizon_; ++t) groups_[group]->Step(segments()[group], t);
  });
}

const EnvFault* EnvPool::fault() const {
  for (const auto& group : groups_) {
    if (group->fault() != nullptr) return group->fault();
  }
  return nullptr;
}

void EnvPool::ClearFaults() {
  for (const auto& group : groups_) group->ClearFault();
}

double EnvPool::inference_seconds() const {
  double seconds = 0;
  for (const WorkerState& worker : workers_) seconds += worker.inference_seconds;
  return seconds;
}

std::vector<std::byte> EnvPool::SaveRows() const {
  const size_t row_bytes = groups_[0]->row_state_bytes();
  std::vector<std::byte> state(row_bytes * static_cast<size_t>(rows_));
  for (size_t g = 0; g < groups_.size(); ++g) {
    groups_[g]->SaveRows(segments()[g], horizon_, state.data() + row_bytes * groups_[g]->first_row());
  }
  return state;
}

Status EnvPool::LoadRows(const std::vector<std::byte>& state) {
  const size_t row_bytes = groups_[0]->row_state_bytes();
  if (state.size() != row_bytes * static_cast<size_t>(rows_)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the checkpoint's rows have ", state.size(), " bytes, this run's ",
                     row_bytes * static_cast<size_t>(rows_), ": env.* must be as it was to resume"));
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    groups_[g]->LoadRows(segments()[g], horizon_, state.data() + row_bytes * groups_[g]->first_row());
  }
  return absl::OkStatus();
}

}  // namespace millrace
