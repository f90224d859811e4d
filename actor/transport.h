// ActorTransport: an actor's end of one connection to the learner. Three forms behind it: in process
// (cli/in_process.h), shared memory on one host (actor/transport_shm.h), gRPC (actor/transport_grpc.h).
// Station: trajectory_writer and weight_subscriber stand before it. Owner: actor_loop, which makes a new one
// for each connection.
//
// Threads: Send, SendSegment and Slot may be called from several threads at once; Receive from one. Close
// may be called from any, makes all others return, and comes before destruction.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>

#include "common/messages.h"
#include "common/status.h"

namespace millrace {

class ActorTransport {
 public:
  virtual ~ActorTransport() = default;

  virtual TransportKind kind() const = 0;

  // Unavailable when the connection is lost; what was sent may or may not have arrived.
  virtual Status Send(const ActorMessage& message) = 0;

  // Sends a segment in the order of the calls. The payload is not copied: it must stay as it is until
  // `released` was called, once, from any thread, also after an error and by Close at the latest.
  virtual Status SendSegment(const SegmentHeader& header, const std::byte* payload,
                             std::function<void()> released) = 0;

  // The memory of a slot that a grant names; null where payloads are sent from the actor's own memory, and
  // for a slot that does not exist.
  virtual std::byte* Slot(int32_t slot) = 0;

  // The next message, in the order in which the learner sent them. DeadlineExceeded when none came in time,
  // Unavailable (with the reason) when the connection is lost, Cancelled after Close.
  virtual StatusOr<LearnerMessage> Receive(std::chrono::milliseconds timeout) = 0;

  virtual void Close() = 0;
};

class ActorConnector {
 public:
  virtual ~ActorConnector() = default;
  // One attempt, ended by `deadline`. Unavailable: try again later; any other error will not go away by
  // itself. `note` is filled with why a faster transport was not used, if so. Shutdown may be called from
  // another thread (also before) and makes it return Cancelled.
  virtual StatusOr<std::unique_ptr<ActorTransport>> Connect(std::chrono::milliseconds deadline,
                                                            std::string* note) = 0;
  virtual void Shutdown() = 0;
};

}  // namespace millrace
