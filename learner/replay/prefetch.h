// PrefetchBytes: starts the way of a stretch of memory to the core. Station: replay. No state; any thread.
//
// Inlined by force, and so must be what only calls these: GCC takes a function that does nothing but prefetch
// for one without effect, and drops its calls.
#pragma once

#include <cstddef>

#define MILL_PREFETCHES inline __attribute__((always_inline))

namespace millrace {

// At most a kilobyte: of more the processor sees itself that it comes in order.
constexpr size_t kMostPrefetched = 1024;

// kWrite: 1 to write to it, 0 to read it.
template <int kWrite = 0>
MILL_PREFETCHES void PrefetchBytes(const std::byte* at, size_t bytes) {
  constexpr size_t kLine = 64;
  const size_t most = bytes < kMostPrefetched ? bytes : kMostPrefetched;
  for (size_t i = 0; i < most; i += kLine) __builtin_prefetch(at + i, kWrite);
  __builtin_prefetch(at + most - 1, kWrite);
}

}  // namespace millrace
