#include "common/checkpoint.h"

#include <set>

#include "common/testing/faulty_file_system.h"
#include "common/testing/temp_dir.h"
#include "common/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A state whose every value tells its update.
class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointData Data(uint64_t update) {
    weights_.assign(40, static_cast<float>(update));
    counters_ = {update, ~update};
    return {
        {MakeTensor<float>("policy/0/weight", weights_, {8, 5}), MakeTensor<uint64_t>("counters", counters_)},
        {{"env", "CartPole-v1"}, {"note", "line\n\"quoted\""}}};
  }

  void ExpectIs(const StatusOr<Checkpoint>& checkpoint, uint64_t update) {
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    EXPECT_EQ(checkpoint->update, update);
    std::vector<float> weights(40);
    std::vector<uint64_t> counters(2);
    ASSERT_TRUE(CopyTensor<float>(checkpoint->content, "policy/0/weight", weights).ok());
    ASSERT_TRUE(CopyTensor<uint64_t>(checkpoint->content, "counters", counters).ok());
    EXPECT_EQ(weights, std::vector<float>(40, static_cast<float>(update)));
    EXPECT_EQ(counters, (std::vector<uint64_t>{update, ~update}));
    EXPECT_EQ(checkpoint->content.metadata,
              (std::map<std::string, std::string>{{"env", "CartPole-v1"}, {"note", "line\n\"quoted\""}}));
  }

  CheckpointStore OpenStore(FileSystem& fs) {
    auto store = CheckpointStore::Open(fs, dir_);
    MILL_CHECK(store.ok());
    return *std::move(store);
  }

  void Overwrite(const std::string& path, std::string_view bytes) {
    auto file = posix_.OpenForWrite(path, FileSystem::WriteMode::kReplace);
    ASSERT_TRUE(file.ok() && (*file)->Append(bytes).ok());
  }

  TempDir temp_;
  PosixFileSystem posix_;
  const std::string dir_ = temp_.File("checkpoints");
  std::vector<float> weights_;
  std::vector<uint64_t> counters_;
};

TEST_F(CheckpointTest, SavesAndLoads) {
  CheckpointStore store = OpenStore(posix_);
  EXPECT_EQ(LoadLatestCheckpoint(posix_, dir_, nullptr).status().code(), absl::StatusCode::kNotFound);
  auto path = store.Save(123, Data(123));
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(*path, dir_ + "/update-000000123.safetensors");
  ASSERT_TRUE(store.Save(1'234'567'890'123, Data(1'234'567'890'123)).ok());
  ASSERT_TRUE(store.SaveBest(7, Data(7)).ok());
  ExpectIs(LoadCheckpoint(posix_, *path), 123);
  ExpectIs(LoadLatestCheckpoint(posix_, dir_, nullptr), 1'234'567'890'123);
  ExpectIs(LoadCheckpoint(posix_, BestCheckpointPath(dir_)), 7);
  const auto missing = LoadCheckpoint(posix_, dir_ + "/none");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(missing.status().message(), HasSubstr(dir_ + "/none"));
}

TEST_F(CheckpointTest, EveryTruncationIsFound) {
  CheckpointStore store = OpenStore(posix_);
  const std::string path = *store.Save(1, Data(1));
  const std::string whole = *ReadFile(posix_, path);
  for (size_t length = 0; length < whole.size(); ++length) {
    Overwrite(path, std::string_view(whole).substr(0, length));
    EXPECT_EQ(LoadCheckpoint(posix_, path).status().code(), absl::StatusCode::kDataLoss) << length;
  }
  Overwrite(path, whole + '\0');
  EXPECT_EQ(LoadCheckpoint(posix_, path).status().code(), absl::StatusCode::kDataLoss);
  Overwrite(path, whole);
  ExpectIs(LoadCheckpoint(posix_, path), 1);
}

