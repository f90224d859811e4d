#include "common/crc32c.h"

#include <array>
#include <cstring>

#ifdef __SSE4_2__
#include <nmmintrin.h>
#endif

namespace millrace {
namespace {

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
    table[i] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = MakeTable();

}  // namespace

uint32_t internal::Crc32cPortable(std::string_view data) {
  uint32_t crc = ~0u;
  for (char c : data) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint8_t>(c)) & 0xff];
  return ~crc;
}

uint32_t Crc32c(std::string_view data) {
#ifdef __SSE4_2__
  uint64_t crc = 0xffffffffu;
  while (data.size() >= 8) {
    uint64_t word;
    std::memcpy(&word, data.data(), 8);
    crc = _mm_crc32_u64(crc, word);
    data.remove_prefix(8);
  }
  uint32_t tail = static_cast<uint32_t>(crc);
  for (char c : data) tail = _mm_crc32_u8(tail, static_cast<uint8_t>(c));
  return ~tail;
#else
  return internal::Crc32cPortable(data);
#endif
}

}  // namespace millrace
