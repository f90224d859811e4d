// Evaluation: a policy acts in environments of its own, deterministically, with frozen statistics. Used while
// training and by `millrace eval`. Called from one thread; it uses the ThreadPool, which must be idle.
#pragma once

#include <vector>

#include "common/options.h"
#include "common/status.h"
#include "kernels/core/thread_pool.h"
#include "kernels/net/policy_view.h"

namespace millrace {

struct EvalResult {
  std::vector<double> returns;  // an entry an episode, in row order; raw rewards
  std::vector<double> lengths;  // environment steps
  double return_mean = 0, return_std = 0, return_min = 0, return_max = 0, length_mean = 0;
};

// `episodes` episodes spread evenly over the rows, each row's first ones, so that short episodes are not
// preferred. Random numbers come from `seed`. DeadlineExceeded when a row's episodes do not end within a
// million steps.
StatusOr<EvalResult> Evaluate(const EnvSection& env, const PolicyView& policy, int episodes, uint64_t seed,
                              ThreadPool& threads, bool (*stop)() = nullptr);

}  // namespace millrace
