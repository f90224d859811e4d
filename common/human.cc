#include "common/human.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_format.h"

namespace millrace {

void AppendCount(std::string& out, double count) {
  if (!std::isfinite(count)) {
    out += '-';
    return;
  }
  // From 999.5 on a value rounds into the next unit.
  const char* unit = "";
  for (const char* next : {"k", "M", "G", "T"}) {
    if (std::abs(count) < 999.5) break;
    count /= 1000;
    unit = next;
  }
  const double size = std::abs(count);
  const int digits = *unit == '\0' || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  absl::StrAppendFormat(&out, "%.*f%s", digits, count, unit);
}

void AppendDuration(std::string& out, double seconds) {
  if (!std::isfinite(seconds)) {
    out += '-';
    return;
  }
  seconds = std::clamp(seconds, 0.0, 1e12);
  if (seconds < 9.995) {
    absl::StrAppendFormat(&out, "%.2gs", seconds < 0.01 ? 0.0 : seconds);
    return;
  }
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) {
    absl::StrAppendFormat(&out, "%ds", whole);
  } else if (whole < 3600) {
    absl::StrAppendFormat(&out, "%dm%02ds", whole / 60, whole % 60);
  } else if (whole < 86400) {
    absl::StrAppendFormat(&out, "%dh%02dm", whole / 3600, whole / 60 % 60);
  } else {
    absl::StrAppendFormat(&out, "%dd%02dh", whole / 86400, whole / 3600 % 24);
  }
}

void AppendReal(std::string& out, double value) {
  if (std::isfinite(value)) {
    absl::StrAppendFormat(&out, "%.4g", value);
  } else {
    out += '-';
  }
}

std::string FormatCount(double count) {
  std::string out;
  AppendCount(out, count);
  return out;
}
std::string FormatDuration(double seconds) {
  std::string out;
  AppendDuration(out, seconds);
  return out;
}
std::string FormatReal(double value) {
  std::string out;
  AppendReal(out, value);
  return out;
}

}  // namespace millrace
