#include "learner/trajectory_service.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/overloaded.h"
#include "common/row_groups.h"

namespace millrace {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr size_t kMostActors = 4096;
constexpr size_t kMostGone = 256;          // of them, records of those that are gone
constexpr uint64_t kMostBegins = 1 << 20;  // that a process counts its incarnation up by
constexpr size_t kMostNameBytes = 256, kMostTextBytes = 4096;

Status Breach(const std::string& what) {
  return absl::InvalidArgumentError(what);
}

}  // namespace

TrajectoryService::TrajectoryService(TrajectoryServiceOptions options)
    : options_(std::move(options)),
      async_(options_.run.mode == RunMode::kAsync),
      lease_(static_cast<int64_t>(options_.run.actors.lease_seconds * 1000)),
      heartbeat_(std::clamp<int64_t>(lease_.count() / 4, 20, 1000)),
      table_(
          options_.spec, static_cast<int>(Horizon(options_.run)),
          GroupRows(static_cast<int>(options_.run.env.rows), static_cast<int>(options_.run.env.group_rows)),
          options_.row_state_bytes, async_),
      pool_(table_.max_segment_bytes(), 0),
      max_policy_lag_(options_.run.learner.max_policy_lag),
      last_tick_(options_.now()),
      lag_histogram_(kLagBins) {}

StatusOr<std::unique_ptr<TrajectoryService>> TrajectoryService::Make(TrajectoryServiceOptions options) {
  auto service = std::unique_ptr<TrajectoryService>(new TrajectoryService(std::move(options)));
  MILL_RETURN_IF_ERROR(service->SetBounds());
  return service;
}

Status TrajectoryService::SetBounds() {
  MutexLock lock(mutex_);
  const uint64_t limit = uint64_t{options_.run.learner.queue_mib} * kMiB;
  batch_size_ = table_.block_rows().size();
  batch_most_ = MostSegments(options_.run);
  const uint64_t batch_bytes =
      table_.block_bytes() + (batch_most_ - batch_size_) * table_.max_segment_bytes();
  if (batch_bytes > limit) {
    return absl::InvalidArgumentError(
        absl::StrCat("learner.queue_mib: ", limit / kMiB, " MiB do not hold the ", batch_most_,
                     " segments of one batch; set it to ", (batch_bytes + kMiB - 1) / kMiB,
                     " or more, or lower ", batch_most_ > batch_size_ ? "sac.batch_max, " : "",
                     "env.rows or the horizon (ppo.horizon, sac.horizon)"));
  }
  const auto widest =
      static_cast<size_t>(*std::max_element(table_.block_rows().begin(), table_.block_rows().end()));
  if (widest * options_.row_state_bytes > kMaxFromLearnerBytes - kMaxControlBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "env.group_rows: the state of ", widest, " rows of ", options_.row_state_bytes,
        " bytes each does not fit into a message of ", kMaxFromLearnerBytes >> 20, " MiB; use fewer"));
  }
  max_outstanding_ = std::max<size_t>(batch_most_, static_cast<size_t>(limit / table_.max_segment_bytes()));
  // Beside what may be outstanding, a batch is being trained on, and actors that come back send again what
  // was granted before.
  pool_ = PayloadPool(table_.max_segment_bytes(), max_outstanding_ + batch_most_ + 2 * batch_size_);
  layout_text_ = table_.layout(0).Describe();
  layout_hash_ = table_.layout(0).Hash();
  return absl::OkStatus();
}

TrajectoryService::~TrajectoryService() {
  Stop(absl::UnavailableError("the learner has ended"));
}

// ---- who they are ----

