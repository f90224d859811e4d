// Status: how fallible functions of Millrace report an error, and the two macros that pass one on.
// CHECK-like macros are for our own bugs only; whatever a user or a machine can cause is a Status.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace millrace {
using absl::Status;
using absl::StatusOr;
}  // namespace millrace

#define MILL_CONCAT_INNER(a, b) a##b
#define MILL_CONCAT(a, b) MILL_CONCAT_INNER(a, b)

// Returns the status from the enclosing function unless it is OK.
#define MILL_RETURN_IF_ERROR(expr)                                                  \
  do {                                                                              \
    if (::absl::Status mill_status = (expr); !mill_status.ok()) return mill_status; \
  } while (false)

// MILL_ASSIGN_OR_RETURN(auto x, F()): x from a StatusOr, or the error from the enclosing function.
#define MILL_ASSIGN_OR_RETURN(lhs, expr) \
  MILL_ASSIGN_OR_RETURN_IMPL(MILL_CONCAT(mill_or_, __LINE__), lhs, expr)
#define MILL_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                               \
  if (!tmp.ok()) return std::move(tmp).status();   \
  lhs = *std::move(tmp)

// Ends the process where an invariant of our own code is broken.
#define MILL_CHECK(condition)                                                                \
  do {                                                                                       \
    if (!(condition)) {                                                                      \
      std::fprintf(stderr, "%s:%d: invariant broken: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                          \
    }                                                                                        \
  } while (false)
