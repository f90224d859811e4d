// TrajectoryWriter: sends finished segments in the order of their sequence numbers, keeps each until the
// learner has acknowledged it, and sends again what was not when there is a new connection. Station:
// trajectory_writer. Owner: actor_crew.
//
// Threads: any; a parcel belongs to the worker that fills it until Send or Discard. Attach, Detach and
// Acknowledge come from the thread that receives. Memory is bounded by what the learner has granted, and used
// again, so that the steady state allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "actor/transport.h"
#include "common/aligned_bytes.h"
#include "common/messages.h"
#include "common/mutex.h"

namespace millrace {

class TrajectoryWriter {
 public:
  struct Parcel {
    SegmentHeader header;  // the filler sets all but sequence, checksum, bytes and slot
    std::byte* payload = nullptr;

   private:
    friend class TrajectoryWriter;
    AlignedBytes memory;        // of its own, where there is no slot
    int lent = 0;               // transports that may still read it: the one before may be slow to let go
    bool acknowledged = false;  // the learner is done with it
  };

  // Memory for a segment of so many bytes: the slot's, or its own where `slot_memory` is null.
  // ResourceExhausted when there is none.
  StatusOr<Parcel*> Begin(size_t bytes, int32_t slot, std::byte* slot_memory);
  void Discard(Parcel* parcel);

  // Gives the segment its number and hands it to the transport; false when there is no connection (the parcel
  // stays the caller's). A connection that breaks meanwhile is no failure: it will be sent again.
  bool Send(Parcel* parcel);

  // The connection to send on, until Detach, before which the transport is closed. Sends first what was not
  // acknowledged.
  void Attach(ActorTransport* transport);
  void Detach();

  void Acknowledge(uint64_t sequence);
  size_t unacknowledged() const;

 private:
  void Transmit(Parcel* parcel) MILL_REQUIRES(send_mutex_);
  void Released(Parcel* parcel);
  void FreeIfDone(Parcel* parcel) MILL_REQUIRES(mutex_);

  // Held while a segment is handed over, so that numbers rise in the order of sending. Taken before mutex_.
  Mutex send_mutex_;
  ActorTransport* transport_ MILL_GUARDED_BY(send_mutex_) = nullptr;
  uint64_t last_sequence_ MILL_GUARDED_BY(send_mutex_) = 0;

  mutable Mutex mutex_;
  std::vector<std::unique_ptr<Parcel>> parcels_ MILL_GUARDED_BY(mutex_);
  std::vector<Parcel*> free_ MILL_GUARDED_BY(mutex_);
  std::vector<Parcel*> sent_ MILL_GUARDED_BY(mutex_);  // not acknowledged, in order
};

}  // namespace millrace