Status TrajectoryService::CheckHello(const Hello& hello) const {
  if (hello.protocol_max < kOldestProtocol || hello.protocol_min > kProtocol) {
    const bool actor_old = hello.protocol_max < kOldestProtocol;
    return absl::FailedPreconditionError(absl::StrFormat(
        "the %s is too old: the actor (version %s) speaks protocols %d to %d, the learner (version %s) %d to "
        "%d; install the same version on both",
        actor_old ? "actor" : "learner", hello.program_version, hello.protocol_min, hello.protocol_max,
        options_.program_version, kOldestProtocol, kProtocol));
  }
  if (hello.actor.empty()) return Breach("Hello.actor is empty; an actor has a name");
  if (hello.actor.size() > kMostNameBytes) {
    return Breach(
        absl::StrCat("Hello.actor: a name has at most ", kMostNameBytes, " bytes, not ", hello.actor.size()));
  }
  for (const std::string* text : {&hello.host, &hello.transport_note}) {  // they are kept
    if (text->size() <= kMostTextBytes) continue;
    return Breach(absl::StrCat("Hello: a text of ", text->size(), " bytes; at most ", kMostTextBytes));
  }
  if (!async_ && hello.kernel_bits != options_.kernel_bits) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the actor %s computes other bits than the learner (%016x, here %016x): its CPU or its build "
        "differs, "
        "and mode: sync promises the bits of one process; use machines of one kind, or mode: async",
        hello.actor, hello.kernel_bits, options_.kernel_bits));
  }
  return absl::OkStatus();
}

// Async: whether there will be rows for this actor beside those who hold some, and those who are about to.
Status TrajectoryService::CheckRoom(const std::string& name) const {
  if (!async_) return absl::OkStatus();
  std::set<uint64_t> holders;
  for (const HeldGroup& group : table_.groups()) holders.insert(group.holder);
  holders.erase(kNoHolder);
  const auto found = by_name_.find(name);
  if (found != by_name_.end() && holders.count(found->second->number) > 0) return absl::OkStatus();
  for (const auto& [number, actor] : actors_) {
    if (actor->session != 0 && actor->name != name) holders.insert(number);
  }
  if (holders.size() < table_.most_blocks()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("replay.capacity ", options_.run.replay.capacity, " has no room for the ",
                   options_.run.env.rows, " rows (env.rows) of one more actor beside those of ",
                   holders.size(), "; raise it or lower env.rows, or wait until one leaves"));
}

// Actors come and go under ever new names: beyond some, the record of whoever is gone for longest is given
// up. Its leases have ended and their numbers never come again, so what it might still send is passed over.
void TrajectoryService::ForgetGone() {
  std::set<uint64_t> holders;
  for (const HeldGroup& group : table_.groups()) holders.insert(group.holder);
  size_t gone = 0;
  const Actor* first = nullptr;
  for (const auto& [number, actor] : actors_) {
    if (actor->session != 0 || holders.count(number) > 0) continue;
    ++gone;
    if (first == nullptr || actor->lost_at < first->lost_at) first = actor.get();
  }
  if (gone < kMostGone) return;
  by_name_.erase(first->name);
  actors_.erase(first->number);
}

// The record of an actor of this name; its older connection is ended, its older process's leases are void.
StatusOr<TrajectoryService::Actor*> TrajectoryService::AdmitLocked(const Hello& hello) {
  auto found = by_name_.find(hello.actor);
  if (found == by_name_.end()) {
    ForgetGone();
    if (actors_.size() >= kMostActors) {
      return absl::UnavailableError(
          absl::StrCat("the learner has ", actors_.size(), " actors, the most it takes"));
    }
    auto actor = std::make_unique<Actor>();
    actor->number = ++last_number_;
    actor->name = hello.actor;
    actor->incarnation = hello.incarnation;
    Actor* added = actor.get();
    actors_[added->number] = std::move(actor);
    by_name_[hello.actor] = added;
    return added;
  }
  Actor& actor = *found->second;
  const bool same = actor.incarnation == hello.incarnation;
  const bool same_process = hello.pid != 0 && hello.pid == actor.pid && hello.host == actor.host &&
                            hello.incarnation - actor.incarnation <= kMostBegins;
  if (actor.session != 0 && !same && !same_process) {
    return absl::UnavailableError(
        absl::StrCat("another process (", actor.pid, " on ", actor.host, ") has the name ", actor.name,
                     " and is alive; waiting for its lease to end, or give this one another --name"));
  }
  if (actor.session != 0) {
    actor.link->Close(absl::AbortedError("the actor has come by another connection"));
    Disconnect(actor);
  }
  if (!same) {
    FreeGroupsOf(actor, waits_for_lost());
    actor.incarnation = hello.incarnation;
    actor.any_sequence = false;
    actor.last_sequence = 0;
    actor.stats = {};
    actor.stats_window.Clear();
    if (!actor.left && !same_process) ++actor.restarts;
  }
  return &actor;
}

