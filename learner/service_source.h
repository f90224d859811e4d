// ServiceSource: batches from actors behind the trajectory service. Station: segment_queue. Owner: the
// learner's session; called from the learner's thread, but for Stop.
#pragma once

#include "learner/rollout_source.h"
#include "learner/trajectory_service.h"
#include "learner/weight_publisher.h"

namespace millrace {

class ServiceSource : public RolloutSource {
 public:
  // Borrows the service.
  explicit ServiceSource(TrajectoryService& service) : service_(service) {}

  // The batch is valid until the next Collect or SaveRows.
  StatusOr<Rollout> Collect(const PolicyView& policy) override;
  RowStates SaveRows() const override;
  Status LoadRows(const RowStates& states) override { return service_.LoadRows(states); }
  void Stop() override { service_.Interrupt(); }

  // Of the last Collect: who sent each segment, and where it began.
  const TrajectoryService::Batch& batch() const { return batch_; }

 private:
  TrajectoryService& service_;
  WeightPublisher publisher_;
  TrajectoryService::Batch batch_;
};

}  // namespace millrace
