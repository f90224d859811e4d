// Replaces the program's operator new by one that counts what each thread allocates. For tests of "nothing is
// allocated in the steady state"; include it in exactly one .cc file of a test binary, for it defines the
// operators. The sanitizers bring operators of their own, so with them nothing is counted: such tests skip.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <new>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define MILL_COUNTS_ALLOCATIONS 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define MILL_COUNTS_ALLOCATIONS 0
#endif
#endif
#ifndef MILL_COUNTS_ALLOCATIONS
#define MILL_COUNTS_ALLOCATIONS 1
#endif

namespace millrace {
inline constexpr bool kCountsAllocations = MILL_COUNTS_ALLOCATIONS != 0;
inline thread_local uint64_t allocations_of_this_thread = 0;

inline void* CountedAllocation(std::size_t size, std::size_t alignment) {
  ++allocations_of_this_thread;
  // aligned_alloc wants a multiple of the alignment.
  void* memory = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  // The project is built to end, not to throw, where memory runs out.
  if (memory == nullptr) std::abort();
  return memory;
}
}  // namespace millrace

#if MILL_COUNTS_ALLOCATIONS
void* operator new(std::size_t size) {
  return millrace::CountedAllocation(size, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return millrace::CountedAllocation(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
#endif