StatusOr<SessionId> TrajectoryService::Open(const Hello& hello, TransportKind kind, std::string peer,
                                            std::shared_ptr<ActorLink> link) {
  MILL_RETURN_IF_ERROR(CheckHello(hello));
  MutexLock lock(mutex_);
  if (stopped_) {
    if (!stop_reason_.ok()) return absl::UnavailableError(stop_reason_.message());
    link->Close(absl::OkStatus());  // there is nothing to come back for
    return absl::CancelledError("the run is done");
  }
  if (draining_) return absl::UnavailableError("the learner is being drained");
  if (const Status room = CheckRoom(hello.actor); !room.ok()) {
    Count("refused_full");
    return room;
  }
  MILL_ASSIGN_OR_RETURN(Actor* const actor, AdmitLocked(hello));
  actor->host = hello.host;
  actor->peer = std::move(peer);
  actor->note = hello.transport_note;
  actor->pid = hello.pid;
  actor->threads = std::clamp(hello.threads, 1u, 65536u);
  actor->kind = kind;
  actor->link = std::move(link);
  actor->ready = actor->left = false;
  actor->ring.clear();
  actor->told = actor->due = actor->owed = 0;
  actor->due_since = actor->last_seen = options_.now();
  actor->session = ++last_session_;
  sessions_[actor->session] = actor;
  Welcome welcome;
  welcome.protocol = std::min(kProtocol, hello.protocol_max);
  welcome.program_version = options_.program_version;
  welcome.run_id = options_.run_id;
  welcome.learner_incarnation = options_.learner_incarnation;
  welcome.config = options_.serialized_config;
  welcome.lease_ms = static_cast<uint32_t>(lease_.count());
  welcome.heartbeat_ms = static_cast<uint32_t>(heartbeat_.count());
  welcome.layout = layout_text_;
  welcome.layout_hash = layout_hash_;
  actor->link->Send(std::move(welcome));
  return actor->session;
}

TrajectoryService::Actor* TrajectoryService::Connected(SessionId session) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return nullptr;
  // Until it is ready it holds nothing by being heard of.
  if (found->second->ready) found->second->last_seen = options_.now();
  return found->second;
}

Status TrajectoryService::Receive(SessionId session, const ActorMessage& message) {
  MutexLock lock(mutex_);
  Actor* const actor = Connected(session);
  if (actor == nullptr) return absl::AbortedError("this session has ended");
  return std::visit(
      Overloaded{[](const Hello&) { return Breach("a second Hello on one connection"); },
                 [&](const Ready& ready) MILL_NO_THREAD_SAFETY_ANALYSIS { return OnReady(*actor, ready); },
                 [&](const Heartbeat& heartbeat)
                     MILL_NO_THREAD_SAFETY_ANALYSIS { return OnHeartbeat(*actor, heartbeat); },
                 [&](const Goodbye&) MILL_NO_THREAD_SAFETY_ANALYSIS {
                   OnGoodbye(*actor);
                   return absl::OkStatus();
                 }},
      message);
}

// What was sent a whole lease ago has arrived, for the connection delivers in order and lives: or it never
// will.
Status TrajectoryService::OnHeartbeat(Actor& actor, const Heartbeat& heartbeat) {
  const Time now = options_.now();
  actor.stats = heartbeat.stats;
  actor.stats_window.Add(now, heartbeat.stats);
  Acknowledge(actor);
  if (!heartbeat.received.has_value()) return absl::OkStatus();
  if (*heartbeat.received >= actor.due) {
    actor.due = actor.told;
    actor.due_since = now;
  } else if (now - actor.due_since > lease_) {
    Count("messages_lost");
    return absl::DataLossError(absl::StrCat("the actor has received ", *heartbeat.received,
                                            " leases and grants of ", actor.due,
                                            " that were sent a lease ago"));
  }
  return absl::OkStatus();
}

