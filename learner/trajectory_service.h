// TrajectoryService: the learner's side of all actors - who they are, which row groups they hold, what they
// may send, and what they have sent. Plain C++: transports call it with plain structs and give it an
// ActorLink to answer through. Station: trajectory_service. Owner: the learner's process.
//
// Threads: everything here may be called from any thread. One lock guards it all; payloads are copied and
// checked outside of it.
//
// Delivery. A segment is named by (actor, incarnation, sequence). On the wire it comes at least once; here it
// is taken in once: a sequence that was seen is acknowledged again and its payload passed over. Acknowledged
// means held here until it is trained on, or counted under the reason why not.
//
// Leases. Row groups belong to the run; an actor holds some by lease, each with a number that never comes
// again, so what a former holder sends late is told apart. An actor that is silent for `lease` loses all.
// At the end of each segment stands the state of its rows, so whoever gets the group next goes on from there.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/messages.h"
#include "common/mutex.h"
#include "common/options.h"
#include "common/run_status.h"
#include "common/segment.h"
#include "common/status.h"
#include "learner/actor_link.h"
#include "learner/group_table.h"
#include "learner/payload_pool.h"
#include "learner/rate_window.h"
#include "learner/rollout_source.h"

namespace millrace {

using SessionId = uint64_t;
using SteadyNow = std::function<std::chrono::steady_clock::time_point()>;

struct TrajectoryServiceOptions {
  RunOptions run;
  EnvSpec spec;                // after the wrappers
  size_t row_state_bytes = 0;  // RowGroup::row_state_bytes()
  std::string serialized_config, run_id, program_version;
  uint64_t learner_incarnation = 1;
  uint64_t kernel_bits = 0;
  SteadyNow now = [] { return std::chrono::steady_clock::now(); };
};

class TrajectoryService {
 public:
  // InvalidArgument when one segment is larger than what learner.queue_mib allows.
  static StatusOr<std::unique_ptr<TrajectoryService>> Make(TrajectoryServiceOptions options);
  ~TrajectoryService();

  // ---- transports ----

  // A connection said hello. Queues a Welcome on the link. FailedPrecondition naming the difference when the
  // actor does not fit (protocol, bits), Unavailable while the learner shuts down or has rows for no more
  // actors (SetMostRows); the transport then closes the link with that status. A session of the same actor's
  // older connection or process is ended first.
  StatusOr<SessionId> Open(const Hello& hello, TransportKind kind, std::string peer,
                           std::shared_ptr<ActorLink> link);
  // Ready, Heartbeat, Goodbye. An error is a breach of the protocol: the transport closes the link with it.
  Status Receive(SessionId session, const ActorMessage& message);

  // Where the payload of this segment goes. `skip`: it was taken before or is of no use any more; read past
  // it. Errors as Receive's: unknown group, wrong size, sequence out of order, no grant. Every Ingest that is
  // not skipped must be ended or dropped; a dropped one is as if the segment had not come.
  struct Ingest {
    bool skip = false;
    std::byte* memory = nullptr;  // header.bytes, 64-byte aligned; the ring's slot itself in shared memory
    uint64_t ticket = 0;
  };
  StatusOr<Ingest> BeginIngest(SessionId session, const SegmentHeader& header);
  // The payload is there with this checksum (of what was written). DataLoss when it is not the header's,
  // InvalidArgument naming the field when the content can't be a segment.
  Status EndIngest(const Ingest& ingest, uint64_t checksum);
  void DropIngest(const Ingest& ingest);

  // The connection is gone. The leases stay until they run out, for the actor may come back; after a Goodbye
  // they are free at once.
  void Lost(SessionId session, const Status& why);

  // Ends leases that ran out. Called by a timer every quarter of a lease or oftener. When the learner itself
  // stood still (its own ticks are late), leases are prolonged instead.
  void Tick();

  // ---- the learner ----

