#include "common/safetensors.h"

#include <cstring>
#include <random>

#include "common/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

std::span<const std::byte> Bytes(const std::string& s) {
  return std::as_bytes(std::span(s.data(), s.size()));
}

// A file of this header (not padded) and data.
std::string FileOf(std::string_view json, size_t data_bytes = 0) {
  const uint64_t length = json.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return Cat(file, json, std::string(data_bytes, '\x5a'));
}

std::string Write(std::span<const NamedTensor> tensors,
                  const std::vector<std::pair<std::string, std::string>>& metadata) {
  auto header = BuildSafetensorsHeader(tensors, metadata);
  EXPECT_TRUE(header.ok()) << header.status();
  std::string file = header->bytes;
  for (size_t i : header->order) {
    file.append(reinterpret_cast<const char*>(tensors[i].bytes.data()), tensors[i].bytes.size());
  }
  return file;
}

struct Sample {
  std::vector<float> f32 = {1.5f, -2.0f, 3.25f, 0.0f, 1e-30f, 7.0f};  // [2, 3]
  std::vector<double> f64 = {3.14159};
  std::vector<int32_t> i32 = {-1, 2};
  std::vector<int64_t> i64 = {INT64_MIN, INT64_MAX};
  std::vector<uint8_t> u8 = {1, 2, 255};
  std::vector<uint64_t> u64 = {UINT64_MAX};
  std::vector<float> none;

  std::vector<NamedTensor> Tensors() const {
    return {MakeTensor<uint8_t>("bytes", u8),        MakeTensor<float>("w/\"0\"", f32, {2, 3}),
            MakeTensor<double>("scalar", f64, {}),   MakeTensor<int32_t>("i32", i32),
            MakeTensor<int64_t>("\xc3\xa4", i64),    MakeTensor<uint64_t>("u64", u64),
            MakeTensor<float>("empty", none, {0, 5})};
  }
};

TEST(Safetensors, RoundTrip) {
  const Sample s;
  const std::string file = Write(s.Tensors(), {{"z", "last\nline"}, {"a", ""}});
  auto content = ReadSafetensors(Bytes(file));
  ASSERT_TRUE(content.ok()) << content.status();
  EXPECT_EQ(content->metadata, (std::map<std::string, std::string>{{"a", ""}, {"z", "last\nline"}}));
  ASSERT_EQ(content->tensors.size(), 7u);
  for (const NamedTensor& want : s.Tensors()) {
    const NamedTensor* got = content->Find(want.name);
    ASSERT_NE(got, nullptr) << want.name;
    EXPECT_EQ(DescribeTensor(*got), DescribeTensor(want));
    EXPECT_TRUE(std::equal(got->bytes.begin(), got->bytes.end(), want.bytes.begin(), want.bytes.end()));
  }
  std::vector<float> f32(6);
  ASSERT_TRUE(CopyTensor<float>(*content, "w/\"0\"", f32).ok());
  EXPECT_EQ(f32, s.f32);
  EXPECT_EQ(CopyTensor<float>(*content, "w", f32).code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(CopyTensor<double>(*content, "w/\"0\"", std::span<double>()).message(),
              HasSubstr("is F32 [2, 3] where 0 values of F64 are wanted"));
}

TEST(Safetensors, EveryTensorIsAlignedToItsType) {
  const Sample s;
  const std::string file = Write(s.Tensors(), {{"k", "v"}});
  auto content = ReadSafetensors(Bytes(file));
  ASSERT_TRUE(content.ok());
  for (const NamedTensor& t : content->tensors) {
    const auto offset = t.bytes.data() - Bytes(file).data();
    EXPECT_EQ(offset % SizeOf(t.type), 0u) << t.name;
  }
  EXPECT_EQ((content->tensors[0].bytes.data() - Bytes(file).data()) % 8, 0);
}

TEST(Safetensors, WriterRefusesWhatTheFormatCannotHold) {
  const std::vector<float> two(2);
  const auto build = [](std::vector<NamedTensor> tensors) {
    return BuildSafetensorsHeader(tensors, {}).status();
  };
  EXPECT_TRUE(build({MakeTensor<float>("a", two)}).ok());
  EXPECT_FALSE(build({MakeTensor<float>("a", two), MakeTensor<float>("a", two)}).ok());
  EXPECT_FALSE(build({MakeTensor<float>("__metadata__", two)}).ok());
  EXPECT_FALSE(build({MakeTensor<float>("a", two, {3})}).ok());
  EXPECT_FALSE(build({MakeTensor<float>("a", two, {uint64_t{1} << 62, uint64_t{1} << 62})}).ok());
}

struct BadCase {
  std::string_view json;
  size_t data_bytes;
  std::string_view reason;
};

TEST(Safetensors, ReaderNamesWhatIsWrong) {
  const std::vector<BadCase> cases = {
      {"", 0, "does not begin"},
      {" {}", 0, "does not begin"},
      {"[]", 0, "does not begin"},
      {"{}x", 0, "no JSON at byte 3"},
      {"{", 0, "no JSON"},
      {"{}", 1, "1 bytes too many"},
      {R"({"a":1})", 0, "a number where"},
      {R"({"a":[]})", 0, "an array where"},
      {R"({"a":null})", 0, "null where"},
      {R"({"a":true})", 0, "a boolean where"},
      {R"({"a":{}})", 0, "lacks dtype"},
      {R"({"a":{"dtype":"F32","shape":[1]}})", 4, "lacks dtype"},
      {R"({"a":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}})", 4, "unsupported dtype \"F99\""},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", 4, "unknown key \"x\""},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4, "a key twice"},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "a negative number"},
      {R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4, "a fraction"},
      {R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", 4, "an array where"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "two data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,4]}})", 4, "two data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "a gap"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 3, "ends at byte 4 of 3"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "shape and bytes"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551615]}})", 4, "ends at byte"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,99999999999999999999]}})", 4, "where"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0, "shape and bytes"},
      {R"({"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}})", 0, "shape and bytes"},
      {R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1,
       "too many dim"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3, "a gap or an overlap before tensor \"b\""},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
       3, "a gap or an overlap before tensor \"b\""},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       2, "\"a\" appears twice"},
      {R"({"__metadata__":{"a":1}})", 0, "a number where"},
      {R"({"__metadata__":{"a":{}}})", 0, "an object where"},
      {R"({"__metadata__":{"a":"","a":""}})", 0, "appears twice"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, "appears twice"},
      {"{\"\xff\":{}}", 0, "no JSON"},
  };
  for (const BadCase& c : cases) {
    const auto content = ReadSafetensors(Bytes(FileOf(c.json, c.data_bytes)));
    EXPECT_EQ(content.status().code(), absl::StatusCode::kDataLoss) << c.json;
    EXPECT_THAT(content.status().message(), HasSubstr(std::string(c.reason))) << c.json;
  }
}

