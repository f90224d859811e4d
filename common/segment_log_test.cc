#include "common/segment_log.h"

#include <nlohmann/json.hpp>

#include "common/testing/faulty_file_system.h"
#include "common/testing/temp_dir.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;

class SegmentLogTest : public ::testing::Test {
 protected:
  SegmentLog Open(uint64_t last_update) {
    auto log = SegmentLog::Open(fs_, path_, last_update);
    MILL_CHECK(log.ok());
    return *std::move(log);
  }
  // Updates first .. last, each of groups 0 and 1.
  void Write(uint64_t first, uint64_t last, uint64_t resumed) {
    SegmentLog log = Open(resumed);
    for (uint64_t update = first; update <= last; ++update) {
      std::vector<SegmentEntry> entries(2);
      entries[1].group = 1;
      ASSERT_TRUE(log.Append(update, entries).ok());
    }
  }
  std::vector<nlohmann::json> Lines() {
    const std::string text = *ReadFile(posix_, path_);
    EXPECT_TRUE(text.empty() || text.ends_with('\n'));
    std::vector<nlohmann::json> lines;
    size_t begin = 0;
    for (size_t end; (end = text.find('\n', begin)) != text.npos; begin = end + 1) {
      lines.push_back(nlohmann::json::parse(text.substr(begin, end - begin), nullptr, false));
      EXPECT_TRUE(lines.back().is_object()) << text.substr(begin, end - begin);
    }
    return lines;
  }
  std::vector<uint64_t> Updates() {
    std::vector<uint64_t> updates;
    for (const auto& line : Lines()) updates.push_back(line.value("update", uint64_t{0}));
    return updates;
  }

  TempDir temp_;
  PosixFileSystem posix_;
  FaultyFileSystem fs_{posix_};
  const std::string path_ = temp_.File("segments.jsonl");
};

TEST_F(SegmentLogTest, ALineASegmentOneWriteAnUpdate) {
  SegmentLog log = Open(0);
  const SegmentEntry entries[] = {{.group = 7,
                                   .first_step = UINT64_MAX,
                                   .policy_version_min = 3,
                                   .policy_version_max = 5,
                                   .reward_sum = 1.0 / 3,
                                   .steps = 32,
                                   .rows = 8,
                                   .actor = "host-1"},
                                  {}};
  const uint64_t before = fs_.operations_done;
  ASSERT_TRUE(log.Append(9, entries).ok());
  ASSERT_TRUE(log.Append(10, {}).ok());
  EXPECT_EQ(fs_.operations_done - before, 1u);
  const auto lines = Lines();
  ASSERT_EQ(lines.size(), 2u);
  const nlohmann::json expected = {{"update", 9},
                                   {"group", 7},
                                   {"first_step", UINT64_MAX},
                                   {"steps", 32},
                                   {"rows", 8},
                                   {"policy_version_min", 3},
                                   {"policy_version_max", 5},
                                   {"reward_sum", 1.0 / 3},
                                   {"actor", "host-1"}};
  EXPECT_EQ(lines[0], expected);
  EXPECT_TRUE(lines[1]["actor"].is_null());
}

TEST_F(SegmentLogTest, ResumeCutsWhatCameLater) {
  Write(1, 4, 0);
  Write(3, 3, 2);
  EXPECT_THAT(Updates(), ElementsAre(1, 1, 2, 2, 3, 3));
  auto file = posix_.OpenForWrite(path_, FileSystem::WriteMode::kAppend);
  ASSERT_TRUE(file.ok() && (*file)->Append("{\"update\":3,\"gro").ok());
  Write(4, 4, 3);
  EXPECT_THAT(Updates(), ElementsAre(1, 1, 2, 2, 3, 3, 4, 4));
}

TEST_F(SegmentLogTest, NamesAndNumbersFromOutsideStayJson) {
  SegmentLog log = Open(0);
  const std::string names[] = {"a\"b\\c", std::string("\x01\xff\n\0z", 5), std::string(5000, '"')};
  for (const std::string& name : names) {
    const SegmentEntry entry{.group = UINT32_MAX,
                             .first_step = UINT64_MAX,
                             .policy_version_min = UINT64_MAX,
                             .policy_version_max = UINT64_MAX,
                             .reward_sum = -2.2250738585072014e-308,
                             .steps = UINT32_MAX,
                             .rows = UINT32_MAX,
                             .actor = name};
    ASSERT_TRUE(log.Append(UINT64_MAX, {&entry, 1}).ok());
  }
  const SegmentEntry infinite{.reward_sum = INFINITY};
  ASSERT_TRUE(log.Append(1, {&infinite, 1}).ok());
  const auto lines = Lines();
  EXPECT_EQ(lines[0]["actor"], "a\"b\\c");
  EXPECT_EQ(lines[1]["actor"], "????z");
  EXPECT_EQ(lines[2]["actor"], std::string(128, '"'));
  EXPECT_TRUE(lines[3]["reward_sum"].is_null());
}

TEST_F(SegmentLogTest, AFullDiskLeavesWholeLines) {
  SegmentLog log = Open(0);
  const std::vector<SegmentEntry> entries(3);
  ASSERT_TRUE(log.Append(1, entries).ok());
  fs_.faults.disk_bytes = 200;
  EXPECT_EQ(log.Append(2, entries).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Updates(), ElementsAre(1, 1, 1));
}

TEST(DescribeSegment, ReadsItsColumns) {
  EnvSpec spec;
  spec.observations = {{"x", DType::kF32, {1}}};
  spec.action.nvec = {2};
  const SegmentLayout layout(spec, 3, 2, 0);
  std::vector<std::byte> memory(layout.bytes());
  const SegmentView segment(&layout, memory.data());
  for (int i = 0; i < 6; ++i) segment.reward()[i] = static_cast<float>(i + 1);
  for (uint64_t t = 0; t < 3; ++t) segment.policy_version()[t] = 10 - t;
  const SegmentEntry entry = DescribeSegment(segment, 4, 96, "a");
  EXPECT_EQ(entry.group, 4u);
  EXPECT_EQ(entry.first_step, 96u);
  EXPECT_EQ(entry.policy_version_min, 8u);
  EXPECT_EQ(entry.policy_version_max, 10u);
  EXPECT_EQ(entry.reward_sum, 21);
  EXPECT_EQ(entry.steps, 3u);
  EXPECT_EQ(entry.rows, 2u);
  EXPECT_EQ(entry.actor, "a");
}

}  // namespace
}  // namespace millrace
