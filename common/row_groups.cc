#include "common/row_groups.h"

#include <algorithm>

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

}  // namespace millrace