TEST_F(CheckpointTest, EveryFlippedBitIsFound) {
  CheckpointStore store = OpenStore(posix_);
  const std::string path = *store.Save(1, Data(1));
  const std::string whole = *ReadFile(posix_, path);
  for (size_t byte = 0; byte < whole.size(); ++byte) {
    std::string damaged = whole;
    damaged[byte] = static_cast<char>(damaged[byte] ^ (1 << (byte % 8)));
    Overwrite(path, damaged);
    EXPECT_EQ(LoadCheckpoint(posix_, path).status().code(), absl::StatusCode::kDataLoss) << "byte " << byte;
  }
}

TEST_F(CheckpointTest, DamagedOnesAreSkippedWithTheReason) {
  CheckpointStore store = OpenStore(posix_);
  for (uint64_t update : {8, 9, 10}) ASSERT_TRUE(store.Save(update, Data(update)).ok());
  const std::string newest = dir_ + "/update-000000010.safetensors";
  const std::string middle = dir_ + "/update-000000009.safetensors";
  Overwrite(newest, "");
  std::string flipped = *ReadFile(posix_, middle);
  flipped.back() ^= 1;
  Overwrite(middle, flipped);
  std::vector<SkippedCheckpoint> skipped;
  ExpectIs(LoadLatestCheckpoint(posix_, dir_, &skipped), 8);
  ASSERT_EQ(skipped.size(), 2u);
  EXPECT_EQ(skipped[0].path, newest);
  EXPECT_THAT(skipped[0].reason, HasSubstr("cut short"));
  EXPECT_EQ(skipped[1].path, middle);
  EXPECT_THAT(skipped[1].reason, HasSubstr("checksum does not match"));
  Overwrite(dir_ + "/update-000000008.safetensors", "{}");
  const auto none = LoadLatestCheckpoint(posix_, dir_, nullptr);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(none.status().message(), HasSubstr("no checkpoint there is valid, of 3"));
}

