// ActorCrew: the worker threads of an actor with all that they share - environments, weights, leases,
// segments on their way - for one run of one learner process. It outlives connections, so that work goes on
// while one is made anew. Station: all of the actor's, from policy_runner to trajectory_writer. Owner:
// actor_loop.
//
// Threads: everything here is called from the actor loop's thread; workers are its own. They wait on
// condition variables and never spin: several actors share a machine.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "actor/lease_book.h"
#include "actor/trajectory_writer.h"
#include "actor/transport.h"
#include "actor/weight_subscriber.h"
#include "common/options.h"

namespace millrace {

class ActorCrew {
 public:
  // Errors as MakeEnv's.
  static StatusOr<std::unique_ptr<ActorCrew>> Make(const RunOptions& options, int threads);
  ~ActorCrew();

  const SegmentLayout& layout() const { return layout_; }  // of the run's first row group

  // Sends on this connection from now on; first what the learner has not acknowledged.
  void Attach(ActorTransport* transport);
  // The connection is gone; it was closed before this, and is destroyed after it.
  void Detach();

  // Lease, Grant, Ack or weights. DataLoss: the connection gave something impossible.
  Status Receive(const LearnerMessage& message);

  // Workers take nothing new.
  void Drain() { book_.Drain(); }
  // Nothing is underway and everything is acknowledged.
  bool Idle() const { return book_.busy() == 0 && writer_.unacknowledged() == 0; }

  // Gives up what is underway and ends the workers, before the transport of Attach is destroyed where
  // segments lie in its memory. Called by the destructor.
  void Stop();

  // What has gone wrong in a worker; Ok: nothing.
  Status failure() const;
  // Adds this crew's totals.
  void AddStats(ActorStats* stats) const;

 private:
  // Written by one thread and read by others, a line each, so that counters of different threads never share
  // one.
  struct alignas(64) Counters {
    std::atomic<uint64_t> steps{0}, segments{0};
    std::atomic<uint64_t> env_ns{0}, inference_ns{0}, weights_ns{0}, credit_ns{0}, send_ns{0};
  };

  ActorCrew(const RunOptions& options, const EnvSpec& spec, const SegmentLayout& layout);
  void Work(Counters& counters);
  Status Act(const LeaseBook::Task& task, SegmentCollector& collector, WeightSubscriber::Reader& reader,
             Counters& counters);
  Status BeginRows(const LeaseBook::Task& task);
  Status OnGrant(const Grant& grant);
  Status OnWeights(const WeightsChunk& chunk);
  void Deliver(TrajectoryWriter::Parcel* parcel);
  void DeliverParked();
  void Fail(const Status& status);

  const RunOptions options_;
  const EnvSpec spec_;
  const SegmentLayout layout_;
  WeightSubscriber subscriber_;
  LeaseBook book_;
  TrajectoryWriter writer_;
  ActorTransport* transport_ = nullptr;  // of the loop's thread
  std::vector<std::byte*> slots_;        // scratch of OnGrant

  // Segments that were finished while it was not known whether their lease still stands.
  mutable Mutex mutex_;
  std::vector<TrajectoryWriter::Parcel*> parked_ MILL_GUARDED_BY(mutex_);
  Status failure_ MILL_GUARDED_BY(mutex_);

  std::atomic<bool> abort_{false};
  std::vector<std::unique_ptr<Counters>> counters_;  // one a thread
  std::vector<std::thread> threads_;
};

}  // namespace millrace
