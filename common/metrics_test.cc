#include "common/metrics.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "common/testing/faulty_file_system.h"
#include "common/testing/temp_dir.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;

MetricsRow RowOf(uint64_t update) {
  MetricsRow row;
  row.update = update;
  row.steps = update * 1024;
  row.return_mean = 0.1 * static_cast<double>(update);
  return row;
}

class MetricsTest : public ::testing::Test {
 protected:
  MetricsWriter Open(uint64_t last_update) {
    auto writer = MetricsWriter::Open(fs_, path_, last_update);
    MILL_CHECK(writer.ok());
    return *std::move(writer);
  }
  void Write(uint64_t first, uint64_t last, uint64_t resumed) {
    MetricsWriter writer = Open(resumed);
    for (uint64_t update = first; update <= last; ++update) ASSERT_TRUE(writer.Append(RowOf(update)).ok());
  }
  void AppendRaw(std::string_view text) {
    auto file = posix_.OpenForWrite(path_, FileSystem::WriteMode::kAppend);
    ASSERT_TRUE(file.ok() && (*file)->Append(text).ok());
  }
  // Every line must parse.
  std::vector<uint64_t> Updates() {
    const std::string text = *ReadFile(posix_, path_);
    EXPECT_TRUE(text.empty() || text.ends_with('\n'));
    std::vector<uint64_t> updates;
    size_t begin = 0;
    for (size_t end; (end = text.find('\n', begin)) != text.npos; begin = end + 1) {
      const auto json = nlohmann::json::parse(text.substr(begin, end - begin), nullptr, false);
      EXPECT_TRUE(json.is_object()) << text.substr(begin, end - begin);
      updates.push_back(json.value("update", uint64_t{0}));
    }
    return updates;
  }

  TempDir temp_;
  PosixFileSystem posix_;
  FaultyFileSystem fs_{posix_};
  const std::string path_ = temp_.File("metrics.jsonl");
};

TEST(FormatMetrics, EveryFieldOfItsAlgorithmOnceAndExact) {
  double value = 1.0 / 3;
  std::set<std::string_view> names;
  for (const MetricsOf algorithm : {MetricsOf::kPpo, MetricsOf::kSac}) {
    MetricsRow row;
    row.algorithm = algorithm;
    size_t fields = 0;
    for (const MetricsField& field : kMetricsFields) {
      if (field.real != nullptr) row.*field.real = value += 1;
      if (field.count != nullptr) row.*field.count = static_cast<uint64_t>(value += 1);
    }
    std::array<char, kMaxMetricsLine> buffer;
    const auto json = nlohmann::json::parse(FormatMetrics(row, buffer));
    for (const MetricsField& field : kMetricsFields) {
      if (!field.In(row)) continue;
      ++fields;
      names.insert(field.name);
      EXPECT_EQ(json.at(std::string(field.name)).get<double>(), field.Value(row)) << field.name;
    }
    EXPECT_EQ(json.size(), fields);
  }
  EXPECT_EQ(names.size(), kMetricsFields.size());
  // A field of the row that the table forgets would change this.
  EXPECT_EQ(sizeof(MetricsRow), sizeof(MetricsOf) + kMetricsFields.size() * 8);
}

TEST(FormatMetrics, UnknownIsNullAndCountsAreWhole) {
  MetricsRow row = RowOf(1'000'000);
  row.value_loss = INFINITY;
  row.return_mean = 1e-300;
  std::array<char, kMaxMetricsLine> buffer;
  const std::string line(FormatMetrics(row, buffer));
  EXPECT_THAT(line, ::testing::StartsWith("{\"update\":1000000,\"steps\":1024000000,\"seconds\":0,"));
  const auto json = nlohmann::json::parse(line);
  EXPECT_TRUE(json["value_loss"].is_null());
  EXPECT_TRUE(json["entropy"].is_null());
  EXPECT_EQ(json["return_mean"], 1e-300);
}

TEST(FormatMetrics, TheLongestRowFits) {
  MetricsRow row;
  for (const MetricsField& field : kMetricsFields) {
    if (field.real != nullptr) row.*field.real = -2.2250738585072014e-308;
    if (field.count != nullptr) row.*field.count = UINT64_MAX;
  }
  std::array<char, kMaxMetricsLine> buffer;
  EXPECT_GT(FormatMetrics(row, buffer).size(), 800u);
}