TEST_F(CheckpointTest, DiskFullAnywhereKeepsThePreviousOne) {
  CheckpointStore first = OpenStore(posix_);
  const std::string path = *first.Save(1, Data(1));
  const uint64_t size = *posix_.Size(path);
  for (uint64_t room = 0; room < size; room += 13) {
    FaultyFileSystem fs(posix_);
    CheckpointStore store = OpenStore(fs);
    fs.faults.disk_bytes = room;
    const auto saved = store.Save(2, Data(2));
    EXPECT_EQ(saved.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(saved.status().message(), HasSubstr("No space left on device; free space"));
    EXPECT_FALSE(store.SaveBest(2, Data(2)).ok());
    std::vector<SkippedCheckpoint> skipped;
    ExpectIs(LoadLatestCheckpoint(posix_, dir_, &skipped), 1);
    EXPECT_TRUE(skipped.empty());
    EXPECT_THAT(*posix_.ListDir(dir_), ElementsAre("update-000000001.safetensors"));
  }
}

TEST_F(CheckpointTest, FailingSyncAndRenameAreErrors) {
  FaultyFileSystem fs(posix_);
  CheckpointStore store = OpenStore(fs);
  ASSERT_TRUE(store.Save(1, Data(1)).ok());
  fs.faults.sync_fails = true;
  EXPECT_FALSE(store.Save(2, Data(2)).ok());
  fs.faults = {};
  fs.faults.rename_fails = true;
  EXPECT_FALSE(store.Save(2, Data(2)).ok());
  fs.faults = {};
  ExpectIs(LoadLatestCheckpoint(posix_, dir_, nullptr), 1);
  fs.faults.sync_dir_fails = true;
  EXPECT_FALSE(store.Save(2, Data(2)).ok()) << "a name that may vanish is no checkpoint";
}

// A disk that acknowledged the sync and lost the data: only the checksum tells.
TEST_F(CheckpointTest, TornRenameIsSkipped) {
  FaultyFileSystem fs(posix_);
  CheckpointStore store = OpenStore(fs);
  ASSERT_TRUE(store.Save(1, Data(1)).ok());
  fs.faults.torn_rename = true;
  ASSERT_TRUE(store.Save(2, Data(2)).ok());
  std::vector<SkippedCheckpoint> skipped;
  ExpectIs(LoadLatestCheckpoint(posix_, dir_, &skipped), 1);
  EXPECT_EQ(skipped.size(), 1u);
}

// The process is killed after each single operation of a save in turn.
TEST_F(CheckpointTest, KilledAnywhereGoesOn) {
  bool finished = false;
  std::set<uint64_t> seen;
  for (uint64_t operations = 0; !finished; ++operations) {
    ASSERT_LT(operations, 30u);
    CheckpointStore clean = OpenStore(posix_);
    ASSERT_TRUE(clean.Save(1, Data(1)).ok());
    FaultyFileSystem fs(posix_);
    CheckpointStore store = OpenStore(fs);
    fs.faults.operations = fs.operations_done + operations;
    finished = store.Save(2, Data(2)).ok();
    CheckpointStore again = OpenStore(posix_);
    const std::vector<std::string> names = *posix_.ListDir(dir_);
    for (const std::string& name : names) EXPECT_FALSE(name.ends_with(".tmp")) << name;
    const auto latest = LoadLatestCheckpoint(posix_, dir_, nullptr);
    ASSERT_TRUE(latest.ok()) << latest.status();
    seen.insert(latest->update);
    ExpectIs(latest, latest->update);
  }
  EXPECT_THAT(seen, ElementsAre(1, 2));
}

TEST_F(CheckpointTest, KeepsTheNewestAndTheBest) {
  CheckpointStore store = OpenStore(posix_);
  ASSERT_TRUE(store.SaveBest(1, Data(1)).ok());
  for (uint64_t update = 1; update <= 6; ++update) ASSERT_TRUE(store.Save(update, Data(update)).ok());
  Overwrite(dir_ + "/notes.txt", "mine");
  ASSERT_TRUE(store.Keep(2).ok());
  EXPECT_THAT(*posix_.ListDir(dir_),
              ElementsAre("best.safetensors", "notes.txt", "update-000000005.safetensors",
                          "update-000000006.safetensors"));
  ASSERT_TRUE(store.Keep(0).ok());
  ExpectIs(LoadLatestCheckpoint(posix_, dir_, nullptr), 6);
}

// A run that went back to update 5 must not find the file of update 9 again.
TEST_F(CheckpointTest, LaterUpdatesGoWithASave) {
  CheckpointStore store = OpenStore(posix_);
  ASSERT_TRUE(store.Save(5, Data(5)).ok());
  ASSERT_TRUE(store.Save(9, Data(9)).ok());
  ASSERT_TRUE(store.Save(6, Data(6)).ok());
  ASSERT_TRUE(store.Keep(1).ok());
  ExpectIs(LoadLatestCheckpoint(posix_, dir_, nullptr), 6);
}

TEST_F(CheckpointTest, OtherFilesAreNoCheckpoints) {
  CheckpointStore store = OpenStore(posix_);
  for (const char* name : {"update-.safetensors", "update-x.safetensors", "update-1", "update--1.safetensors",
                           "update-99999999999999999999.safetensors"}) {
    Overwrite(dir_ + "/" + name, "x");
  }
  EXPECT_THAT(LoadLatestCheckpoint(posix_, dir_, nullptr).status().message(),
              HasSubstr("no checkpoint there"));
  // Good safetensors, but not ours.
  const auto header = BuildSafetensorsHeader({}, {});
  Overwrite(dir_ + "/update-1.safetensors", header->bytes);
  EXPECT_THAT(LoadLatestCheckpoint(posix_, dir_, nullptr).status().message(), HasSubstr("is valid, of 1"));
}

}  // namespace
}  // namespace millrace
