// `millrace bench transport`: the way between actors and the learner, each work beside its anchor, measured
// in the same run. Owner: cli/bench.cc.
#pragma once

#include <vector>

#include "cli/bench.h"
#include "common/status.h"

namespace millrace {

std::vector<BenchWork> TransportWorks();
// `work` is one of those names.
StatusOr<BenchResult> RunTransport(const std::string& work, const BenchOptions& options);

}  // namespace millrace
