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

  std::byte* slots() const { return slots_; }
  std::byte* side() const { return side_; }

 private:
  std::byte* slots_ = nullptr;
  std::byte* side_ = nullptr;
  std::byte* mapped_ = nullptr;
  size_t mapped_bytes_ = 0;
};

}  // namespace millrace