TEST(Safetensors, ReaderDistrustsTheLength) {
  for (const uint64_t length :
       {uint64_t{3}, uint64_t{100'000'001}, UINT64_MAX, UINT64_MAX - 7, uint64_t{1} << 63}) {
    std::string file(8, '\0');
    std::memcpy(file.data(), &length, 8);
    EXPECT_FALSE(ReadSafetensors(Bytes(file + "{}")).ok()) << length;
  }
  for (size_t n = 0; n < 8; ++n) EXPECT_FALSE(ReadSafetensors(Bytes(std::string(n, '\0'))).ok());
}

// A header of nothing but brackets must fail at the second one, not build a tree of millions.
TEST(Safetensors, DeepNestingFailsAtOnce) {
  std::string json = "{\"a\":";
  json.append(1 << 20, '[');
  EXPECT_THAT(ReadSafetensors(Bytes(FileOf(json))).status().message(), HasSubstr("an array where"));
}

// Whatever the damage, the reader answers, and what it hands out lies inside the buffer. The copy on the heap
// is exactly as long as the file, so that AddressSanitizer sees any step outside.
TEST(Safetensors, RandomDamageStaysInside) {
  const Sample s;
  const std::string whole = Write(s.Tensors(), {{"k", "v"}});
  std::mt19937 rng(7);
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::byte> file(Bytes(whole).begin(), Bytes(whole).end());
    if (round % 3 == 0) file.resize(rng() % file.size());
    for (int k = 0; k < 1 + round % 4 && !file.empty(); ++k)
      file[rng() % file.size()] = std::byte(rng() & 0xff);
    file.shrink_to_fit();
    const auto content = ReadSafetensors(file);
    if (!content.ok()) continue;
    for (const NamedTensor& t : content->tensors) {
      ASSERT_TRUE(t.bytes.empty() || (t.bytes.data() >= file.data() &&
                                      t.bytes.data() + t.bytes.size() <= file.data() + file.size()));
    }
  }
}

}  // namespace
}  // namespace millrace
