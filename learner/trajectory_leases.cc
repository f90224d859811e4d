// TrajectoryService: leases, grants and batches.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "learner/trajectory_service.h"

namespace millrace {
namespace {
constexpr int kGrantsAhead =
    2;  // async: segments of one group on their way, so that no round trip is waited for
// A connection over a network may be back in a moment; a socket of this host ends with its process.
constexpr auto kPatience = std::chrono::seconds(1);
}  // namespace

std::vector<GroupTable::Candidate> TrajectoryService::Candidates() const {
  std::vector<GroupTable::Candidate> candidates;
  if (draining_ || stopped_) return candidates;
  for (const auto& [number, actor] : actors_) {
    if (actor->session != 0 && actor->ready) candidates.push_back({number, actor->name, actor->threads});
  }
  return candidates;
}

// Sync: somebody else goes on with the groups of an actor whose connection is gone, where there is somebody.
void TrajectoryService::TakeFromLost() {
  if (async_ || waits_for_lost() || Candidates().empty()) return;
  const Time now = options_.now();
  for (auto& [number, actor] : actors_) {
    const auto patience = actor->kind == TransportKind::kGrpc ? kPatience : std::chrono::seconds(0);
    if (actor->session == 0 && now - actor->lost_at >= patience) FreeGroupsOf(*actor, /*wait=*/false);
  }
}

void TrajectoryService::VoidGrants(HeldGroup& group) {
  if (!group.overdue) granted_ -= static_cast<size_t>(group.granted);
  group.granted = 0;
  group.overdue = false;
  const auto found = actors_.find(group.holder);
  if (found == actors_.end()) return;
  for (RingSlot& slot : found->second->ring) {
    if (slot.lease == group.lease && !slot.held) slot.lease = 0;
  }
}

void TrajectoryService::FreeGroupsOf(Actor& actor, bool wait) {
  for (HeldGroup& group : table_.groups()) {
    if (group.holder != actor.number) continue;
    VoidGrants(group);
    table_.Free(group, wait ? actor.name : "");
  }
}

LeasedGroup TrajectoryService::Describe(const HeldGroup& group) {
  LeasedGroup leased{.group = group.group,
                     .lease = group.lease,
                     .first_row = group.first_row,
                     .rows = static_cast<uint32_t>(group.layout->rows()),
                     .next_step = group.next_step,
                     .state = table_.StateOf(group)};
  if (leased.state.empty() && group.next_step > 0) bit_exact_ = false;
  return leased;
}

// The actor and the learner disagree about where this group stands: it goes on from what is held here.
void TrajectoryService::RenewLease(Actor& actor, HeldGroup& group) {
  VoidGrants(group);
  table_.Renew(group);
  Lease lease;
  lease.drop.push_back(group.group);
  lease.add.push_back(Describe(group));
  SendLease(actor, std::move(lease));
}

// In messages of a bounded size, for a group's state may be large.
void TrajectoryService::SendLease(Actor& actor, Lease lease) {
  if (actor.link == nullptr) return;
  Lease part;
  part.drop = std::move(lease.drop);
  size_t bytes = 0;
  for (LeasedGroup& group : lease.add) {
    if (bytes > 0 && bytes + group.state.size() > kMaxControlBytes) {
      Tell(actor, std::exchange(part, Lease()));
      bytes = 0;
    }
    bytes += group.state.size();
    part.add.push_back(std::move(group));
  }
  if (!part.drop.empty() || !part.add.empty()) Tell(actor, std::move(part));
}

// All that an actor holds, after it has come back.
void TrajectoryService::SendLeases(Actor& actor) {
  Lease lease;
  for (const HeldGroup& group : table_.groups()) {
    if (group.holder == actor.number) lease.add.push_back(Describe(group));
  }
  SendLease(actor, std::move(lease));
}

void TrajectoryService::DealGroups(bool rebalance) {
  const std::vector<GroupTable::Candidate> candidates = Candidates();
  if (candidates.empty()) return;
  std::vector<uint64_t> before;
  for (const HeldGroup& group : table_.groups()) before.push_back(group.holder);
  std::vector<uint32_t> changed = table_.Deal(candidates, rebalance);
  std::sort(changed.begin(), changed.end());
  changed.erase(std::unique(changed.begin(), changed.end()), changed.end());
  std::map<uint64_t, Lease> leases;
  for (const uint32_t g : changed) {
    const HeldGroup& group = *table_.Find(g);
    if (g < before.size() && before[g] != kNoHolder) leases[before[g]].drop.push_back(g);
    if (group.holder != kNoHolder) leases[group.holder].add.push_back(Describe(group));
  }
  for (auto& [number, lease] : leases) {
    SendLease(*actors_.at(number), std::move(lease));
  }
}

// False: the holder can't be granted anything at the moment.
bool TrajectoryService::AddGrant(HeldGroup& group, std::map<uint64_t, Grant>& grants) {
  if (group.holder == kNoHolder || group.overdue) return false;
  const auto found = actors_.find(group.holder);
  if (found == actors_.end() || found->second->session == 0 || !found->second->ready) return false;
  Actor& actor = *found->second;
  int32_t slot = -1;
  if (!actor.ring.empty()) {
    const auto free = std::find_if(actor.ring.begin(), actor.ring.end(),
                                   [](const RingSlot& s) { return s.lease == 0 && !s.held; });
    if (free == actor.ring.end()) return false;
    free->lease = group.lease;
    slot = static_cast<int32_t>(free - actor.ring.begin());
  }
  if (group.granted++ == 0) group.granted_at = options_.now();
  ++granted_;
  Grant& grant = grants[actor.number];
  grant.exact = !async_;
  grant.policy_version = weights_->version;
  grant.bytes += group.layout->bytes();
  grant.groups.push_back({group.group, group.lease, slot});
  return true;
}

void TrajectoryService::SendGrants(std::map<uint64_t, Grant>& grants) {
  for (auto& [number, grant] : grants) {
    Actor& actor = *actors_.at(number);
    grant.acknowledged = std::exchange(actor.owed, 0);
    Tell(actor, std::move(grant));
  }
}

// Async: an actor that hangs in its environment, and lives all the same, would keep what others could use of
// the lag's budget for ever. A segment that is late by any measure is no longer waited for; when it comes it
// is welcome, or dropped as stale.
void TrajectoryService::GiveUpOverdue() {
  if (!async_) return;
  const Time now = options_.now();
  const std::chrono::duration<double> patience =
      std::max<std::chrono::duration<double>>(lease_, std::chrono::duration<double>(8 * segment_seconds_));
  for (HeldGroup& group : table_.groups()) {
    if (group.granted == 0 || group.overdue || now - group.granted_at < patience) continue;
    group.overdue = true;
    granted_ -= static_cast<size_t>(group.granted);
    Count("overdue");
  }
}

// All that an actor must have for its work to go on is counted: see OnHeartbeat.
void TrajectoryService::Tell(Actor& actor, LearnerMessage message) {
  if (actor.link == nullptr) return;
  actor.told += Weight(message);
  actor.link->Send(std::move(message));
}

// Async: whether the actor of the block that begins here is to be told of further grants. While it has more
// than one for each group, and work for each thread, they wait: then one message serves many segments, and
// carries their acknowledgement.
bool TrajectoryService::RunsLow(size_t first) const {
  const std::vector<HeldGroup>& groups = table_.groups();
  const auto holder = actors_.find(groups[first].holder);
  if (holder == actors_.end()) return false;
  size_t standing = 0, supplied = 0, granted = 0;
  for (size_t g = first; g < first + batch_size_; ++g) {
    if (groups[g].overdue) continue;
    ++standing;
    supplied += groups[g].granted > 0;
    granted += static_cast<size_t>(groups[g].granted);
  }
  return granted <= standing || supplied <= std::min<size_t>(standing - 1, holder->second->threads);
}

// Async: round robin over these groups, the least granted first and from one actor's block to the next, so
// that all of them act when few grants are due. As far as lag and memory allow: whatever is outstanding
// stands before the next one in the queue, so with `max_policy_lag` batches outstanding none is older than
// that when its turn comes. The range is one block or all of them.
void TrajectoryService::GrantAsync(size_t begin, size_t end) {
  std::map<uint64_t, Grant> grants;
  std::vector<HeldGroup>& groups = table_.groups();
  const size_t limit = std::min<size_t>(max_outstanding_, size_t{max_policy_lag_} * batch_size_);
  if (begin == end || Outstanding() >= limit) return;
  const size_t blocks = (end - begin) / batch_size_;
  std::vector<bool> low(blocks);
  for (size_t b = 0; b < blocks; ++b) low[b] = RunsLow(begin + b * batch_size_);
  for (int ahead = 0; ahead < kGrantsAhead; ++ahead) {
    const size_t turn = (next_grant_ % batch_size_) * blocks + (blocks == 1 ? 0 : next_grant_ / batch_size_);
    const auto in_turn = [&](size_t i) {
      const size_t k = (turn + i) % (end - begin);
      return begin + k % blocks * batch_size_ + k / blocks;
    };
    size_t granted_last = end - begin;
    for (size_t i = 0; i < end - begin && Outstanding() < limit; ++i) {
      const size_t g = in_turn(i);
      if (!low[(g - begin) / batch_size_] || groups[g].granted > ahead) continue;
      if (AddGrant(groups[g], grants)) granted_last = i;
    }
    if (granted_last < end - begin) next_grant_ = in_turn(granted_last + 1);
  }
  SendGrants(grants);
}

void TrajectoryService::GrantBlockOf(uint32_t group) {
  if (weights_ == nullptr || stopped_ || draining_ || paused_) return;
  const size_t first = group / batch_size_ * batch_size_;
  GrantAsync(first, first + batch_size_);
}

// Sync: each group's segment of the open round that is neither here nor granted. Async: what is due to any.
void TrajectoryService::GrantGroups() {
  if (weights_ == nullptr || stopped_ || draining_ || paused_) return;
  if (async_) return GrantAsync(0, table_.groups().size());
  std::map<uint64_t, Grant> grants;
  for (HeldGroup& group : table_.groups()) {
    if (round_open_ && group.ready_order < 0 && group.granted == 0) AddGrant(group, grants);
  }
  SendGrants(grants);
}

// ---- the learner's side ----

void TrajectoryService::Publish(WeightsPtr weights) {
  {
    MutexLock lock(mutex_);
    if (weights_ != nullptr && weights_->version == weights->version &&
        weights_->checksum == weights->checksum) {
      return;
    }
    weights_ = weights;
    for (auto& [number, actor] : actors_) {
      if (actor->session != 0 && actor->ready) actor->link->SendWeights(weights_);
    }
    if (async_) GrantGroups();
  }
  MutexLock lock(publish_mutex_);  // a thousand watchers take their time, and need not hold up anybody else
  if (on_publish_ != nullptr) on_publish_(weights);
}

void TrajectoryService::OnPublish(std::function<void(const WeightsPtr&)> listener) {
  MutexLock lock(publish_mutex_);
  on_publish_ = std::move(listener);
}

WeightsPtr TrajectoryService::weights() const {
  MutexLock lock(mutex_);
  return weights_;
}

void TrajectoryService::OpenRound() {
  round_open_ = true;
  for (HeldGroup& group : table_.groups()) group.ready_order = -1;
  DealGroups(/*rebalance=*/true);
  GrantGroups();
}

void TrajectoryService::DropStale() {
  for (size_t kept = 0; kept < queue_.size() && kept < batch_most_;) {
    Held& held = queue_[kept];
    if (weights_->version <= held.version + max_policy_lag_) {
      ++kept;
      continue;
    }
    Count("dropped_stale");
    HeldGroup& group = *table_.Find(held.group);
    table_.Saved(group, held.first_step + static_cast<uint64_t>(group.layout->steps()), held.view.snapshot());
    FreeMemory(held);
    queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(kept));
  }
}

