// SharedRing: slots of memory that two processes of one host share: the learner makes it and passes its
// descriptor, the actor writes segments into it, the learner trains on them where they lie. Station:
// trajectory_writer ==> trajectory_service. Owner: the end that mapped it; memory lives until both ends and
// the descriptor are gone. Threads: any; who may touch a slot is settled by grants and segments.
//
// It is a memfd, so nothing is left behind by processes that are killed, and the size of /dev/shm (64 MiB in
// a container) does not bound it: the memory of the machine and of the cgroup does. Beyond these the kernel
// ends a process at the first touch of a page, so Make asks first and says what is missing. The size is
// sealed: no process can shrink it under the other, which would be a SIGBUS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/rpc/unix_socket.h"
#include "common/status.h"

namespace millrace {

class SharedRing {
 public:
  // ResourceExhausted naming both figures when slots * bytes do not fit `available` bytes of memory.
  static StatusOr<std::unique_ptr<SharedRing>> Make(uint32_t slots, size_t bytes, uint64_t available);
  // What another process made. InvalidArgument when it is not sealed, or not of the size that was announced.
  static StatusOr<std::unique_ptr<SharedRing>> Map(UniqueFd fd, uint32_t slots, uint64_t stride);
  ~SharedRing();
  SharedRing(const SharedRing&) = delete;
  SharedRing& operator=(const SharedRing&) = delete;

  // A descriptor to be passed on; none where this end did not make the ring, or the process has no more.
  UniqueFd Descriptor() const;

  uint32_t slots() const { return slots_; }
  uint64_t stride() const { return stride_; }  // bytes from slot to slot, a multiple of 4096
  uint64_t bytes() const { return slots_ * stride_; }
  // Null where there is no such slot.
  std::byte* Slot(int32_t slot) const {
    if (slot < 0 || static_cast<uint32_t>(slot) >= slots_) return nullptr;
    return base_ + static_cast<uint64_t>(slot) * stride_;
  }
  // Bytes that no process has touched, so that the machine has still to find the memory for them. One system
  // call, whatever the size. The maker's end only.
  uint64_t UntouchedBytes() const;

 private:
  SharedRing(UniqueFd fd, std::byte* base, uint32_t slots, uint64_t stride)
      : fd_(std::move(fd)), base_(base), slots_(slots), stride_(stride) {}

  const UniqueFd fd_;
  std::byte* const base_;
  const uint32_t slots_;
  const uint64_t stride_;
};

}  // namespace millrace
