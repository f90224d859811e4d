#include "actor/transport_shm.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <limits>
#include <string_view>
#include <utility>
#include <variant>

#include "common/mutex.h"
#include "common/rpc/codec.h"
#include "common/rpc/shared_ring.h"
#include "common/rpc/unix_socket.h"
#include "common/text.h"

namespace millrace {
namespace {

class ShmTransport final : public ActorTransport {
 public:
  ShmTransport(UniqueFd socket, std::chrono::milliseconds write_patience)
      : fd_(std::move(socket)), write_patience_(write_patience) {}
  ~ShmTransport() override { Close(); }

  TransportKind kind() const override { return TransportKind::kSharedMemory; }

  Status Send(const ActorMessage& message) override { return Write(FrameWriter(Encode(message))); }

  Status SendSegment(const SegmentHeader& header, const std::byte* payload,
                     std::function<void()> released) override {
    std::string_view inline_payload;
    if (header.slot < 0) inline_payload = {reinterpret_cast<const char*>(payload), header.bytes};
    std::string prefix = EncodeSegmentPrefix(header);
    Status sent;
    if (prefix.size() + inline_payload.size() > std::numeric_limits<uint32_t>::max()) {
      sent = absl::InvalidArgumentError(
          Cat("a segment of ", header.bytes, " bytes is too long for the socket; use shorter segments"));
    } else {
      sent = Write(FrameWriter(std::move(prefix), inline_payload));
    }
    // A slot is the learner's from here on, and what was not in a slot has been copied by the kernel.
    released();
    return sent;
  }

  std::byte* Slot(int32_t slot) override {
    const SharedRing* ring = ring_.load(std::memory_order_acquire);
    return ring == nullptr ? nullptr : ring->Slot(slot);
  }

  StatusOr<LearnerMessage> Receive(std::chrono::milliseconds timeout) override {
    const SteadyTime until = std::chrono::steady_clock::now() + timeout;
    while (true) {
      if (closed_.load()) return Closed();
      if (!lost_.ok()) return lost_;
      StatusOr<std::optional<LearnerMessage>> next = NextMessage();
      if (!next.ok()) {
        lost_ = absl::UnavailableError(Cat("the learner sent what can't be read: ", next.status().message()));
      } else if (*next) {
        return *std::move(*next);
      } else {
        MILL_RETURN_IF_ERROR(Fill(until));
      }
    }
  }

  void Close() override {
    closed_.store(true);
    ::shutdown(fd_.get(), SHUT_RDWR);  // wakes whoever waits for the socket
  }

 private:
  static Status Closed() { return absl::CancelledError("the transport was closed"); }

  // The first message that is here, if any; rings are taken on the way.
  StatusOr<std::optional<LearnerMessage>> NextMessage() {
    while (true) {
      MILL_ASSIGN_OR_RETURN(const auto frame, reader_.Next());
      if (!frame) return std::optional<LearnerMessage>();
      StatusOr<LearnerFrame> parsed = ParseLearnerFrame(frame->bytes);
      reader_.Pop();
      MILL_RETURN_IF_ERROR(parsed.status());
      if (auto* message = std::get_if<LearnerMessage>(&*parsed)) {
        return std::optional<LearnerMessage>(std::move(*message));
      }
      if (const auto* offer = std::get_if<RingOffer>(&*parsed)) MILL_RETURN_IF_ERROR(TakeRing(*offer));
    }
  }

  Status TakeRing(const RingOffer& offer) {
    if (owned_ring_) return absl::InvalidArgumentError("ring: a second one");
    MILL_ASSIGN_OR_RETURN(owned_ring_, SharedRing::Map(reader_.TakeDescriptor(), offer.slots, offer.stride));
    ring_.store(owned_ring_.get(), std::memory_order_release);
    return absl::OkStatus();
  }

  // Waits for bytes and takes them. Only DeadlineExceeded is returned; a lost connection is noted.
  Status Fill(SteadyTime until) {
    const StatusOr<bool> ready = WaitFor(fd_.get(), POLLIN, until);
    if (ready.ok() && !*ready) return absl::DeadlineExceededError("nothing came in time");
    const Status filled = ready.ok() ? reader_.Fill(fd_.get()).status() : ready.status();
    if (filled.ok()) return filled;
    // Where a sender gave up, the socket has ended by that; whoever writes at this moment ends at once, too.
    MutexLock lock(write_mutex_);
    lost_ = broken_.ok() ? absl::UnavailableError(filled.message()) : broken_;
    return absl::OkStatus();
  }

  // Frames leave whole and in the order of the calls, so the lock is held until the last byte; Close ends the
  // wait, and so does a learner that takes nothing for too long. Those who wait for the lock then fail at
  // once.
  Status Write(FrameWriter frame) {
    MutexLock lock(write_mutex_);
    while (true) {
      if (closed_.load()) return Closed();
      if (!broken_.ok()) return broken_;
      const StatusOr<bool> done = frame.Step(fd_.get());
      if (done.ok() && *done) return absl::OkStatus();
      const Status room = done.ok() ? WaitForRoom() : done.status();
      if (room.ok()) continue;
      broken_ = absl::UnavailableError(room.message());
      if (closed_.load()) return Closed();
    }
  }

  Status WaitForRoom() {
    MILL_ASSIGN_OR_RETURN(const bool room,
                          WaitFor(fd_.get(), POLLOUT, std::chrono::steady_clock::now() + write_patience_));
    if (room) return absl::OkStatus();
    ::shutdown(fd_.get(), SHUT_RDWR);  // half a frame has left, so nothing can follow; wakes the receiver
    return absl::UnavailableError(Cat("the learner has taken nothing from its socket for ",
                                      write_patience_.count(), " ms: it stands still, or is overloaded"));
  }

  const UniqueFd fd_;
  const std::chrono::milliseconds write_patience_;
  std::atomic<bool> closed_{false};
  std::atomic<const SharedRing*> ring_{nullptr};

  Mutex write_mutex_;
  Status broken_ MILL_GUARDED_BY(write_mutex_);  // not Ok: nothing can be written any more

  // The receiving thread's. A piece of weights is the longest; its buffer is kept, for they come all the
  // time.
  static constexpr size_t kKept = 2 * (kMaxControlBytes + kWeightsChunkBytes);
  FrameReader reader_{{kMaxFromLearnerBytes, kMaxFromLearnerBytes, true, kKept}};
  Status lost_;
  std::unique_ptr<SharedRing> owned_ring_;
};

}  // namespace

StatusOr<std::unique_ptr<ActorTransport>> ConnectSharedMemory(const std::string& socket_path,
                                                              std::chrono::milliseconds deadline,
                                                              std::chrono::milliseconds write_patience) {
  MILL_ASSIGN_OR_RETURN(UniqueFd fd, ConnectUnix(socket_path, deadline));
  MILL_ASSIGN_OR_RETURN(const UnixPeer peer, PeerOf(fd.get()));
  // Anyone may put a socket into a shared folder; root trusts those whom it chose to join.
  if (peer.uid != ::geteuid() && peer.uid != 0 && ::geteuid() != 0) {
    return absl::PermissionDeniedError(
        Cat(socket_path, ": user ", peer.uid, " listens there, not user ", ::geteuid(), " or root"));
  }
  return std::unique_ptr<ActorTransport>(new ShmTransport(std::move(fd), write_patience));
}

}  // namespace millrace