bool TrajectoryService::BatchReady() {
  if (async_) {
    const size_t before = queue_.size();
    DropStale();
    if (queue_.size() < before) GrantGroups();
  }
  return queue_.size() >= batch_size_;
}

StatusOr<TrajectoryService::Batch> TrajectoryService::Take() {
  MutexLock lock(mutex_);
  MILL_CHECK(weights_ != nullptr && batch_.empty());
  if (!async_ && !round_open_) OpenRound();
  const Time began = options_.now();
  if (released_at_) totals_.publish_seconds += std::chrono::duration<double>(began - *released_at_).count();
  released_at_.reset();
  waiting_ = true;
  waiting_since_ = began;
  while (!interrupted_ && !stopped_ && !BatchReady()) changed_.Wait(mutex_);
  waiting_ = false;
  Batch batch;
  batch.wait_seconds = std::chrono::duration<double>(options_.now() - began).count();
  totals_.wait_seconds += batch.wait_seconds;
  if (interrupted_ || stopped_) return absl::CancelledError("the wait for segments was ended");
  for (size_t left = std::min(queue_.size(), batch_most_); left > 0; --left) {
    batch_.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  if (!async_) {
    round_open_ = false;
    std::sort(batch_.begin(), batch_.end(), [](const Held& a, const Held& b) { return a.group < b.group; });
  }
  for (const Held& held : batch_) {
    batch.segments.push_back(held.view);
    batch.groups.push_back(held.group);
    batch.actors.push_back(held.actor_name);
    batch.first_steps.push_back(held.first_step);
    if (batch.fault.ok()) batch.fault = held.fault;
    ++lag_histogram_[std::min<size_t>(weights_->version - held.version, lag_histogram_.size() - 1)];
    queue_seconds_ += std::chrono::duration<double>(options_.now() - held.since).count();
  }
  if (async_) GrantGroups();
  return batch;
}

void TrajectoryService::Release() {
  MutexLock lock(mutex_);
  for (const Held& held : batch_) {
    HeldGroup& group = *table_.Find(held.group);
    table_.Saved(group, held.first_step + static_cast<uint64_t>(group.layout->steps()), held.view.snapshot());
    FreeMemory(held);
  }
  batch_.clear();
  released_at_ = options_.now();
  if (async_) GrantGroups();  // slots of rings are free again
}

RowStates TrajectoryService::SaveRows() const {
  MutexLock lock(mutex_);
  return table_.Save();
}

Status TrajectoryService::LoadRows(const RowStates& states) {
  MutexLock lock(mutex_);
  return table_.Load(states);
}

void TrajectoryService::Drain(const std::string& reason) {
  MutexLock lock(mutex_);
  draining_ = true;
  for (auto& [number, actor] : actors_) {
    if (actor->session != 0) actor->link->Send(millrace::Drain{reason});
  }
}

void TrajectoryService::Stop(const Status& why) {
  MutexLock lock(mutex_);
  if (stopped_) return;
  stopped_ = true;
  stop_reason_ = why;
  for (auto& [number, actor] : actors_) {
    if (actor->session == 0) continue;
    actor->link->Close(why);
    Disconnect(*actor);
  }
  changed_.NotifyAll();
}

void TrajectoryService::Interrupt() {
  MutexLock lock(mutex_);
  interrupted_ = true;
  changed_.NotifyAll();
}

void TrajectoryService::Resume() {
  MutexLock lock(mutex_);
  interrupted_ = false;
}

void TrajectoryService::SetPaused(bool paused) {
  MutexLock lock(mutex_);
  paused_ = paused;
  GrantGroups();
}

void TrajectoryService::SetMostRows(uint64_t rows) {
  MutexLock lock(mutex_);
  table_.SetMostRows(rows);
}

void TrajectoryService::SetMaxPolicyLag(uint32_t lag) {
  MutexLock lock(mutex_);
  max_policy_lag_ = lag;
  if (async_) GrantGroups();
}

std::vector<int> TrajectoryService::batch_rows() const {
  MutexLock lock(mutex_);
  return table_.block_rows();
}

}  // namespace millrace
