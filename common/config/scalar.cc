#include "common/config/scalar.h"

#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace millrace {
namespace {

Status Expected(absl::string_view what, absl::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat("expected ", what, ", got ", Quoted(text)));
}

// Removes `_` between digits; false where one stands elsewhere or where a character is neither.
bool StripDigits(absl::string_view text, std::string* digits) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (absl::ascii_isdigit(text[i])) {
      digits->push_back(text[i]);
    } else if (text[i] != '_' || i == 0 || i + 1 == text.size() || text[i - 1] == '_') {
      return false;
    }
  }
  return !digits->empty();
}

// `2.5e3`: digits, an optional fraction and a positive exponent whose value is whole and exact in a double.
bool WholeFromExponent(absl::string_view text, absl::int128* value) {
  constexpr double kExact = 9007199254740992.0;  // 2^53
  double real = 0;
  if (text.find_first_of("eE") == absl::string_view::npos || !absl::ascii_isdigit(text.front())) return false;
  if (!absl::SimpleAtod(text, &real) || std::trunc(real) != real || std::fabs(real) > kExact) return false;
  *value = static_cast<int64_t>(real);
  return true;
}

}  // namespace

StatusOr<absl::int128> ParseWhole(absl::string_view text) {
  absl::string_view body = text;
  const bool negative = absl::StartsWith(body, "-");
  if (negative || absl::StartsWith(body, "+")) body.remove_prefix(1);
  absl::int128 value = 0;
  std::string digits;
  if (body.empty()) return Expected("a whole number", text);
  if (!StripDigits(body, &digits)) {
    if (!WholeFromExponent(body, &value)) return Expected("a whole number", text);
  } else if (!absl::SimpleAtoi(digits, &value)) {
    value = absl::Int128Max();  // too long for any type: out of every range
  }
  return negative ? -value : value;
}

StatusOr<double> ParseReal(absl::string_view text) {
  const std::string lower = absl::AsciiStrToLower(text);
  for (absl::string_view name : {".inf", "-.inf", "+.inf", ".nan"}) {
    if (lower == name) return Expected("a finite number", text);
  }
  double value = 0;
  const bool spaced = text.empty() || absl::ascii_isspace(text.front()) || absl::ascii_isspace(text.back());
  if (spaced || !absl::SimpleAtod(text, &value)) return Expected("a number", text);
  if (!std::isfinite(value)) return Expected("a finite number", text);
  return value;
}

StatusOr<bool> ParseBool(absl::string_view text) {
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  return Expected("true or false", text);
}

std::string Quoted(absl::string_view text) {
  constexpr size_t kLongest = 40;
  if (text.size() <= kLongest) return absl::StrCat("\"", absl::Utf8SafeCHexEscape(text), "\"");
  while (!text.empty() && text.size() > kLongest) text.remove_suffix(1);
  while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0x80) != 0) text.remove_suffix(1);
  return absl::StrCat("\"", absl::Utf8SafeCHexEscape(text), "...\"");
}

}  // namespace millrace
