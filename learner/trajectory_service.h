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
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/messages.h"
#include "common/options.h"
#include "common/run_status.h"
#include "common/segment.h"
#include "common/status.h"
#include "learner/actor_link.h"
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
  // actor does not fit (protocol, bits), Unavailable while the learner shuts down; the transport then closes
  // the link with that status. A session of the same actor's older connection or process is ended first.
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

  // New weights for all actors; the newest are kept for those who come later.
  void Publish(WeightsPtr weights);
  WeightsPtr weights() const;

  // Sync: deals the groups, grants one segment of each, acted by the newest version, and waits for all.
  // Async: waits for the oldest `batch` segments. The segments' memory is valid until Release. Cancelled
  // after Stop.
  struct Batch {
    std::vector<SegmentView> segments;
    std::vector<uint32_t> groups;
    Status fault;
    double inference_seconds = 0, wait_seconds = 0;
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

  const SegmentLayout& layout(uint32_t group) const;
  // An entry a segment of a batch.
  const std::vector<int>& batch_rows() const;

 private:
  class Impl;
  explicit TrajectoryService(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
