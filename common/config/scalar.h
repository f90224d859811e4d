// Scalars as people write them in files and flags. Plain functions; any thread. The error is what the text
// should have been ("expected a whole number, got ..."), the caller puts the place and the key before it.
#pragma once

#include <string>

#include "absl/numeric/int128.h"
#include "absl/strings/string_view.h"
#include "common/status.h"

namespace millrace {

// Decimal digits with an optional sign; `1_000_000` and `1e6` are whole too. Wide enough to hold every
// integer type, so that the caller can tell "out of range" from "not a number".
StatusOr<absl::int128> ParseWhole(absl::string_view text);

// Finite numbers only.
StatusOr<double> ParseReal(absl::string_view text);

// `true` or `false`, in YAML's three spellings of each.
StatusOr<bool> ParseBool(absl::string_view text);

// What to quote in a message: at most 40 characters, in double quotes, control characters escaped.
std::string Quoted(absl::string_view text);

}  // namespace millrace
