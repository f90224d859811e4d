#include "common/tensorboard.h"

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "common/crc32c.h"
#include "common/testing/faulty_file_system.h"
#include "common/testing/temp_dir.h"
#include "common/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

template <typename T>
T Take(std::string_view& in) {
  MILL_CHECK(in.size() >= sizeof(T));
  T value;
  std::memcpy(&value, in.data(), sizeof(T));
  in.remove_prefix(sizeof(T));
  return value;
}

// The reader that the format's description asks for: framing and checksums, then fields by number.
std::vector<std::string> Records(std::string_view file) {
  std::vector<std::string> records;
  while (!file.empty()) {
    const std::string_view length_bytes = file.substr(0, 8);
    const auto length = Take<uint64_t>(file);
    EXPECT_EQ(Take<uint32_t>(file), MaskCrc32c(Crc32c(length_bytes)));
    MILL_CHECK(length <= file.size());
    records.emplace_back(file.substr(0, length));
    file.remove_prefix(length);
    EXPECT_EQ(Take<uint32_t>(file), MaskCrc32c(Crc32c(records.back())));
  }
  return records;
}

uint64_t TakeVarint(std::string_view& in) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = Take<uint8_t>(in);
    value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
}

// Fields of one message: scalars as their bits, bytes as they are.
struct Message {
  std::map<int, uint64_t> numbers;
  std::multimap<int, std::string> bytes;

  explicit Message(std::string_view in) {
    while (!in.empty()) {
      const uint64_t key = TakeVarint(in);
      const int field = static_cast<int>(key >> 3);
      switch (key & 7) {
        case 0:
          numbers[field] = TakeVarint(in);
          break;
        case 1:
          numbers[field] = Take<uint64_t>(in);
          break;
        case 5:
          numbers[field] = Take<uint32_t>(in);
          break;
        default: {
          const uint64_t size = TakeVarint(in);
          MILL_CHECK((key & 7) == 2 && size <= in.size());
          bytes.emplace(field, in.substr(0, size));
          in.remove_prefix(size);
        }
      }
    }
  }
  std::string Bytes(int field) const {
    return bytes.count(field) == 1 ? bytes.find(field)->second : "(not once)";
  }
  double Double(int field) const { return std::bit_cast<double>(numbers.at(field)); }
  std::map<std::string, float> Scalars() const {
    std::map<std::string, float> scalars;
    const Message summary(Bytes(5));
    for (const auto& [field, text] : summary.bytes) {
      const Message value(text);
      scalars[value.Bytes(1)] = std::bit_cast<float>(static_cast<uint32_t>(value.numbers.at(2)));
    }
    return scalars;
  }
};

std::vector<Message> ReadEvents(FileSystem& fs, const std::string& path) {
  std::vector<Message> events;
  for (const std::string& record : Records(*ReadFile(fs, path))) events.emplace_back(record);
  return events;
}

TEST(TensorBoard, WritesEventsThatReadBack) {
  TempDir dir;
  PosixFileSystem fs;
  auto writer = TensorBoardWriter::Open(fs, dir.path(), 1'700'000'000.25);
  ASSERT_TRUE(writer.ok()) << writer.status();
  EXPECT_THAT(writer->path(), HasSubstr("/events.out.tfevents.1700000000."));
  EXPECT_TRUE(writer->path().ends_with(".millrace"));
  MetricsRow row;
  row.steps = 300;
  row.return_mean = -1.5;
  row.episodes = 2;
  ASSERT_TRUE(writer->Append(row, 1'700'000'001.5).ok());
  ASSERT_TRUE(writer->AppendScalar("eval/return_mean", uint64_t{1} << 40, 475.0, 1'700'000'002.0).ok());

  const std::vector<Message> events = ReadEvents(fs, writer->path());
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].Double(1), 1'700'000'000.25);
  EXPECT_EQ(events[0].Bytes(3), "brain.Event:2");
  EXPECT_EQ(events[1].Double(1), 1'700'000'001.5);
  EXPECT_EQ(events[1].numbers.at(2), 300u);
  const auto scalars = events[1].Scalars();
  EXPECT_EQ(scalars.at("train/return_mean"), -1.5f);
  EXPECT_EQ(scalars.at("train/episodes"), 2.0f);
  EXPECT_EQ(scalars.count("train/return_min"), 0u) << "unknown values have no point";
  EXPECT_EQ(scalars.count("loss/entropy"), 0u);
  EXPECT_EQ(events[2].numbers.at(2), uint64_t{1} << 40);
  EXPECT_EQ(events[2].Scalars(), (std::map<std::string, float>{{"eval/return_mean", 475.0f}}));
}

TEST(TensorBoard, LongTagsNeedLongerVarints) {
  TempDir dir;
  PosixFileSystem fs;
  auto writer = TensorBoardWriter::Open(fs, dir.path(), 1.0);
  for (size_t size : {119u, 120u, 121u, 127u, 128u, 300u}) {
    const std::string tag(size, 'x');
    ASSERT_TRUE(writer->AppendScalar(tag, 1, 2.0, 3.0).ok());
    EXPECT_EQ(ReadEvents(fs, writer->path()).back().Scalars(), (std::map<std::string, float>{{tag, 2.0f}}));
  }
}

TEST(TensorBoard, ResumedFilesStandBehindAndDropWhatCameLater) {
  TempDir dir;
  PosixFileSystem fs;
  auto first = TensorBoardWriter::Open(fs, dir.path(), 1000.0);
  auto second = TensorBoardWriter::Open(fs, dir.path(), 1000.5, 300);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_LT(first->path(), second->path());
  const std::vector<Message> events = ReadEvents(fs, second->path());
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].numbers.at(2), 301u);
  EXPECT_EQ(Message(events[1].Bytes(7)).numbers.at(1), 1u);
}

TEST(TensorBoard, FullDiskLeavesWholeRecords) {
  TempDir dir;
  PosixFileSystem posix;
  FaultyFileSystem fs(posix);
  auto writer = TensorBoardWriter::Open(fs, dir.path(), 1.0);
  fs.faults.disk_bytes = 50;
  EXPECT_EQ(writer->Append(MetricsRow(), 2.0).code(), absl::StatusCode::kResourceExhausted);
  fs.faults = {};
  ASSERT_TRUE(writer->AppendScalar("a", 1, 2.0, 3.0).ok());
  EXPECT_EQ(ReadEvents(posix, writer->path()).size(), 2u);
}

}  // namespace
}  // namespace millrace
