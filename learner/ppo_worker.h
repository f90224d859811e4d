// What one thread of PpoLearner needs for a block of rows. Private to the learner's ppo*.cc. Owner:
// PpoLearner; the thread that runs a task has it for that long.
#pragma once

#include "learner/ppo.h"

namespace millrace {

// Rows that go through forward, loss and backward together, in a core's caches.
inline constexpr int kPpoBlockRows = 64;

struct PpoLearner::Worker {
  Worker(const ActorCritic& net, const EnvSpec& spec)
      : workspace(net, kPpoBlockRows), block(spec, kPpoBlockRows) {}
  // Of such a worker.
  static uint64_t Bytes(const ActorCritic& net, const EnvSpec& spec) {
    return sizeof(Worker) + ActorCritic::Workspace::Bytes(net, kPpoBlockRows) +
           SampleBlock::Bytes(spec, kPpoBlockRows);
  }
  ActorCritic::Workspace workspace;
  SampleBlock block;
};

}  // namespace millrace
