#include "learner/replay/memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "common/human.h"
#include "common/text.h"

namespace millrace {

ReplayMemory& ReplayMemory::operator=(ReplayMemory&& other) noexcept {
  std::swap(slots_, other.slots_);
  std::swap(side_, other.side_);
  std::swap(mapped_, other.mapped_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  return *this;
}

ReplayMemory::~ReplayMemory() {
  if (mapped_ != nullptr) ::munmap(mapped_, mapped_bytes_);
}

StatusOr<ReplayMemory> ReplayMemory::Make(uint64_t slots, uint64_t side, uint64_t available) {
  const uint64_t aligned = (slots + 63) / 64 * 64;
  const uint64_t bytes = aligned + side;
  if (bytes > available) {
    return absl::ResourceExhaustedError(Cat("the replay takes ", bytes, " bytes and ", available,
                                            " are available; lower replay.capacity, or set replay.file"));
  }
  ReplayMemory memory;
  void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    return absl::ResourceExhaustedError(Cat("the replay takes ", bytes, " bytes: ", std::strerror(errno),
                                            "; lower replay.capacity, or set replay.file"));
  }
  memory.mapped_ = static_cast<std::byte*>(mapped);
  memory.mapped_bytes_ = bytes;
  ::madvise(mapped, bytes, MADV_HUGEPAGE);  // only faster where it is refused
  std::memset(mapped, 0, bytes);
  memory.slots_ = memory.mapped_;
  memory.side_ = memory.mapped_ + aligned;
  return memory;
}

}  // namespace millrace
