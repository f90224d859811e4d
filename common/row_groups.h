// How the rows of a run are cut into row groups: what one thread steps and infers at a time, and what a
// segment holds; and how many segments an update takes. A function of the settings alone, so that every
// process cuts alike. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/options.h"

namespace millrace {

// Rows of each group for `rows` in all. `wanted` 0: chosen from rows alone.
std::vector<int> GroupRows(int rows, int wanted);

// Rows of all actors, as far as the settings tell: in async mode env.rows is each one's, and more may come.
uint64_t KnownRows(const RunOptions& options);

// Segments that one update takes at most: one of each group; with sac.batch_max, where that is more, as many
// as make one gradient step of this size due. Of settings that are valid.
size_t MostSegments(const RunOptions& options);

}  // namespace millrace
