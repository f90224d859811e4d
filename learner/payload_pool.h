// PayloadPool: memory for segments that arrive without any of their own (gRPC, in process): blocks of one
// size, 64-byte aligned, made when first needed and used again. Station: trajectory_service. Not thread-safe;
// the service's lock guards it.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <vector>

namespace millrace {

class PayloadPool {
 public:
  PayloadPool(size_t block_bytes, size_t max_blocks)
      : bytes_((block_bytes + 63) / 64 * 64), max_(max_blocks) {}

  // Null when all are in use, or when there is no memory.
  std::byte* Get() {
    if (free_.empty() && blocks_.size() < max_) {
      auto* block = static_cast<std::byte*>(std::aligned_alloc(64, bytes_));
      if (block == nullptr) return nullptr;
      blocks_.emplace_back(block);
      free_.push_back(block);
    }
    if (free_.empty()) return nullptr;
    std::byte* block = free_.back();
    free_.pop_back();
    return block;
  }
  void Put(std::byte* block) { free_.push_back(block); }
  size_t bytes() const { return blocks_.size() * bytes_; }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  size_t bytes_, max_;
  std::vector<std::unique_ptr<std::byte, Free>> blocks_;
  std::vector<std::byte*> free_;
};

}  // namespace millrace
