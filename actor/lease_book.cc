#include "actor/lease_book.h"

#include <utility>

namespace millrace {
namespace {
using Clock = std::chrono::steady_clock;
}  // namespace

LeaseBook::Fit LeaseBook::Look(const Permit& permit) const {
  const auto found = groups_.find(permit.group);
  if (found == groups_.end() || found->second.lease != permit.lease) return Fit::kVoid;
  if (found->second.busy || !found->second.confirmed) return Fit::kBusy;
  if (!have_weights_ || newest_ < permit.version) return Fit::kNoWeights;
  // The learner has gone on: it has this group's segment of that version, or has dropped it.
  if (permit.exact && newest_ > permit.version) return Fit::kVoid;
  return Fit::kNow;
}

void LeaseBook::Fill(const Permit& permit, Task* task) {
  Group& group = groups_.at(permit.group);
  task->group = permit.group;
  task->lease = permit.lease;
  task->slot = permit.slot;
  task->memory = permit.memory;
  task->exact = permit.exact;
  task->version = permit.version;
  task->first_row = group.first_row;
  task->rows = group.rows;
  task->begin = std::exchange(group.begin, false);
  task->state = std::exchange(group.state, std::string());
  task->next_step = group.next_step;
  task->held = &group.held;
  group.busy = true;
  ++busy_;
  if (permit.exact) {
    group.acted = true;
    group.acted_version = permit.version;
  }
}

bool LeaseBook::Find(Task* task, bool* only_weights_missing) {
  *only_weights_missing = false;
  for (auto permit = permits_.begin(); permit != permits_.end();) {
    const Fit fit = Look(*permit);
    if (fit == Fit::kNow) {
      Fill(*permit, task);
      permits_.erase(permit);
      return true;
    }
    *only_weights_missing |= fit == Fit::kNoWeights;
    permit = fit == Fit::kVoid ? permits_.erase(permit) : permit + 1;
  }
  return false;
}

bool LeaseBook::Take(Task* task) {
  task->wait_weights_seconds = task->wait_credit_seconds = 0;
  MutexLock lock(mutex_);
  bool weights = false;
  while (!draining_ && !Find(task, &weights)) {
    const Clock::time_point began = Clock::now();
    changed_.Wait(mutex_);
    (weights ? task->wait_weights_seconds : task->wait_credit_seconds) +=
        std::chrono::duration<double>(Clock::now() - began).count();
  }
  return !draining_;
}

void LeaseBook::Release(const Task& task) {
  MutexLock lock(mutex_);
  const auto found = groups_.find(task.group);
  MILL_CHECK(found != groups_.end() && found->second.busy);
  found->second.busy = false;
  --busy_;
  if (found->second.lease == 0) groups_.erase(found);
  changed_.NotifyAll();
}

LeaseBook::Holding LeaseBook::Standing(uint32_t group, uint64_t lease) const {
  MutexLock lock(mutex_);
  const auto found = groups_.find(group);
  if (found == groups_.end() || found->second.lease != lease) return Holding::kNo;
  return found->second.confirmed ? Holding::kYes : Holding::kUnknown;
}

void LeaseBook::OnLease(const Lease& lease) {
  MutexLock lock(mutex_);
  for (const uint32_t dropped : lease.drop) {
    const auto found = groups_.find(dropped);
    if (found == groups_.end()) continue;
    found->second.lease = 0;
    found->second.begin = false;
    if (!found->second.busy) groups_.erase(found);
  }
  for (const LeasedGroup& added : lease.add) {
    Group& group = groups_[added.group];
    group.confirmed = true;
    if (group.lease == added.lease) continue;  // it stands here where the learner will find it
    group.first_row = added.first_row;
    group.rows = added.rows;
    group.lease = added.lease;
    group.begin = true;
    group.state = added.state;
    group.next_step = added.next_step;
    group.acted = false;
  }
  changed_.NotifyAll();
}

void LeaseBook::OnGrant(const Grant& grant, const std::vector<std::byte*>& memory) {
  MutexLock lock(mutex_);
  for (size_t i = 0; i < grant.groups.size(); ++i) {
    const GroupGrant& granted = grant.groups[i];
    const auto found = groups_.find(granted.group);
    if (found == groups_.end() || found->second.lease != granted.lease) continue;
    // Granted anew after a reconnect, while this very segment is underway.
    if (grant.exact && found->second.acted && found->second.acted_version == grant.policy_version) continue;
    permits_.push_back(
        {granted.group, granted.lease, granted.slot, memory[i], grant.exact, grant.policy_version});
  }
  changed_.NotifyAll();
}

void LeaseBook::OnWeights(uint64_t version) {
  MutexLock lock(mutex_);
  have_weights_ = true;
  newest_ = version;
  changed_.NotifyAll();
}

void LeaseBook::OnDisconnect() {
  MutexLock lock(mutex_);
  permits_.clear();
  for (auto& [number, group] : groups_) group.confirmed = false;
}

void LeaseBook::Drain() {
  MutexLock lock(mutex_);
  draining_ = true;
  changed_.NotifyAll();
}

int LeaseBook::busy() const {
  MutexLock lock(mutex_);
  return busy_;
}

}  // namespace millrace
