// WeightPublisher: packs what an actor acts by into the blob that travels (common/weights.h). Station:
// weight_publisher. Owner: the learner's loop; one thread calls. What it returns may be read and let go of in
// any thread, and outlive the publisher.
//
// Buffers are used again once all readers have let go of them, so there are as many as versions are held at a
// time, and the steady state allocates nothing.
#pragma once

#include <memory>
#include <vector>

#include "common/weights.h"
#include "kernels/net/policy_view.h"

namespace millrace {

class WeightPublisher {
 public:
  // The policy's parameters and, where it normalises observations, their statistics.
  WeightsPtr Pack(const PolicyView& policy);

  size_t buffers() const { return buffers_.size(); }

 private:
  std::shared_ptr<WeightsBlob> FreeBuffer();

  std::vector<std::shared_ptr<WeightsBlob>> buffers_;
};

}  // namespace millrace
