// Messages: what actors and the learner say to each other, as plain values; the mirror of
// proto/millrace/v1/trajectory.proto, which has the meaning of each field. common/rpc turns them into bytes
// and back; stations see only these. Station: trajectory_writer ==> trajectory_service, both directions.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace millrace {

// The protocols that this program speaks: all from kOldest to kProtocol.
inline constexpr uint32_t kProtocol = 1, kOldestProtocol = 1;
// A segment's header and every control message stay below this; payloads and weights do not count.
inline constexpr size_t kMaxControlBytes = size_t{1} << 20;
inline constexpr size_t kWeightsChunkBytes = size_t{1} << 20;
// What the learner sends in one message, a row group's state included.
inline constexpr size_t kMaxFromLearnerBytes = size_t{64} << 20;

enum class TransportKind : uint8_t { kInProcess, kSharedMemory, kGrpc };
std::string_view TransportName(TransportKind kind);  // in_process, shared_memory, grpc

// ---- from an actor ----

struct Hello {
  uint32_t protocol_min = kOldestProtocol, protocol_max = kProtocol;
  std::string program_version;
  std::string actor;         // its name, unique among actors; a process that restarts may keep it
  uint64_t incarnation = 0;  // of the process, unlike that of any other process that had the name
  std::string host;
  uint32_t pid = 0, threads = 0;
  uint64_t kernel_bits = 0;    // KernelFingerprint(): equal where the arithmetic has equal bits
  std::string transport_note;  // why shared memory is not used; empty where it is, or was not asked for
};

// The actor has built what the Welcome told it to, and can take leases.
struct Ready {
  uint64_t layout_hash = 0;  // of `layout`
  std::string layout;        // SegmentLayout::Describe() of the first row group
};

// Totals since the process began, over all its threads.
struct ActorStats {
  uint64_t steps = 0, segments = 0;  // environment steps; segments handed to the transport
  uint64_t policy_version = 0;       // that it acts by now
  uint64_t unacknowledged = 0;       // segments
  double env_seconds = 0, inference_seconds = 0;
  double wait_weights_seconds = 0;  // threads that had everything but the weights
  double wait_credit_seconds = 0;   // threads that had no group they were allowed to step
  double send_seconds = 0;          // checksums and the transport
};

struct Heartbeat {
  ActorStats stats;
  std::optional<uint64_t> received = std::nullopt;  // sum of Weight over this connection's messages
};

// The last message of an actor that leaves of its own will; everything it had was sent before.
struct Goodbye {
  std::string reason;
};

struct SegmentHeader {
  uint64_t sequence =
      0;  // 1, 2, 3 ... in the order of sending; (actor, incarnation, sequence) names a segment
  uint32_t group = 0;
  uint64_t lease = 0;           // by which the group was held when the segment was begun
  uint64_t first_step = 0;      // of the group's rows since the run began, agent steps
  uint64_t policy_version = 0;  // of the first step, the oldest in the segment
  uint64_t checksum = 0;        // XXH3-64 of the payload
  uint64_t bytes = 0;           // of the payload
  int32_t slot = -1;            // of the shared ring; -1: the payload follows
  std::string fault;            // the first value that was not finite, as a sentence; empty: none
};

using ActorMessage = std::variant<Hello, Ready, Heartbeat, Goodbye>;

// ---- from the learner ----

struct Welcome {
  uint32_t protocol = kProtocol;  // chosen
  std::string program_version, run_id;
  uint64_t learner_incarnation = 0;  // new at each start of the learner
  std::string config;                // serialized RunConfig
  uint32_t lease_ms = 0, heartbeat_ms = 0;
  uint64_t layout_hash = 0;
  std::string layout;
};

struct LeasedGroup {
  uint32_t group = 0;
  uint64_t lease = 0;
  uint32_t first_row = 0, rows = 0;  // global rows
  uint64_t next_step = 0;            // agent steps that these rows have done
  std::string state;                 // RowGroup::SaveRows; empty: episodes begin
};

struct Lease {
  std::vector<uint32_t> drop;  // first
  std::vector<LeasedGroup> add;
};

// Each entry allows one segment of that group.
struct GroupGrant {
  uint32_t group = 0;
  uint64_t lease = 0;
  int32_t slot = -1;  // of the shared ring, where the segment is to be written
};

struct Grant {
  bool exact =
      false;  // act by this very version, for the whole segment; else by the newest, at least this one
  uint64_t policy_version = 0;
  uint64_t bytes = 0;  // of all segments of this grant
  std::vector<GroupGrant> groups;
  uint64_t acknowledged = 0;  // as Ack::sequence; 0: nothing new
};

// All sequences up to this one are held by the learner, or dropped and counted; they are never sent again.
struct Ack {
  uint64_t sequence = 0;
};

// A piece of the weights of one version: the blob of WeightsBlob (common/weights.h). Pieces come in order;
// a piece at offset 0 begins a version and ends what was begun before.
struct WeightsChunk {
  uint64_t version = 0, total_bytes = 0, offset = 0;
  uint64_t checksum = 0;  // WeightsChecksum of the whole blob
  std::string data;
};

// Finish what was begun, send it, say Goodbye.
struct Drain {
  std::string reason;
};

// The learner ends the session. `code` is an absl::StatusCode; an actor comes back after Unavailable, Aborted
// and DataLoss, and gives up after anything else.
struct Bye {
  int32_t code = 0;
  std::string reason;
};

using LearnerMessage = std::variant<Welcome, Lease, Grant, Ack, WeightsChunk, Drain, Bye>;

// Adds a message to those that wait for a connection. Where one of them can say it as well, it does: the last
// acknowledgement covers all before it, a grant carries one, and grants for the same version are one. So the
// more there is to say, the fewer messages it takes. What a lease parts stays apart.
void Enqueue(std::deque<LearnerMessage>& queue, LearnerMessage message);
// What Heartbeat::received counts of a message; the same for any way to join them.
uint64_t Weight(const LearnerMessage& message);

}  // namespace millrace
