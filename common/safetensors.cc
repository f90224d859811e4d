#include "common/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>

#include "absl/strings/str_join.h"
#include "common/text.h"

namespace millrace {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the format is little endian, and bytes go as they are");

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr size_t kMaxRank = 16;
constexpr size_t kLengthBytes = 8;
constexpr std::string_view kMetadataKey = "__metadata__";

struct TypeInfo {
  TensorType type;
  std::string_view name;
  size_t size;
};
constexpr std::array<TypeInfo, 6> kTypes = {{{TensorType::kF32, "F32", 4},
                                             {TensorType::kF64, "F64", 8},
                                             {TensorType::kI32, "I32", 4},
                                             {TensorType::kI64, "I64", 8},
                                             {TensorType::kU8, "U8", 1},
                                             {TensorType::kU64, "U64", 8}}};

// Bytes that a tensor takes; nothing where that passes 64 bits.
std::optional<uint64_t> ByteSize(TensorType type, std::span<const uint64_t> shape) {
  uint64_t bytes = SizeOf(type);
  for (uint64_t dim : shape) {
    if (__builtin_mul_overflow(bytes, dim, &bytes)) return std::nullopt;
  }
  return bytes;
}

std::string Quote(std::string_view text) {
  return nlohmann::json(std::string(text)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Reads the header event by event and stops at the first thing that the format does not have, so memory stays
// in proportion to what is kept: a document tree of a hostile header would take many times its size.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  struct Entry {
    std::string name;
    TensorType type = TensorType::kF32;
    std::vector<uint64_t> shape;
    std::vector<uint64_t> offsets;
    bool has_type = false, has_shape = false, has_offsets = false;
  };

  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;
  std::string error;

  bool start_object(size_t) override {
    switch (state_) {
      case State::kStart:
        return Go(State::kTop);
      case State::kMetadataBegin:
        return Go(State::kMetadata);
      case State::kTensorBegin:
        return Go(State::kTensor);
      default:
        return Unexpected("an object");
    }
  }

  bool end_object() override {
    switch (state_) {
      case State::kTop:
        return Go(State::kDone);
      case State::kMetadata:
        return Go(State::kTop);
      case State::kTensor: {
        const Entry& e = entries.back();
        if (!e.has_type || !e.has_shape || !e.has_offsets)
          return Fail(e, "lacks dtype, shape or data_offsets");
        return Go(State::kTop);
      }
      default:
        return Unexpected("the end of an object");
    }
  }

  bool key(string_t& key) override {
    switch (state_) {
      case State::kTop:
        if (!names_.insert(key).second) return Fail(Cat("name ", Quote(key), " appears twice"));
        if (key == kMetadataKey) return Go(State::kMetadataBegin);
        entries.emplace_back().name = std::move(key);
        return Go(State::kTensorBegin);
      case State::kMetadata:
        if (metadata.contains(key)) return Fail(Cat("metadata ", Quote(key), " appears twice"));
        metadata_key_ = std::move(key);
        return Go(State::kMetadataValue);
      case State::kTensor:
        return TensorKey(key);
      default:
        return Unexpected("a key");
    }
  }

  bool string(string_t& value) override {
    if (state_ == State::kMetadataValue) {
      metadata.emplace(std::move(metadata_key_), std::move(value));
      return Go(State::kMetadata);
    }
    if (state_ != State::kType) return Unexpected("a string");
    for (const TypeInfo& info : kTypes) {
      if (info.name == value) {
        entries.back().type = info.type;
        return Go(State::kTensor);
      }
    }
    return Fail(entries.back(), Cat("has the unsupported dtype ", Quote(value)));
  }

  bool start_array(size_t) override {
    if (state_ == State::kShapeBegin) return Go(State::kShape);
    if (state_ == State::kOffsetsBegin) return Go(State::kOffsets);
    return Unexpected("an array");
  }

  bool end_array() override {
    if (state_ == State::kShape) return Go(State::kTensor);
    if (state_ != State::kOffsets) return Unexpected("the end of an array");
    if (entries.back().offsets.size() != 2) return Fail(entries.back(), "needs two data_offsets");
    return Go(State::kTensor);
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (state_ == State::kShape) {
      if (entries.back().shape.size() == kMaxRank) return Fail(entries.back(), "has too many dimensions");
      entries.back().shape.push_back(value);
      return true;
    }
    if (state_ != State::kOffsets) return Unexpected("a number");
    if (entries.back().offsets.size() == 2) return Fail(entries.back(), "needs two data_offsets");
    entries.back().offsets.push_back(value);
    return true;
  }

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool number_integer(number_integer_t) override { return Unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return Unexpected("a fraction"); }
  bool binary(binary_t&) override { return Unexpected("binary data"); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return Fail(Cat("no JSON at byte ", position));
  }

 private:
  enum class State : uint8_t {
    kStart,
    kTop,
    kDone,
    kMetadataBegin,
    kMetadata,
    kMetadataValue,
    kTensorBegin,
    kTensor,
    kType,
    kShapeBegin,
    kShape,
    kOffsetsBegin,
    kOffsets,
  };

  bool TensorKey(std::string_view key) {
    Entry& e = entries.back();
    if (key == "dtype") return Once(e.has_type, State::kType);
    if (key == "shape") return Once(e.has_shape, State::kShapeBegin);
    if (key == "data_offsets") return Once(e.has_offsets, State::kOffsetsBegin);
    return Fail(e, Cat("has the unknown key ", Quote(key)));
  }
  bool Once(bool& seen, State next) {
    if (std::exchange(seen, true)) return Fail(entries.back(), "has a key twice");
    return Go(next);
  }
  bool Go(State next) {
    state_ = next;
    return true;
  }
  bool Fail(std::string reason) {
    error = std::move(reason);
    return false;
  }
  bool Fail(const Entry& e, std::string_view reason) {
    return Fail(Cat("tensor ", Quote(e.name), " ", reason));
  }
  bool Unexpected(std::string_view what) { return Fail(Cat(what, " where the format has none")); }

  State state_ = State::kStart;
  std::string metadata_key_;
  std::set<std::string> names_;
};

Status Damaged(std::string_view reason) {
  return absl::DataLossError(Cat("not a whole safetensors file: ", reason));
}

// Offsets must tile the data from end to end: no gap, no overlap, nothing behind the last one.
Status PlaceTensors(std::span<HeaderReader::Entry> entries, std::span<const std::byte> data,
                    std::vector<NamedTensor>& tensors) {
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.offsets < b.offsets; });
  uint64_t expected = 0;
  for (HeaderReader::Entry& e : entries) {
    const uint64_t begin = e.offsets[0], end = e.offsets[1];
    if (begin != expected) return Damaged(Cat("a gap or an overlap before tensor ", Quote(e.name)));
    if (end < begin || end > data.size()) {
      return Damaged(Cat("tensor ", Quote(e.name), " ends at byte ", end, " of ", data.size()));
    }
    if (ByteSize(e.type, e.shape) != end - begin) {
      return Damaged(Cat("shape and bytes of tensor ", Quote(e.name), " differ"));
    }
    tensors.push_back({std::move(e.name), e.type, std::move(e.shape), data.subspan(begin, end - begin)});
    expected = end;
  }
  if (expected != data.size()) return Damaged(Cat(data.size() - expected, " bytes too many"));
  return absl::OkStatus();
}

