#include "common/nearest.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace millrace {
namespace {

// How many edits still count as a slip of the fingers between names of which the longer has `length`
// characters.
int NearEnough(size_t length) {
  const int third = static_cast<int>(length) / 3;
  const int half = static_cast<int>(length) / 2;
  return std::max(third, std::min(2, half));
}

bool Same(char a, char b) {
  return absl::ascii_tolower(a) == absl::ascii_tolower(b);
}

bool Begins(std::string_view name, std::string_view start) {
  return !start.empty() && start.size() <= name.size() &&
         std::equal(start.begin(), start.end(), name.begin(), Same);
}

}  // namespace

int EditDistance(std::string_view a, std::string_view b) {
  const size_t columns = b.size() + 1;
  // Three rows of the table of distances between prefixes: two back (for swaps), the last, the current.
  std::vector<int> back(columns), last(columns), now(columns);
  for (size_t j = 0; j < columns; ++j) last[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = static_cast<int>(i);
    for (size_t j = 1; j < columns; ++j) {
      const int substituted = last[j - 1] + (Same(a[i - 1], b[j - 1]) ? 0 : 1);
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, substituted});
      const bool swapped = i > 1 && j > 1 && Same(a[i - 1], b[j - 2]) && Same(a[i - 2], b[j - 1]);
      if (swapped) now[j] = std::min(now[j], back[j - 2] + 1);
    }
    back.swap(last);
    last.swap(now);
  }
  return last[b.size()];
}

std::string NearestName(std::string_view name, const std::vector<std::string>& names) {
  std::string nearest;
  int least = 0;
  for (const std::string& candidate : names) {
    const int distance = EditDistance(name, candidate);
    if (!Begins(candidate, name) && distance > NearEnough(std::max(name.size(), candidate.size()))) continue;
    if (nearest.empty() || distance < least) {
      nearest = candidate;
      least = distance;
    }
  }
  return nearest;
}

std::string DidYouMean(std::string_view name, const std::vector<std::string>& names,
                       std::string_view prefix) {
  const std::string nearest = NearestName(name, names);
  if (nearest.empty()) return "";
  return std::string("; did you mean ").append(prefix).append(nearest).append("?");
}

}  // namespace millrace