Status TrajectoryService::OnReady(Actor& actor, const Ready& ready) {
  if (actor.ready) return Breach("a second Ready on one connection");
  if (ready.layout_hash != layout_hash_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the actor ", actor.name, " makes other segments than the learner's.\n  actor:   ", ready.layout,
        "\n  learner: ", layout_text_, "\nBoth need the same version of millrace and of the environment."));
  }
  actor.ready = true;
  actor.last_seen = options_.now();
  if (actor.kind == TransportKind::kSharedMemory) {
    // What may be outstanding, a batch that is trained on, and as much that is on its way to be passed over.
    const size_t most =
        async_ ? std::min(max_outstanding_, (max_policy_lag_ + 1) * batch_size_) : batch_size_;
    const size_t slots = most + batch_most_ + batch_size_;
    if (actor.link->OfferRing(static_cast<uint32_t>(slots), table_.max_segment_bytes())) {
      actor.ring.assign(slots, RingSlot());
    } else {
      actor.note = absl::StrCat("no memory for a ring of ", slots, " segments of ",
                                table_.max_segment_bytes(), " bytes: segments are copied through the socket");
    }
  }
  if (weights_ != nullptr) actor.link->SendWeights(weights_);
  // Its rows' states once, and once more for those that are leased anew meanwhile.
  actor.link->ReserveStates(2 * table_.block_state_bytes());
  SendLeases(actor);
  TakeFromLost();
  DealGroups(/*rebalance=*/false);
  GrantGroups();
  return absl::OkStatus();
}

void TrajectoryService::OnGoodbye(Actor& actor) {
  actor.left = true;
  FreeGroupsOf(actor, /*wait=*/false);
  actor.link->Close(absl::OkStatus());
  Disconnect(actor);
  DealGroups(/*rebalance=*/false);
  GrantGroups();
  changed_.NotifyAll();
}

// The record stays, and the leases with it.
void TrajectoryService::Disconnect(Actor& actor) {
  sessions_.erase(actor.session);
  actor.session = 0;
  actor.link.reset();
  actor.ready = false;
  actor.ring.clear();
  actor.lost_at = options_.now();
  for (HeldGroup& group : table_.groups()) {
    if (group.holder == actor.number) VoidGrants(group);
  }
}

void TrajectoryService::Lost(SessionId session, const Status& why) {
  MutexLock lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  static_cast<void>(why);
  Count("connections_lost");
  Disconnect(*found->second);
  TakeFromLost();
  DealGroups(/*rebalance=*/false);
  GrantGroups();
}

void TrajectoryService::Tick() {
  MutexLock lock(mutex_);
  const Time now = options_.now();
  const bool stood_still = now - last_tick_ > lease_ / 2;
  last_tick_ = now;
  totals_window_.Add(now, TotalsAt(now));
  for (auto& [number, actor] : actors_) {
    actor->steps_window.Add(now, actor->steps);
    // Nobody could be heard while this process stood still.
    if (stood_still) actor->last_seen = actor->lost_at = now;
    if (now - actor->last_seen <= lease_) continue;
    if (actor->session != 0) {
      Count("leases_expired");
      actor->link->Close(absl::AbortedError(absl::StrFormat("nothing was heard of the actor for %.1f s",
                                                            std::chrono::duration<double>(lease_).count())));
      Disconnect(*actor);
    }
    FreeGroupsOf(*actor, waits_for_lost());
  }
  TakeFromLost();
  GiveUpOverdue();
  DealGroups(/*rebalance=*/false);
  GrantGroups();
}

// ---- what they sent ----

// False: the segment is passed over, acknowledged and counted.
StatusOr<bool> TrajectoryService::WantedLocked(Actor& actor, const SegmentHeader& header) {
  if (!actor.ready) return Breach("a segment before Ready");
  if (actor.any_sequence && header.sequence <= actor.last_sequence) {
    PassOver(actor, header, "duplicates");
    return false;
  }
  if (header.sequence == 0 || (actor.any_sequence && header.sequence != actor.last_sequence + 1)) {
    return Breach(absl::StrCat("SegmentHeader.sequence: ", header.sequence, " where ",
                               actor.last_sequence + 1, " was to come"));
  }
  HeldGroup* const group = table_.Find(header.group);
  if (group == nullptr) return Breach(absl::StrCat("SegmentHeader.group: there is no group ", header.group));
  if (header.bytes != group->layout->bytes()) {
    return Breach(absl::StrCat("SegmentHeader.bytes: ", header.bytes, " where a segment of group ",
                               header.group, " has ", group->layout->bytes()));
  }
  if (group->holder != actor.number || group->lease != header.lease) {
    PassOver(actor, header, "dropped_lease");
    return false;
  }
  if (weights_ == nullptr || header.policy_version > weights_->version) {
    return Breach(
        absl::StrCat("SegmentHeader.policy_version: ", header.policy_version, " was never published"));
  }
  const bool in_time =
      async_ || (round_open_ && group->ready_order < 0 && header.policy_version == weights_->version);
  if (header.first_step != group->next_step || !in_time) {
    PassOver(actor, header, header.first_step != group->next_step ? "dropped_gap" : "dropped_version");
    RenewLease(actor, *group);
    GrantGroups();
    return false;
  }
  return true;
}

