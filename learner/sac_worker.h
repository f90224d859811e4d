// What one thread of SacStep needs for a block of rows beside what is kept for the whole batch. Private to
// the learner's sac_step*.cc. Owner: SacStep; the thread that runs a task has it for that long.
#pragma once

#include <optional>
#include <vector>

#include "learner/sac_step.h"

namespace millrace {

// Rows that go through the networks together, in a core's caches. No more than a tile of the ops (kSacRows).
inline constexpr int kSacBlockRows = 64;

struct SacStep::Worker {
  Worker(const Mlp& actor, const Mlp& critics, int action_dims, bool only_least)
      : policy(actor, kSacBlockRows, Mlp::Keep::kOutputs),
        target(critics, kSacBlockRows, Mlp::Keep::kOutputs),
        daction(static_cast<size_t>(kSacBlockRows) * static_cast<size_t>(action_dims)) {
    if (only_least) least.emplace(critics, kSacBlockRows, Mlp::Keep::kActivations);
  }
  // Of such a worker.
  static uint64_t Bytes(const Mlp& actor, const Mlp& critics, int action_dims, bool only_least) {
    const auto of = [](const Mlp& net, Mlp::Keep keep) {
      return Mlp::Workspace::Bytes(net, kSacBlockRows, keep);
    };
    return sizeof(Worker) + of(actor, Mlp::Keep::kOutputs) + of(critics, Mlp::Keep::kOutputs) +
           (only_least ? of(critics, Mlp::Keep::kActivations) : 0) +
           sizeof(float) * static_cast<size_t>(kSacBlockRows) * static_cast<size_t>(action_dims);
  }
  Mlp::Workspace policy, target;        // forward only
  std::optional<Mlp::Workspace> least;  // rows whose least critic is the same one; see ActionGradients
  std::vector<float> daction;           // [kSacBlockRows, action_dims] of these rows
  float td_abs[kSacBlockRows];          // of one critic; see CriticUpdate
};

}  // namespace millrace
