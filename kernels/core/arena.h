// Arena: named float tensors that are registered at start and then share one allocation, 64-byte aligned and
// zeroed. Pointers never change after Commit. Owner: one (a learner, a worker); registered and committed by
// one thread, then only a set of addresses that any thread may use. Station: under policy_runner and
// train_step.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "common/status.h"

namespace millrace {

class Arena {
 public:
  // Names a tensor of one arena.
  struct Handle {
    int index = -1;
  };
  struct Tensor {
    std::string name;
    size_t elements;
    size_t offset;  // floats from the arena's start; a multiple of 16
  };

  // Registers a tensor; before Commit. A tensor may have no elements.
  Handle Add(std::string name, size_t elements);

  // Allocates everything. ResourceExhausted, naming the bytes and the largest tensor, when there is not that
  // much memory; the arena may then be dropped or committed again.
  [[nodiscard]] Status Commit();

  // After Commit.
  float* At(Handle handle) const;
  size_t elements(Handle handle) const { return tensors_[static_cast<size_t>(handle.index)].elements; }

  const std::vector<Tensor>& tensors() const { return tensors_; }
  size_t bytes() const { return floats_ * sizeof(float); }
  bool committed() const { return memory_ != nullptr; }

 private:
  struct Free {
    void operator()(float* p) const;
  };
  std::vector<Tensor> tensors_;
  size_t floats_ = 0;
  bool overflow_ = false;  // the sum of sizes does not fit size_t
  std::unique_ptr<float, Free> memory_;
};

}  // namespace millrace
