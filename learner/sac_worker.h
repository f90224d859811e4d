// What one thread of SacStep needs for a block of rows that it goes forward through only. Private to the
// learner's sac_step*.cc. Owner: SacStep; the thread that runs a task has it for that long.
#pragma once

#include "learner/sac_step.h"

namespace millrace {

// Rows that go through the networks together, in a core's caches. No more than a tile of the ops (kSacRows).
inline constexpr int kSacBlockRows = 64;

struct SacStep::Worker {
  Worker(const Mlp& actor, const Mlp& critics)
      : policy(actor, kSacBlockRows, Mlp::Keep::kOutputs),
        target(critics, kSacBlockRows, Mlp::Keep::kOutputs) {}
  Mlp::Workspace policy, target;
};

}  // namespace millrace