Status CheckWritable(std::span<const NamedTensor> tensors) {
  std::set<std::string_view> names;
  for (const NamedTensor& t : tensors) {
    if (t.name == kMetadataKey || !names.insert(t.name).second) {
      return absl::InvalidArgumentError(Cat("tensor name ", Quote(t.name), " is taken"));
    }
    if (t.shape.size() > kMaxRank || ByteSize(t.type, t.shape) != t.bytes.size()) {
      return absl::InvalidArgumentError(Cat("tensor ", Quote(t.name), ", ", DescribeTensor(t),
                                            ", does not fit its ", t.bytes.size(), " bytes"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

size_t SizeOf(TensorType type) {
  return kTypes[static_cast<size_t>(type)].size;
}
std::string_view NameOf(TensorType type) {
  return kTypes[static_cast<size_t>(type)].name;
}

std::string DescribeTensor(const NamedTensor& tensor) {
  return Cat(NameOf(tensor.type), " [", absl::StrJoin(tensor.shape, ", "), "]");
}

StatusOr<SafetensorsHeader> BuildSafetensorsHeader(
    std::span<const NamedTensor> tensors, std::span<const std::pair<std::string, std::string>> metadata) {
  MILL_RETURN_IF_ERROR(CheckWritable(tensors));
  SafetensorsHeader header;
  header.order.resize(tensors.size());
  std::iota(header.order.begin(), header.order.end(), size_t{0});
  std::stable_sort(header.order.begin(), header.order.end(),
                   [&](size_t a, size_t b) { return SizeOf(tensors[a].type) > SizeOf(tensors[b].type); });

  std::string json = Cat("{\"", kMetadataKey, "\":{");
  for (const auto& [key, value] : metadata) {
    CatTo(json, json.back() == '{' ? "" : ",", Quote(key), ":", Quote(value));
  }
  json += '}';
  uint64_t offset = 0;
  for (size_t i : header.order) {
    const NamedTensor& t = tensors[i];
    CatTo(json, ",", Quote(t.name), ":{\"dtype\":\"", NameOf(t.type), "\",\"shape\":[",
          absl::StrJoin(t.shape, ","), "],\"data_offsets\":[", offset, ",", offset + t.bytes.size(), "]}");
    offset += t.bytes.size();
  }
  json += '}';
  json.append((8 - json.size() % 8) % 8, ' ');
  if (json.size() > kMaxHeaderBytes) {
    return absl::InvalidArgumentError(Cat("a header of ", json.size(), " bytes is over the format's limit"));
  }
  const uint64_t length = json.size();
  header.bytes.resize(kLengthBytes);
  std::memcpy(header.bytes.data(), &length, kLengthBytes);
  header.bytes += json;
  return header;
}

const NamedTensor* SafetensorsContent::Find(std::string_view name) const {
  for (const NamedTensor& t : tensors) {
    if (t.name == name) return &t;
  }
  return nullptr;
}

StatusOr<SafetensorsContent> ReadSafetensors(std::span<const std::byte> file) {
  if (file.size() < kLengthBytes) return Damaged(Cat("only ", file.size(), " bytes"));
  uint64_t length;
  std::memcpy(&length, file.data(), kLengthBytes);
  if (length > kMaxHeaderBytes || length > file.size() - kLengthBytes) {
    return Damaged(Cat("a header of ", length, " bytes in a file of ", file.size()));
  }
  const char* text = reinterpret_cast<const char*>(file.data()) + kLengthBytes;
  if (length == 0 || text[0] != '{') return Damaged("the header does not begin with '{'");
  HeaderReader reader;
  if (!nlohmann::json::sax_parse(text, text + length, &reader)) return Damaged(reader.error);

  SafetensorsContent content;
  content.tensors.reserve(reader.entries.size());
  MILL_RETURN_IF_ERROR(PlaceTensors(reader.entries, file.subspan(kLengthBytes + length), content.tensors));
  content.metadata = std::move(reader.metadata);
  return content;
}

Status CopyTensorBytes(const SafetensorsContent& content, std::string_view name, TensorType type,
                       std::span<std::byte> out) {
  const NamedTensor* tensor = content.Find(name);
  if (tensor == nullptr) return absl::NotFoundError(Cat("there is no tensor ", Quote(name)));
  if (tensor->type != type || tensor->bytes.size() != out.size()) {
    return absl::InvalidArgumentError(Cat("tensor ", Quote(name), " is ", DescribeTensor(*tensor), " where ",
                                          out.size() / SizeOf(type), " values of ", NameOf(type),
                                          " are wanted"));
  }
  if (!out.empty()) std::memcpy(out.data(), tensor->bytes.data(), out.size());
  return absl::OkStatus();
}

}  // namespace millrace
