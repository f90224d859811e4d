// The safetensors format: named arrays in one file that Python's `safetensors` package reads too.
//   u64 (little endian) length of the header; the header, a JSON object, padded with spaces so that the data
//   begins at a multiple of 8; the arrays' bytes without gaps. Format:
//   https://github.com/huggingface/safetensors
// Pure functions on memory, no owner, any thread. Station: beneath checkpoint.
// The reader is strict and trusts no number: whatever bytes it is given, it stays inside them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/status.h"

namespace millrace {

enum class TensorType : uint8_t { kF32, kF64, kI32, kI64, kU8, kU64 };
size_t SizeOf(TensorType type);
std::string_view NameOf(TensorType type);  // as the format spells it: "F32"

template <typename T>
constexpr TensorType TensorTypeOf() {
  if constexpr (std::is_same_v<T, float>) return TensorType::kF32;
  if constexpr (std::is_same_v<T, double>) return TensorType::kF64;
  if constexpr (std::is_same_v<T, int32_t>) return TensorType::kI32;
  if constexpr (std::is_same_v<T, int64_t>) return TensorType::kI64;
  if constexpr (std::is_same_v<T, uint8_t>) return TensorType::kU8;
  if constexpr (std::is_same_v<T, uint64_t>) return TensorType::kU64;
}

// A view: the bytes belong to someone else (the arena when writing, the file's buffer when reading).
struct NamedTensor {
  std::string name;
  TensorType type = TensorType::kF32;
  std::vector<uint64_t> shape;       // empty: one value
  std::span<const std::byte> bytes;  // row-major
};

template <typename T>
NamedTensor MakeTensor(std::string name, std::span<const T> values, std::vector<uint64_t> shape) {
  return {std::move(name), TensorTypeOf<T>(), std::move(shape), std::as_bytes(values)};
}
template <typename T>
NamedTensor MakeTensor(std::string name, std::span<const T> values) {
  return MakeTensor(std::move(name), values, {values.size()});
}
std::string DescribeTensor(const NamedTensor& tensor);  // "F32 [64, 4]"

// What stands before the data, and the order in which the tensors' bytes follow: larger element types first,
// so that every tensor is aligned to its type although the format allows no gaps.
struct SafetensorsHeader {
  std::string bytes;
  std::vector<size_t> order;  // indices into the tensors
};

// Metadata keeps its order. Names and metadata are UTF-8; bytes that are not are replaced. InvalidArgument
// for a name used twice, a reserved name, a shape that does not fit its bytes, a header over the format's 100
// MB.
StatusOr<SafetensorsHeader> BuildSafetensorsHeader(
    std::span<const NamedTensor> tensors, std::span<const std::pair<std::string, std::string>> metadata);

struct SafetensorsContent {
  std::vector<NamedTensor> tensors;  // views into the buffer that was read, in its order
  std::map<std::string, std::string> metadata;

  const NamedTensor* Find(std::string_view name) const;
};

// DataLoss with the reason where the buffer is not a whole, well-formed file: offsets must tile the data
// exactly.
StatusOr<SafetensorsContent> ReadSafetensors(std::span<const std::byte> file);

// Copies a tensor's values out; any alignment. NotFound, or InvalidArgument where type or number differ.
Status CopyTensorBytes(const SafetensorsContent& content, std::string_view name, TensorType type,
                       std::span<std::byte> out);
template <typename T>
Status CopyTensor(const SafetensorsContent& content, std::string_view name, std::span<T> out) {
  return CopyTensorBytes(content, name, TensorTypeOf<T>(), std::as_writable_bytes(out));
}

}  // namespace millrace
