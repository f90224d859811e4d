// The nearest valid name to one that a user mistyped, for "did you mean ...?" in every message about an
// unknown key, id or value. Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace millrace {

// The least number of insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`, no
// part edited twice (optimal string alignment). ASCII letters compare without case.
int EditDistance(std::string_view a, std::string_view b);

// The name with the least distance to `name`, the first of equals; a name that begins with `name` counts as
// near too. Empty when none is near: further than a third of the longer one's length, two edits always being
// allowed while they leave half of the name as it was.
std::string NearestName(std::string_view name, const std::vector<std::string>& names);

// "; did you mean X?" for the nearest name, with `prefix` before it, or "" when none is near: to be appended
// to a message.
std::string DidYouMean(std::string_view name, const std::vector<std::string>& names,
                       std::string_view prefix = "");

}  // namespace millrace
