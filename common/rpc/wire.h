// The two pieces of protobuf's wire format that are written by hand, where bytes follow that no generated
// serializer sees. Pure functions, any thread. Station: inside the codecs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace millrace {

inline constexpr uint32_t kLengthDelimited = 2;  // the wire type of strings, bytes and messages

inline void AppendVarint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

inline size_t VarintBytes(uint64_t value) {
  size_t bytes = 1;
  for (; value >= 0x80; value >>= 7) ++bytes;
  return bytes;
}

// The tag of a field whose length and bytes follow.
inline void AppendBytesTag(std::string& out, uint32_t field) {
  AppendVarint(out, field << 3 | kLengthDelimited);
}

}  // namespace millrace
