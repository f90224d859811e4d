// CRC-32C (Castagnoli): the checksum of TensorBoard's record framing. Pure functions, any thread.
// Polynomial 0x1EDC6F41, reflected; known answers in RFC 3720, appendix B.4.
#pragma once

#include <cstdint>
#include <string_view>

namespace millrace {

uint32_t Crc32c(std::string_view data);

// As TFRecord files store it: rotated and offset, so that a checksum over data with checksums in it stays
// sound.
constexpr uint32_t MaskCrc32c(uint32_t crc) {
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

namespace internal {
// Table-driven, for CPUs without SSE 4.2; must agree with Crc32c everywhere.
uint32_t Crc32cPortable(std::string_view data);
}  // namespace internal

}  // namespace millrace
