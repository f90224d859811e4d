// A run's status as people and programs read it: `millrace status` with and without --json. Pure functions,
// any thread. Station: behind the Status service, at the far end.
#pragma once

#include <string>

#include "common/run_status.h"

namespace millrace {

// Several lines, the last one with its newline. `unicode`: bars of blocks, else of ASCII.
std::string StatusText(const RunStatus& status, bool unicode);

// One object on one line, without a newline: the names of proto/millrace/v1/status.proto, numbers as numbers,
// null for what is not known.
std::string StatusJson(const RunStatus& status);

}  // namespace millrace
