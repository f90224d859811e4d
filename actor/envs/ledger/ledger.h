// "Ledger": an environment whose rewards count its transitions, for fault tests. The k-th transition that a
// row has ever made (k = 1, 2, 3 ...) has reward k, whatever the actions, so the rewards of a segment say
// exactly which transitions it holds: none lost, none twice. The count goes on over the ends of episodes and
// is part of the row's saved state. Station: env_pool. One thread at a time steps a block.
//
// A segment's rewards are float32: k is exact up to 2^24 = 16,777,216 transitions a row; beyond, neighbours
// round to the same number. With env.action_repeat a step's reward is the sum over its repeats.
//
// The observation is (k mod 1024 / 1024, 1) and nothing is random: all rows are alike.
//
// Settings (env.params):
//   episode_length   steps until an episode terminates; 0: it never does (default 50)
#pragma once

#include <memory>

#include "actor/env.h"

namespace millrace {

// What SaveRow writes.
struct LedgerState {
  uint64_t transitions;  // ever made by this row
  uint64_t steps;        // of this episode
};

StatusOr<std::unique_ptr<Env>> MakeLedger(int rows, const EnvParams& params);

}  // namespace millrace