  // Async: rows of all actors that the learner can hold (Learner::most_rows). To be set before anybody comes;
  // whoever is too many is told so, and is taken when another has gone.
  void SetMostRows(uint64_t rows);

  // New weights for all actors; the newest are kept for those who come later.
  void Publish(WeightsPtr weights);
  WeightsPtr weights() const;
  // Called with each new version by Publish's thread. Null: nobody, and no call is underway any more.
  void OnPublish(std::function<void(const WeightsPtr&)> listener);

  // Sync: deals the groups, grants one segment of each, acted by the newest version, and waits for all.
  // Async: waits for as many segments as there are groups, and takes the oldest: so many, or with
  // sac.batch_max all that are here, MostSegments (common/row_groups.h) at most. The segments' memory is
  // valid until Release. Cancelled after Stop.
  struct Batch {
    std::vector<SegmentView> segments;
    std::vector<uint32_t> groups;
    std::vector<std::string> actors;    // the name of each segment's actor
    std::vector<uint64_t> first_steps;  // agent steps that its rows had done
    Status fault;                       // the first in the order of the groups
    double wait_seconds = 0;
  };
  StatusOr<Batch> Take();
  // The last batch is trained on (or dropped): its slots are free, its end states are the checkpoint's.
  void Release();

  RowStates SaveRows() const;
  Status LoadRows(const RowStates& states);

  // Asks all actors to finish and leave; new ones are refused.
  void Drain(const std::string& reason);
  // Ends all sessions with Bye. `why` Ok: the run is done, actors end as well; Unavailable: come back.
  void Stop(const Status& why);
  // Makes Take return Cancelled until Resume; sessions go on.
  void Interrupt();
  void Resume();
  // While paused nothing new is granted.
  void SetPaused(bool paused);
  void SetMaxPolicyLag(uint32_t lag);

  // Fills actors, queues, counters and the stations' shares.
  void FillStatus(RunStatus& status) const;

  // Rows of each segment of a batch in sync mode; in async mode a batch has as many segments or more (see
  // Take), of any groups.
  std::vector<int> batch_rows() const;

 private:
  using Time = std::chrono::steady_clock::time_point;

  // One slot of an actor's shared ring: the lease that it was granted under (0: free), and whether a segment
  // in it is being checked, waits or is trained on.
  struct RingSlot {
    uint64_t lease = 0;
    bool held = false;
  };
  struct Actor {
    uint64_t number = 0;
    std::string name, host, peer, note;
    uint64_t incarnation = 0;
    uint32_t pid = 0, threads = 1;
    TransportKind kind = TransportKind::kInProcess;
    SessionId session = 0;  // 0: not connected
    std::shared_ptr<ActorLink> link;
    bool ready = false, left = false;
    Time last_seen, lost_at;
    bool any_sequence = false;
    uint64_t last_sequence = 0;  // taken in or passed over
    uint64_t owed = 0;           // the sequence to be acknowledged; 0: nothing new
    std::vector<RingSlot> ring;
    ActorStats stats;
    RateWindow<ActorStats> stats_window;
    uint64_t restarts = 0, steps = 0, segments = 0, bytes = 0;
    uint64_t acted_version = 0;  // of the newest step taken in
    RateWindow<uint64_t> steps_window;
    // Leases and grants on this connection (Weight), and of them those that it must have by now.
    uint64_t told = 0, due = 0;
    Time due_since;
  };
  // A segment that is held here. Its memory is a block of the pool or a slot of its actor's ring.
  struct Held {
    uint32_t group = 0;
    uint64_t actor = 0;
    std::string actor_name;
    uint64_t lease = 0, first_step = 0, version = 0;
    SegmentView view;
    std::byte* block = nullptr;
    std::shared_ptr<ActorLink> ring;
    int32_t slot = -1;
    Status fault;
    Time since;
  };
  struct Pending {
    SessionId session = 0;
    SegmentHeader header;
    uint64_t newest_version = 0;  // that was published when it came
    Held held;
  };
  struct Totals {
    double wait_seconds = 0, ingest_seconds = 0, publish_seconds = 0;
  };