TEST(MetricsWindow, OneRowIsItself) {
  MetricsRow row = RowOf(3);
  row.steps_per_second = 1.0 / 3;
  row.ms_per_update = 0.7;
  MetricsWindow window;
  window.Add(row);
  const MetricsRow taken = window.Take();
  for (const MetricsField& field : kMetricsFields) {
    const double is = field.Value(taken), was = field.Value(row);
    EXPECT_TRUE(is == was || (std::isnan(is) && std::isnan(was))) << field.name;
  }
  EXPECT_TRUE(window.empty());
}

TEST(MetricsWindow, SeveralRowsAreMeansSumsAndTheLast) {
  MetricsWindow window;
  for (const int pass : {1, 2}) {  // begun anew, it has forgotten
    for (uint64_t i = 1; i <= 3; ++i) {
      MetricsRow row = RowOf(i);
      row.episodes = i;
      row.ms_per_update = static_cast<double>(i);
      row.steps_per_second = 10.0 * static_cast<double>(i);
      row.critic_loss = i == 2 ? MetricsRow::kUnknown : static_cast<double>(i);
      row.return_min = i == 1 ? MetricsRow::kUnknown : static_cast<double>(i);
      row.gradient_steps = 5 * i;
      window.Add(row);
    }
    const MetricsRow row = window.Take();
    EXPECT_EQ(row.update, 3u) << pass;
    EXPECT_EQ(row.episodes, 6u);
    EXPECT_EQ(row.gradient_steps, 15u);
    EXPECT_DOUBLE_EQ(row.ms_per_update, 2.0);
    EXPECT_DOUBLE_EQ(row.steps_per_second, (1 * 10.0 + 2 * 20.0 + 3 * 30.0) / 6);
    EXPECT_DOUBLE_EQ(row.critic_loss, 2.0);
    EXPECT_DOUBLE_EQ(row.return_min, 2.0);
    EXPECT_DOUBLE_EQ(row.return_mean, 0.1 * 3);
    EXPECT_TRUE(std::isnan(row.actor_loss));
  }
}

TEST_F(MetricsTest, AppendsOneWriteALine) {
  MetricsWriter writer = Open(0);
  const uint64_t before = fs_.operations_done;
  for (uint64_t update = 1; update <= 3; ++update) ASSERT_TRUE(writer.Append(RowOf(update)).ok());
  EXPECT_EQ(fs_.operations_done - before, 3u);
  EXPECT_THAT(Updates(), ElementsAre(1, 2, 3));
}

TEST_F(MetricsTest, ResumeCutsWhatCameLater) {
  Write(1, 9, 0);
  Write(6, 7, 5);
  EXPECT_THAT(Updates(), ElementsAre(1, 2, 3, 4, 5, 6, 7));
  Write(8, 8, 7);
  EXPECT_THAT(Updates(), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  Write(1, 1, 0);
  EXPECT_THAT(Updates(), ElementsAre(1));
}

TEST_F(MetricsTest, TornTailsAreDropped) {
  for (std::string_view tail :
       {std::string_view("{\"update\":4,\"st"), std::string_view("{\"update\":4}"),
        std::string_view("\0\0\0\n", 4), std::string_view("{\"update\":4\n"),
        std::string_view("{\"update\":,}\n"), std::string_view("garbage\n{\"update\":3,}\n")}) {
    Write(1, 3, 0);
    AppendRaw(tail);
    Write(4, 4, 3);
    EXPECT_THAT(Updates(), ElementsAre(1, 2, 3, 4)) << tail;
  }
}

// Longer than the pieces in which Open reads.
TEST_F(MetricsTest, LongFiles) {
  Write(1, 400, 0);
  ASSERT_GT(*posix_.Size(path_), 128u * 1024);
  Write(351, 351, 350);
  EXPECT_EQ(Updates().size(), 351u);
  AppendRaw(std::string(200'000, 'x'));
  Write(352, 352, 351);
  EXPECT_EQ(Updates().back(), 352u);
}

TEST_F(MetricsTest, FullDiskTakesTheHalfLineBack) {
  MetricsWriter writer = Open(0);
  ASSERT_TRUE(writer.Append(RowOf(1)).ok());
  fs_.faults.disk_bytes = 100;
  EXPECT_EQ(writer.Append(RowOf(2)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Updates(), ElementsAre(1));
  fs_.faults = {};
  ASSERT_TRUE(writer.Append(RowOf(2)).ok());
  EXPECT_THAT(Updates(), ElementsAre(1, 2));
}

}  // namespace
}  // namespace millrace
