// Measures a run's gradient steps at several batch sizes: its own networks and learner, on steps of its own
// environment. Owner: `millrace tune`; called from one thread, it spreads its work over the ThreadPool.
// Station: train_step, alone.
//
// Only the learner's updates are timed. Learning rates are 0, so that the weights stand and every size works
// on the same numbers; no arithmetic is saved by that. Nothing is written.
//   ppo: one rollout of the run's size, trained on again and again.
//   sac: a replay that is filled first, with random actions; then as many gradient steps an update as the
//        run takes, but one at least and 16 at most, each update with its own new steps.
// Sizes are gone through several times, so that a busy moment of the machine does not fall on one of them
// alone, and what the fastest quarter of the measurements reaches counts: other work only makes them slower.
#pragma once

#include <vector>

#include "cli/tune.h"
#include "common/options.h"
#include "common/status.h"
#include "kernels/core/thread_pool.h"

namespace millrace {

// `sizes` rising, each valid for these options; about `seconds` are timed for each. Errors are those of the
// environment and of the learner, named by the size.
StatusOr<std::vector<TunedSize>> MeasureSizes(const RunOptions& options, const std::vector<uint32_t>& sizes,
                                              double seconds, ThreadPool& threads);

}  // namespace millrace