  explicit TrajectoryService(TrajectoryServiceOptions options);
  Status SetBounds();

  // trajectory_service.cc: sessions and ingest
  Status CheckHello(const Hello& hello) const;
  StatusOr<Actor*> AdmitLocked(const Hello& hello) MILL_REQUIRES(mutex_);
  Status CheckRoom(const std::string& name) const MILL_REQUIRES(mutex_);
  void ForgetGone() MILL_REQUIRES(mutex_);
  Status OnReady(Actor& actor, const Ready& ready) MILL_REQUIRES(mutex_);
  void OnGoodbye(Actor& actor) MILL_REQUIRES(mutex_);
  Actor* Connected(SessionId session) MILL_REQUIRES(mutex_);
  void Disconnect(Actor& actor) MILL_REQUIRES(mutex_);
  StatusOr<bool> WantedLocked(Actor& actor, const SegmentHeader& header) MILL_REQUIRES(mutex_);
  void PassOver(Actor& actor, const SegmentHeader& header, const char* reason) MILL_REQUIRES(mutex_);
  void Acknowledge(Actor& actor) MILL_REQUIRES(mutex_);
  Status CheckContent(const Pending& pending) const;
  void TakeIn(Actor& actor, Pending& pending) MILL_REQUIRES(mutex_);
  void FreeMemory(const Held& held) MILL_REQUIRES(mutex_);
  void Count(const char* name, uint64_t n = 1) MILL_REQUIRES(mutex_) { counters_[name] += n; }

  // trajectory_leases.cc: leases, grants, rounds
  // In async mode nobody waits for anybody's rows, and blocks kept for names would pile up.
  bool waits_for_lost() const { return !async_ && options_.run.actors.on_lost == OnLost::kWait; }
  std::vector<GroupTable::Candidate> Candidates() const MILL_REQUIRES(mutex_);
  void TakeFromLost() MILL_REQUIRES(mutex_);
  void Tell(Actor& actor, LearnerMessage message) MILL_REQUIRES(mutex_);
  Status OnHeartbeat(Actor& actor, const Heartbeat& heartbeat) MILL_REQUIRES(mutex_);
  void FreeGroupsOf(Actor& actor, bool wait) MILL_REQUIRES(mutex_);
  void VoidGrants(HeldGroup& group) MILL_REQUIRES(mutex_);
  void RenewLease(Actor& actor, HeldGroup& group) MILL_REQUIRES(mutex_);
  void DealGroups(bool rebalance) MILL_REQUIRES(mutex_);
  void SendLeases(Actor& actor) MILL_REQUIRES(mutex_);
  void SendLease(Actor& actor, Lease lease) MILL_REQUIRES(mutex_);
  LeasedGroup Describe(const HeldGroup& group) MILL_REQUIRES(mutex_);
  bool AddGrant(HeldGroup& group, std::map<uint64_t, Grant>& grants) MILL_REQUIRES(mutex_);
  void GrantGroups() MILL_REQUIRES(mutex_);
  void GrantAsync(size_t begin, size_t end) MILL_REQUIRES(mutex_);
  void GrantBlockOf(uint32_t group) MILL_REQUIRES(mutex_);
  bool RunsLow(size_t first) const MILL_REQUIRES(mutex_);
  void GiveUpOverdue() MILL_REQUIRES(mutex_);
  void SendGrants(std::map<uint64_t, Grant>& grants) MILL_REQUIRES(mutex_);
  void OpenRound() MILL_REQUIRES(mutex_);
  bool BatchReady() MILL_REQUIRES(mutex_);
  void DropStale() MILL_REQUIRES(mutex_);
  size_t Outstanding() const MILL_REQUIRES(mutex_) { return granted_ + queue_.size(); }

