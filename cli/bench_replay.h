// The replay's works of `millrace bench`: adding, gathering uniform batches, and prioritised draws with their
// updates, of 17 observations and 6 actions, on one thread as a learner's caller has it.
#pragma once

#include <string>
#include <vector>

#include "cli/bench.h"

namespace millrace {

std::vector<BenchWork> ReplayWorks();
// `work`: a name of ReplayWorks(). ResourceExhausted where the replay finds no memory.
StatusOr<BenchResult> RunReplay(const std::string& work, const BenchOptions& options);

}  // namespace millrace
