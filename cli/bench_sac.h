// SAC's works of `millrace bench`: gradient steps of the learner as it trains, batches gathered from a full
// replay beside them.
#pragma once

#include <string>
#include <vector>

#include "cli/bench.h"
#include "kernels/core/thread_pool.h"

namespace millrace {

std::vector<BenchWork> SacWorks();
bool IsSacWork(const std::string& work);
// `work`: a name of SacWorks(). `peak` measures the GFLOP/s of all threads' FMAs. ResourceExhausted where the
// replay finds no memory.
StatusOr<BenchResult> RunSac(const std::string& work, const BenchOptions& options, ThreadPool& threads,
                             double (*peak)(ThreadPool&));

}  // namespace millrace