  // trajectory_status.cc
  Totals TotalsAt(Time now) const MILL_REQUIRES(mutex_);
  void FillActors(RunStatus& status, Time now) const MILL_REQUIRES(mutex_);
  void FillStations(RunStatus& status) const MILL_REQUIRES(mutex_);

  const TrajectoryServiceOptions options_;
  const bool async_;
  const std::chrono::milliseconds lease_, heartbeat_;
  size_t batch_size_ = 0, batch_most_ = 0, max_outstanding_ = 0;  // segments; of a batch: least and most
  uint64_t layout_hash_ = 0;
  std::string layout_text_;

  Mutex publish_mutex_;  // never with the other one
  std::function<void(const WeightsPtr&)> on_publish_ MILL_GUARDED_BY(publish_mutex_);
  mutable Mutex mutex_;
  CondVar changed_;
  GroupTable table_ MILL_GUARDED_BY(mutex_);
  PayloadPool pool_ MILL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::unique_ptr<Actor>> actors_ MILL_GUARDED_BY(mutex_);  // by number, as they came
  std::map<std::string, Actor*> by_name_ MILL_GUARDED_BY(mutex_);
  std::map<SessionId, Actor*> sessions_ MILL_GUARDED_BY(mutex_);
  std::map<uint64_t, Pending> pending_ MILL_GUARDED_BY(mutex_);
  std::deque<Held> queue_ MILL_GUARDED_BY(mutex_);   // taken in, oldest first
  std::vector<Held> batch_ MILL_GUARDED_BY(mutex_);  // being trained on
  WeightsPtr weights_ MILL_GUARDED_BY(mutex_);
  uint64_t last_number_ MILL_GUARDED_BY(mutex_) = 0, last_session_ MILL_GUARDED_BY(mutex_) = 0,
                        last_ticket_ MILL_GUARDED_BY(mutex_) = 0;
  double segment_seconds_ MILL_GUARDED_BY(mutex_) = 0;  // from grant to segment, a running mean
  size_t granted_ MILL_GUARDED_BY(mutex_) = 0;          // segments that may come and are waited for
  size_t next_grant_ MILL_GUARDED_BY(mutex_) = 0;       // group at which the next round of grants begins
  uint32_t max_policy_lag_ MILL_GUARDED_BY(mutex_) = 0;
  bool round_open_ MILL_GUARDED_BY(mutex_) = false,
                   interrupted_ MILL_GUARDED_BY(mutex_) = false, paused_ MILL_GUARDED_BY(mutex_) = false,
                   draining_ MILL_GUARDED_BY(mutex_) = false, stopped_ MILL_GUARDED_BY(mutex_) = false,
                   bit_exact_ MILL_GUARDED_BY(mutex_) = true, waiting_ MILL_GUARDED_BY(mutex_) = false;
  Status stop_reason_ MILL_GUARDED_BY(mutex_);
  Time last_tick_ MILL_GUARDED_BY(mutex_), waiting_since_ MILL_GUARDED_BY(mutex_);
  Totals totals_ MILL_GUARDED_BY(mutex_);                    // less the times at which what is underway began
  int ingesting_ MILL_GUARDED_BY(mutex_) = 0;                // segments underway
  std::optional<Time> released_at_ MILL_GUARDED_BY(mutex_);  // from there to Take the learner publishes
  RateWindow<Totals> totals_window_ MILL_GUARDED_BY(mutex_);
  std::map<std::string, uint64_t> counters_ MILL_GUARDED_BY(mutex_);
  std::vector<uint64_t> lag_histogram_ MILL_GUARDED_BY(mutex_);
  uint64_t taken_in_ MILL_GUARDED_BY(mutex_) = 0;
  double queue_seconds_ MILL_GUARDED_BY(mutex_) = 0;
};

}  // namespace millrace
