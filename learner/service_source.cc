#include "learner/service_source.h"

#include <limits>

namespace millrace {

StatusOr<Rollout> ServiceSource::Collect(const PolicyView& policy) {
  service_.Release();
  service_.Publish(publisher_.Pack(policy));
  MILL_ASSIGN_OR_RETURN(batch_, service_.Take());
  Rollout rollout;
  rollout.segments = batch_.segments;
  rollout.groups = batch_.groups;
  rollout.fault = batch_.fault;
  rollout.wait_seconds = batch_.wait_seconds;
  rollout.inference_seconds = std::numeric_limits<double>::quiet_NaN();
  return rollout;
}

RowStates ServiceSource::SaveRows() const {
  service_.Release();
  return service_.SaveRows();
}

}  // namespace millrace
