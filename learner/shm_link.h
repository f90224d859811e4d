// ShmLink: the learner's sending half of one connection over shared memory, and the ring of it. Station:
// trajectory_service ==> actor. Owner: shared by shm_server's connection and the service's session; the
// socket closes when the server ends the connection, the ring stays until both have let go.
//
// Threads: ActorLink's functions from any, FlushFromLoop, End and failure from the server's loop. Nothing
// blocks: a message goes to the socket at once where that takes it, and otherwise waits in a bounded queue
// for the loop, which epoll wakes. Whoever has set `sending_` owns the socket's write end and writes without
// holding the lock; the others only queue.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/mutex.h"
#include "common/rpc/codec.h"
#include "common/rpc/shared_ring.h"
#include "common/rpc/unix_socket.h"
#include "common/run_status.h"
#include "learner/actor_link.h"

namespace millrace {

// What all links of one server share.
class ShmHub {
 public:
  // Where the free memory comes from; AvailableMemory (common/resource_usage.h) but in tests.
  using MemorySource = std::function<uint64_t()>;
  static StatusOr<std::shared_ptr<ShmHub>> Make(MemorySource available_memory);

  int epoll() const { return epoll_.get(); }
  int wake_fd() const { return wake_.get(); }
  // Makes the loop look at what is closing.
  void Wake() const;
  void DrainWake() const;

  // A ring that fits the memory beside all rings that were promised before.
  StatusOr<std::shared_ptr<SharedRing>> MakeRing(uint32_t slots, size_t bytes);
  // Why the last ring could not be made; empty: none failed.
  std::string ring_error() const;

  // Messages that wait for a socket to take them, of all links.
  void Queued(size_t bytes);
  void Sent(size_t messages, size_t bytes, std::chrono::nanoseconds waited);
  void Dropped(size_t messages, size_t bytes);
  QueueStatus OutQueue() const;

 private:
  ShmHub(MemorySource available_memory, UniqueFd epoll, UniqueFd wake);

  const MemorySource available_memory_;
  const UniqueFd epoll_, wake_;
  std::atomic<uint64_t> depth_{0}, bytes_{0}, total_{0}, wait_ns_{0};
  mutable Mutex mutex_;
  std::vector<std::weak_ptr<SharedRing>> rings_ MILL_GUARDED_BY(mutex_);
  std::string ring_error_ MILL_GUARDED_BY(mutex_);
};

class ShmLink final : public ActorLink {
 public:
  // The most that waits for one actor, beside reserved states; one that does not read is cut off when it is
  // reached.
  static constexpr size_t kMaxQueuedBytes = size_t{64} << 20;

  // `id` is what epoll reports for the socket.
  ShmLink(UniqueFd socket, uint64_t id, std::shared_ptr<ShmHub> hub);
  ~ShmLink() override;

  void Send(LearnerMessage message) override;
  void ReserveStates(size_t bytes) override;
  void SendWeights(WeightsPtr weights) override;
  void Close(const Status& why) override;
  bool OfferRing(uint32_t slots, size_t bytes) override;
  std::byte* Slot(int32_t slot) override;
  // Of a slot; 0: no ring.
  size_t slot_bytes() const;

  // For the loop. Puts the socket under epoll's watch; comes before all else.
  Status Watch();
  // The socket, valid until End.
  int fd() const { return fd_.get(); }
  void FlushFromLoop() { Flush(true); }
  // Between the two, messages gather: the answers to all that came by one read leave together.
  void Cork();
  void Uncork();
  bool closing() const;
  // Why this side gave the connection up; Ok where it did not.
  Status failure() const;
  // The connection is over: the socket closes, what waits is dropped.
  void End();

 private:
  struct Waiting {
    FrameWriter frames;
    size_t count = 0;  // messages; 0: a piece of weights
    SteadyTime since;  // of the first
  };

  void Queue(std::string message, UniqueFd passed = UniqueFd()) MILL_REQUIRES(mutex_);
  void Flush(bool from_loop);
  bool NextFrame() MILL_REQUIRES(mutex_);
  FrameWriter NextChunk();
  void Written(StatusOr<bool> done) MILL_REQUIRES(mutex_);
  void Fail(Status why) MILL_REQUIRES(mutex_);
  void Settle() MILL_REQUIRES(mutex_);
  bool HasWeights() const MILL_REQUIRES(mutex_) { return !closing_ && (begun_ || next_weights_); }

  const uint64_t id_;
  const std::shared_ptr<ShmHub> hub_;
  UniqueFd fd_;  // closed under the lock, when gone_ and nobody is sending

  mutable Mutex mutex_;
  bool sending_ MILL_GUARDED_BY(mutex_) = false;
  bool corked_ MILL_GUARDED_BY(mutex_) = false;
  bool closing_ MILL_GUARDED_BY(mutex_) = false;  // Bye is queued, nothing comes after it
  bool gone_ MILL_GUARDED_BY(mutex_) = false;
  uint32_t watched_ MILL_GUARDED_BY(mutex_) = 0;  // epoll's events
  Status failure_ MILL_GUARDED_BY(mutex_);
  std::deque<Waiting> queue_ MILL_GUARDED_BY(mutex_);
  size_t queued_ MILL_GUARDED_BY(mutex_) = 0, queued_bytes_ MILL_GUARDED_BY(mutex_) = 0;  // with current_
  size_t most_queued_bytes_ MILL_GUARDED_BY(mutex_) = kMaxQueuedBytes;
  WeightsPtr next_weights_ MILL_GUARDED_BY(mutex_);
  std::shared_ptr<SharedRing> ring_ MILL_GUARDED_BY(mutex_);
  WeightsPtr begun_ MILL_GUARDED_BY(mutex_);  // of which pieces have left; changed by the sender only

  // The sender's: of whoever has set sending_.
  std::optional<Waiting> current_;
  WeightsPtr chunk_of_;
  size_t next_offset_ = 0;
};

}  // namespace millrace
