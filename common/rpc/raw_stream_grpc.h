// The anchor of `bench transport`: what gRPC itself carries over loopback when nothing is done with the
// bytes. One stream of messages of one size, sent as slices of memory that stays, received and thrown away.
// Owner: the benchmark.
#pragma once

#include <cstddef>

#include "common/status.h"

namespace millrace {

// Bytes a second, measured for about `seconds` after a short warm-up.
StatusOr<double> RawGrpcRate(size_t message_bytes, double seconds);

}  // namespace millrace
