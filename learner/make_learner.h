// MakeLearner: the learner of the algorithm that the options name. Station: train_step. Called once a run,
// and by evaluation.
#pragma once

#include <memory>
#include <vector>

#include "kernels/core/thread_pool.h"
#include "learner/learner.h"

namespace millrace {

// group_rows: the rows of each row group, of the whole run in sync mode, of one actor in async mode; a batch
// has at most so many segments. ResourceExhausted when memory does not suffice, InvalidArgument for a network
// of 2^31 parameters or more.
StatusOr<std::unique_ptr<Learner>> MakeLearner(const RunOptions& options, const EnvSpec& spec,
                                               const std::vector<int>& group_rows, ThreadPool& threads);

}  // namespace millrace
