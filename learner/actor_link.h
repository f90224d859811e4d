// ActorLink: the learner's end of one connection to an actor, as the trajectory service sees it. Implemented
// by each transport. Station: trajectory_service. Owner: shared by the transport and the service's session,
// for either may be the first to go; memory of shared slots lives until both have.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/messages.h"
#include "common/status.h"
#include "common/weights.h"

namespace millrace {

class ActorLink {
 public:
  virtual ~ActorLink() = default;

  // Queues a message for the actor and returns at once; messages arrive in order. After Close, or when the
  // connection is gone, it does nothing. Any thread, also while the service's lock is held: it must never
  // call back into the service.
  virtual void Send(LearnerMessage message) = 0;

  // Before the first lease: the states that may wait for the actor at once have so many bytes. A link bounds
  // what it queues for an actor that does not read; these come on top.
  virtual void ReserveStates(size_t bytes) { static_cast<void>(bytes); }

  // Sends new weights. A version that has not left yet when the next one comes may be passed over.
  virtual void SendWeights(WeightsPtr weights) = 0;

  // Sends Bye with this reason and ends the connection; Ok: an orderly end. As Send, never calls back.
  virtual void Close(const Status& why) = 0;

  // Shared memory only: makes a ring of `slots` slots of `bytes` each and passes it to the actor (the grants
  // that follow name slots of it). False where the transport sends payloads, or when there is no memory.
  virtual bool OfferRing(uint32_t slots, size_t bytes) {
    static_cast<void>(slots), static_cast<void>(bytes);
    return false;
  }
  virtual std::byte* Slot(int32_t slot) {
    static_cast<void>(slot);
    return nullptr;
  }
};

}  // namespace millrace
