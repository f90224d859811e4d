// AlignedBytes: zeroed memory of a fixed size, aligned as segments want it. Owner: who made it; movable, and
// then no address changes. Station: under rollout_buffer and the transports.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "common/status.h"
#include "common/text.h"

namespace millrace {

class AlignedBytes {
 public:
  static constexpr size_t kAlignment = 64;

  AlignedBytes() = default;
  // ResourceExhausted with the size when there is not that much memory.
  static StatusOr<AlignedBytes> Make(size_t bytes) {
    const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    AlignedBytes made;
    made.memory_.reset(rounded < bytes ? nullptr
                                       : static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded)));
    if (made.memory_ == nullptr) {
      return absl::ResourceExhaustedError(Cat("there is no memory for ", bytes, " bytes"));
    }
    std::memset(made.memory_.get(), 0, rounded);
    made.size_ = bytes;
    return made;
  }

  std::byte* data() const { return memory_.get(); }
  size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  size_t size_ = 0;
};

}  // namespace millrace
