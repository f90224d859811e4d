#include "common/row_groups.h"

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {
constexpr int kMaxGroupRows = 64;  // observations and activations of a group stay in a core's caches
constexpr int kMinGroupRows = 8;   // fewer would leave vector lanes empty
constexpr int kGroups = 8;         // so many where rows allow, for as many threads

// At least two groups, so that two threads have work; never a function of the threads that there are.
int GroupSize(int rows) {
  return std::min(std::clamp(rows / kGroups, kMinGroupRows, kMaxGroupRows), std::max(1, (rows + 1) / 2));
}
}  // namespace

std::vector<int> GroupRows(int rows, int wanted) {
  const int size = wanted > 0 ? wanted : GroupSize(rows);
  std::vector<int> groups;
  for (int left = rows; left > 0; left -= size) groups.push_back(std::min(size, left));
  return groups;
}

uint64_t KnownRows(const RunOptions& options) {
  const bool each = options.mode == RunMode::kAsync && options.actors.processes > 1;
  return uint64_t{options.env.rows} * (each ? options.actors.processes : 1);
}

size_t MostSegments(const RunOptions& options) {
  const EnvSection& env = options.env;
  const size_t groups = GroupRows(static_cast<int>(env.rows), static_cast<int>(env.group_rows)).size();
  if (!IsSac(options) || options.mode != RunMode::kAsync || options.sac.batch_max == 0) return groups;
  const double inserts = static_cast<double>(env.rows) * options.sac.horizon;  // of one segment of each group
  const double due = inserts * UpdatesPerStep(options) * options.sac.batch_size;
  constexpr double kExact = 1 - 1e-12;  // a ratio's rounding makes no segment due
  const double segments = options.sac.batch_max * static_cast<double>(groups) / due;
  return std::max(groups, static_cast<size_t>(std::ceil(segments * kExact)));
}

}  // namespace millrace
