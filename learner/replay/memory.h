// ReplayMemory: zeroed memory of a replay, in one allocation with large pages, or with the slots in a mapped
// file. Owner: Replay. Station: replay. One thread; movable, and then no address changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "common/status.h"

namespace millrace {

class ReplayMemory {
 public:
  ReplayMemory() = default;
  ReplayMemory(ReplayMemory&& other) noexcept { *this = std::move(other); }
  ReplayMemory& operator=(ReplayMemory&& other) noexcept;
  ~ReplayMemory();

  // `slots` and `side` bytes behind each other, all of it touched so that it is there when it is needed.
  // ResourceExhausted with the figures where `available` bytes, or the system, do not suffice.
  static StatusOr<ReplayMemory> Make(uint64_t slots, uint64_t side, uint64_t available);

  // The slots in a file of that size instead, which is created, or taken over where it is of the same
  // `layout`. The file is memory only: what a replay holds survives in its checkpoint. Its blocks on the disk
  // are taken now, and a lock is held, so no write fails later for want of room. ResourceExhausted where the
  // disk is full; InvalidArgument for a file of something else or of another layout; FailedPrecondition for
  // one of a later version; DataLoss for one that was cut short or damaged; Aborted while another process
  // uses it; else what the system says of the path. A file that was not there before is removed again with
  // this, unless Keep was called: a start that is refused leaves nothing.
  static StatusOr<ReplayMemory> MapFile(const std::string& path, const std::string& layout, uint64_t slots,
                                        uint64_t side, uint64_t available);

  void Keep() { made_.clear(); }

  std::byte* slots() const { return slots_; }
  std::byte* side() const { return side_; }

 private:
  std::byte* slots_ = nullptr;
  std::byte* side_ = nullptr;
  std::byte* mapped_ = nullptr;
  size_t mapped_bytes_ = 0;
  std::byte* file_ = nullptr;  // the whole file, its head included
  size_t file_bytes_ = 0;
  int file_lock_ = -1;
  std::string made_;  // the path of a file that goes with this; empty: none
};

}  // namespace millrace
