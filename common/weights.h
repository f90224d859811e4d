// WeightsBlob: one version of what an actor needs to act - the parameters and the statistics that
// observations are normalised by - as one run of bytes, which is what travels and what the checksum covers.
// Station: weight_publisher ==> weight_subscriber. Immutable once published; shared between threads and
// sessions, and freed with the last of them.
//
// Layout: parameters [P] f32, then, where observations are normalised, mean [D] f64 and variance [D] f64.
// The numbers P and D follow from the configuration; a blob of another size is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace millrace {

struct WeightsBlob {
  uint64_t version = 0;   // updates behind these weights
  uint64_t checksum = 0;  // WeightsChecksum
  std::vector<std::byte> bytes;
};

// XXH3-64 of the bytes, seeded with the version: so it covers both.
uint64_t WeightsChecksum(uint64_t version, const void* bytes, size_t size);

using WeightsPtr = std::shared_ptr<const WeightsBlob>;

}  // namespace millrace