void TrajectoryService::PassOver(Actor& actor, const SegmentHeader& header, const char* reason) {
  Count(reason);
  if (header.slot >= 0 && static_cast<size_t>(header.slot) < actor.ring.size()) {
    RingSlot& slot = actor.ring[static_cast<size_t>(header.slot)];
    if (slot.lease == header.lease && !slot.held) slot.lease = 0;
  }
  if (!actor.any_sequence || header.sequence > actor.last_sequence) {
    actor.any_sequence = true;
    actor.last_sequence = header.sequence;
  }
  actor.owed = actor.last_sequence;
  Acknowledge(actor);
}

void TrajectoryService::Acknowledge(Actor& actor) {
  if (actor.owed > 0) Tell(actor, Ack{std::exchange(actor.owed, 0)});
}

StatusOr<TrajectoryService::Ingest> TrajectoryService::BeginIngest(SessionId session,
                                                                   const SegmentHeader& header) {
  MutexLock lock(mutex_);
  Actor* const actor = Connected(session);
  if (actor == nullptr) return absl::AbortedError("this session has ended");
  Ingest ingest;
  MILL_ASSIGN_OR_RETURN(const bool wanted, WantedLocked(*actor, header));
  ingest.skip = !wanted;
  if (ingest.skip) return ingest;
  Pending pending;
  pending.session = session;
  pending.header = header;
  pending.newest_version = weights_->version;
  Held& held = pending.held;
  if (header.slot >= 0) {
    const auto slot = static_cast<size_t>(header.slot);
    ingest.memory = actor->link->Slot(header.slot);
    if (ingest.memory == nullptr || slot >= actor->ring.size() || actor->ring[slot].lease != header.lease ||
        actor->ring[slot].held) {
      return Breach(absl::StrCat("SegmentHeader.slot: ", header.slot, " was not granted to this group"));
    }
    actor->ring[slot].held = true;
    held.ring = actor->link;
    held.slot = header.slot;
  } else {
    ingest.memory = held.block = pool_.Get();
    if (ingest.memory == nullptr) {
      return absl::UnavailableError("no memory for this segment; it was sent without a grant");
    }
  }
  held.group = header.group;
  held.actor = actor->number;
  held.actor_name = actor->name;
  held.lease = header.lease;
  held.first_step = header.first_step;
  held.version = header.policy_version;
  held.view = SegmentView(table_.Find(header.group)->layout, ingest.memory);
  if (!header.fault.empty()) held.fault = absl::DataLossError(header.fault);
  ingest.ticket = ++last_ticket_;
  pending_[ingest.ticket] = std::move(pending);
  ++ingesting_;
  totals_.ingest_seconds -= std::chrono::duration<double>(options_.now().time_since_epoch()).count();
  return ingest;
}

// Outside of the lock: nobody else knows of this memory yet.
Status TrajectoryService::CheckContent(const Pending& pending) const {
  MILL_RETURN_IF_ERROR(CheckSegment(pending.held.view));
  const uint64_t* const version = pending.held.view.policy_version();
  for (int t = 0; t < pending.held.view.layout().steps(); ++t) {
    const uint64_t before = t == 0 ? pending.header.policy_version : version[t - 1];
    if ((t == 0 ? version[0] != before : version[t] < before) || version[t] > pending.newest_version) {
      return Breach(absl::StrCat("policy_version[", t, "]: ", version[t], " after ", before));
    }
    if (!async_ && version[t] != before) {
      return Breach(absl::StrCat("policy_version[", t, "]: two versions in one segment in mode: sync"));
    }
  }
  return absl::OkStatus();
}

