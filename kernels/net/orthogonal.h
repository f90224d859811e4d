// Orthogonal initialisation (Saxe, McClelland, Ganguli, 2013): a matrix of standard normals is
// orthonormalised along its shorter side and scaled by a gain. In double, from Philox, so a seed gives the
// same weights everywhere.
#pragma once

#include <cstdint>

namespace millrace {

// Fills columns [0, cols) of a [rows, ld] row-major matrix. `stream` separates the tensors of one seed.
void OrthogonalInit(uint64_t seed, uint32_t stream, int rows, int cols, int ld, double gain, float* out);

}  // namespace millrace
