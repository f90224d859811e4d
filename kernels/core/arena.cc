#include "kernels/core/arena.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace millrace {
namespace {
constexpr size_t kAlignment = 64;
constexpr size_t kAlignFloats = kAlignment / sizeof(float);
constexpr size_t kMostFloats = SIZE_MAX / 2 / sizeof(float);
}  // namespace

void Arena::Free::operator()(float* p) const {
  std::free(p);
}

Arena::Handle Arena::Add(std::string name, size_t elements) {
  MILL_CHECK(!committed());
  tensors_.push_back({std::move(name), elements, floats_});
  if (elements > kMostFloats - floats_ - kAlignFloats) {
    overflow_ = true;
  } else {
    floats_ += (elements + kAlignFloats - 1) / kAlignFloats * kAlignFloats;
  }
  return {static_cast<int>(tensors_.size()) - 1};
}

Status Arena::Commit() {
  MILL_CHECK(!committed());
  const size_t bytes = std::max(this->bytes(), kAlignment);
  float* memory = overflow_ ? nullptr : static_cast<float*>(std::aligned_alloc(kAlignment, bytes));
  if (memory == nullptr) {
    const auto largest =
        std::max_element(tensors_.begin(), tensors_.end(),
                         [](const Tensor& a, const Tensor& b) { return a.elements < b.elements; });
    return absl::ResourceExhaustedError(absl::StrCat("no memory for ", overflow_ ? "more than " : "", bytes,
                                                     " bytes of tensors, the largest being ", largest->name,
                                                     " with ", largest->elements, " floats"));
  }
  std::memset(memory, 0, bytes);
  memory_.reset(memory);
  return absl::OkStatus();
}

float* Arena::At(Handle handle) const {
  MILL_CHECK(committed() && handle.index >= 0 && static_cast<size_t>(handle.index) < tensors_.size());
  return memory_.get() + tensors_[static_cast<size_t>(handle.index)].offset;
}

}  // namespace millrace