Status TrajectoryService::EndIngest(const Ingest& ingest, uint64_t checksum) {
  Pending pending;
  {
    MutexLock lock(mutex_);
    const auto found = pending_.find(ingest.ticket);
    if (found == pending_.end()) return absl::AbortedError("this segment was given up");
    pending = std::move(found->second);
    pending_.erase(found);
  }
  Status status = absl::OkStatus();
  if (checksum != pending.header.checksum) {
    status = absl::DataLossError(
        absl::StrFormat("segment %d of the actor %s was damaged on its way: checksum %016x, sent with %016x",
                        pending.header.sequence, pending.held.actor_name, checksum, pending.header.checksum));
  } else {
    status = CheckContent(pending);
  }
  MutexLock lock(mutex_);
  --ingesting_;
  totals_.ingest_seconds += std::chrono::duration<double>(options_.now().time_since_epoch()).count();
  const auto found = sessions_.find(pending.session);
  Actor* const actor = found == sessions_.end() ? nullptr : found->second;
  if (!status.ok() || actor == nullptr) {
    Count(absl::IsDataLoss(status) ? "checksum_errors" : actor == nullptr ? "interrupted" : "bad_segments");
    FreeMemory(pending.held);
    return status.ok() ? absl::AbortedError("this session has ended") : status;
  }
  TakeIn(*actor, pending);
  return absl::OkStatus();
}

void TrajectoryService::TakeIn(Actor& actor, Pending& pending) {
  const SegmentHeader& header = pending.header;
  HeldGroup& group = *table_.Find(header.group);
  const bool stale = group.holder != actor.number || group.lease != header.lease;
  if (stale || (!async_ && (!round_open_ || group.ready_order >= 0))) {  // while it was copied
    FreeMemory(pending.held);
    PassOver(actor, header, "dropped_lease");
    return;
  }
  actor.any_sequence = true;
  actor.last_sequence = header.sequence;
  const SegmentLayout& layout = *group.layout;
  actor.steps += static_cast<uint64_t>(layout.samples()) * options_.run.env.action_repeat;
  actor.bytes += header.bytes;
  ++actor.segments;
  actor.acted_version = pending.held.view.policy_version()[layout.steps() - 1];
  ++taken_in_;
  if (group.granted > 0) {
    const Time now = options_.now();
    const double seconds = std::chrono::duration<double>(now - group.granted_at).count();
    segment_seconds_ +=
        (seconds - segment_seconds_) / static_cast<double>(std::min<uint64_t>(taken_in_, 100));
    if (std::exchange(group.overdue, false)) granted_ += static_cast<size_t>(group.granted);
    --group.granted;
    --granted_;
    group.granted_at = now;
  }
  group.next_step = header.first_step + static_cast<uint64_t>(layout.steps());
  group.newest = pending.held.view.snapshot();
  if (!async_) group.ready_order = static_cast<int64_t>(queue_.size());
  pending.held.since = options_.now();
  queue_.push_back(std::move(pending.held));
  actor.owed = header.sequence;  // with the next grant, or the next heartbeat
  if (async_) GrantBlockOf(header.group);
  if (queue_.size() >= batch_size_) changed_.NotifyAll();
}

void TrajectoryService::DropIngest(const Ingest& ingest) {
  MutexLock lock(mutex_);
  const auto found = pending_.find(ingest.ticket);
  if (found == pending_.end()) return;
  --ingesting_;
  totals_.ingest_seconds += std::chrono::duration<double>(options_.now().time_since_epoch()).count();
  Count("interrupted");
  FreeMemory(found->second.held);
  pending_.erase(found);
}

void TrajectoryService::FreeMemory(const Held& held) {
  if (held.block != nullptr) pool_.Put(held.block);
  if (held.ring == nullptr) return;
  const auto found = actors_.find(held.actor);
  if (found == actors_.end() || found->second->link != held.ring)
    return;  // that ring is gone with its connection
  found->second->ring[static_cast<size_t>(held.slot)] = RingSlot();
}

}  // namespace millrace
