#include "common/weights.h"

#include <xxhash.h>

namespace millrace {

uint64_t WeightsChecksum(uint64_t version, const void* bytes, size_t size) {
  return XXH3_64bits_withSeed(bytes, size, version);
}

}  // namespace millrace
