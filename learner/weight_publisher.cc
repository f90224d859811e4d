#include "learner/weight_publisher.h"

#include <xxhash.h>

#include <cstring>

namespace millrace {

// A count of 1 is ours and can't rise again, for nobody else has one to copy. The count itself is read
// without ordering; taking and dropping a reference orders what its last reader did before what we write
// next.
std::shared_ptr<WeightsBlob> WeightPublisher::FreeBuffer() {
  for (const std::shared_ptr<WeightsBlob>& buffer : buffers_) {
    if (buffer.use_count() != 1) continue;
    std::shared_ptr<WeightsBlob>(buffer).reset();
    return buffer;
  }
  buffers_.push_back(std::make_shared<WeightsBlob>());
  return buffers_.back();
}

WeightsPtr WeightPublisher::Pack(const PolicyView& policy) {
  const std::shared_ptr<WeightsBlob> blob = FreeBuffer();
  const size_t parameters = policy.net->parameter_floats() * sizeof(float);
  const size_t width = policy.encoder->normalizes() ? policy.encoder->mean().size() : 0;
  const size_t statistics = width * sizeof(double);
  blob->bytes.resize(parameters + 2 * statistics);
  std::byte* out = blob->bytes.data();
  std::memcpy(out, policy.parameters, parameters);
  if (statistics > 0) {
    std::memcpy(out + parameters, policy.encoder->mean().data(), statistics);
    std::memcpy(out + parameters + statistics, policy.encoder->variance().data(), statistics);
  }
  blob->version = policy.version;
  blob->checksum = WeightsChecksum(blob->version, blob->bytes.data(), blob->bytes.size());
  return blob;
}

}  // namespace millrace
