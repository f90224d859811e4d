// How the rows of a run are cut into row groups: what one thread steps and infers at a time, and what a
// segment holds. A function of the settings alone, so that every process cuts alike. Any thread.
#pragma once

#include <vector>

namespace millrace {

// Rows of each group for `rows` in all. `wanted` 0: chosen from rows alone.
std::vector<int> GroupRows(int rows, int wanted);

}  // namespace millrace
