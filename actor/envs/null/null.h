// "Null": an environment of chosen shapes that costs next to nothing, for benchmarks of everything around it.
// An observation is a window of a small random pool that stays in the first-level cache; the window moves
// every step. Station: env_pool. One thread at a time steps a block.
//
// Settings (env.params):
//   obs              shape of the observation, 118 or 84x84x4 (default 118)
//   u8               true: bytes instead of floats (default false)
//   actions          discrete actions (default 3)
//   box              instead of `actions`: dimensions of a Box in [-1, 1]
//   episode_length   steps until an episode terminates; 0: it never does (default 1000)
//   wait_us          microseconds for which a step of a block waits without using the CPU (default 0)
#pragma once

#include <memory>

#include "actor/env.h"

namespace millrace {

// What SaveRow writes.
struct NullState {
  uint64_t window;  // where in the pool the observation begins, not yet wrapped
  uint64_t steps;   // of this episode
};

StatusOr<std::unique_ptr<Env>> MakeNull(int rows, const EnvParams& params);

}  // namespace millrace
