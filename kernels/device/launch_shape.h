// LaunchShape: how a device runs an op's tiles. A plain value.
#pragma once

#include <cstddef>

namespace millrace {

struct LaunchShape {
  int tiles = 0;
  int blocks = 0;  // fewer than tiles: each block takes every blocks-th tile
  int threads = 0;
  size_t shared_bytes = 0;
};

}  // namespace millrace
