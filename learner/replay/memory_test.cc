#include "learner/replay/memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "common/file_system.h"
#include "common/testing/temp_dir.h"

namespace millrace {
namespace {

constexpr uint64_t kSlots = 10'000, kSide = 1000, kMuch = uint64_t{1} << 40;

class ReplayFile : public ::testing::Test {
 protected:
  StatusOr<ReplayMemory> Map(const std::string& layout = "layout A", uint64_t slots = kSlots) {
    return ReplayMemory::MapFile(path_, layout, slots, kSide, kMuch);
  }
  void MakeFile(const std::string& layout = "layout A", uint64_t slots = kSlots) {
    auto memory = Map(layout, slots);
    ASSERT_TRUE(memory.ok()) << memory.status();
    memory->Keep();
  }
  void ExpectRefused(absl::StatusCode code, const std::string& text) {
    const Status status = Map().status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_NE(status.message().find(text), absl::string_view::npos) << status;
    EXPECT_NE(status.message().find(path_), absl::string_view::npos) << "names the file";
  }
  void Overwrite(size_t at, char byte) {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(byte);
  }
  uint64_t SizeOnDisk() { return fs_.Size(path_).value_or(0); }
  void Cut(uint64_t size) {
    auto file = fs_.OpenForWrite(path_, FileSystem::WriteMode::kAppend);
    ASSERT_TRUE(file.ok() && (*file)->Truncate(size).ok());
  }

  TempDir dir_;
  PosixFileSystem fs_;
  const std::string path_ = JoinPath(dir_.path(), "replay.bin");
};

TEST_F(ReplayFile, HoldsTheSlotsAndIsTakenOver) {
  {
    auto memory = Map();
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ(SizeOnDisk(), 4096 + kSlots);
    std::memset(memory->slots(), 7, kSlots);
    std::memset(memory->side(), 7, kSide);
    memory->Keep();
    ReplayMemory moved = *std::move(memory);
    EXPECT_EQ(moved.slots()[kSlots - 1], std::byte{7});
  }
  auto again = Map();
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->side()[0], std::byte{0}) << "who is where does not outlive the process";
}

TEST_F(ReplayFile, OneProcessAtATime) {
  auto memory = Map();
  ASSERT_TRUE(memory.ok());
  ExpectRefused(absl::StatusCode::kAborted, "in use by another run");
}

TEST_F(ReplayFile, OfAnotherLayout) {
  MakeFile("layout B");
  ExpectRefused(absl::StatusCode::kInvalidArgument, "laid out for `layout B`, this run needs `layout A`");
  Cut(0);
  MakeFile("layout A", kSlots + 64);
  ExpectRefused(absl::StatusCode::kInvalidArgument, "laid out for");
}

TEST_F(ReplayFile, CutShort) {
  MakeFile();
  Cut(4096 + kSlots - 1);
  ExpectRefused(absl::StatusCode::kDataLoss, "is cut short: 14095 of 14096 bytes");
  Cut(100);
  ExpectRefused(absl::StatusCode::kDataLoss, "is cut short");
}

TEST_F(ReplayFile, OfALaterVersion) {
  MakeFile();
  Overwrite(8, 2);
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "is of version 2, this program reads 1");
}

TEST_F(ReplayFile, DamagedHead) {
  MakeFile();
  Overwrite(40, 'X');
  ExpectRefused(absl::StatusCode::kDataLoss, "its head is damaged");
}

TEST_F(ReplayFile, SomethingElseIsLeftAlone) {
  std::ofstream(path_) << "a letter to my aunt, somewhat longer than a magic number";
  ExpectRefused(absl::StatusCode::kInvalidArgument, "is no replay file");
  EXPECT_EQ(*ReadFile(fs_, path_), "a letter to my aunt, somewhat longer than a magic number");
}

TEST_F(ReplayFile, AStartThatKeepsNothingLeavesNothingOfItsOwn) {
  ASSERT_TRUE(Map().ok());
  EXPECT_FALSE(FileExists(fs_, path_));
  EXPECT_FALSE(Map("layout A", uint64_t{1} << 60).ok());
  EXPECT_FALSE(FileExists(fs_, path_)) << "nor where the disk is too small";
  MakeFile();
  ASSERT_TRUE(Map().ok());
  EXPECT_TRUE(FileExists(fs_, path_)) << "this one was there before";
}

TEST_F(ReplayFile, FullDisk) {
  std::ofstream{path_};
  const Status status = Map("layout A", uint64_t{1} << 60).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_NE(status.message().find("bytes of the disk"), absl::string_view::npos) << status;
  EXPECT_EQ(SizeOnDisk(), 0u) << "nothing of it stays";
  EXPECT_TRUE(Map().ok()) << "and another size may follow";
}

TEST_F(ReplayFile, APathThatCannotBeIsNamedAsTheSetting) {
  const auto why = [](const std::string& path) {
    return ReplayMemory::MapFile(path, "", kSlots, kSide, kMuch).status();
  };
  EXPECT_EQ(why("/nowhere/replay.bin"),
            absl::NotFoundError("replay.file /nowhere/replay.bin: cannot open it: No such file or directory; "
                                "name another path"));
  const Status folder = why(dir_.path());
  EXPECT_EQ(folder.message(), "replay.file " + dir_.path() +
                                  ": cannot open it: Is a directory; name another "
                                  "path");
}

TEST(ReplayMemory, RefusesWithFigures) {
  const Status status = ReplayMemory::Make(1000, 24, 1023).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "the replay takes 1048 bytes and 1023 are available; lower replay.capacity, or set replay.file");
  EXPECT_TRUE(ReplayMemory::Make(1000, 24, 1048).ok());
}

}  // namespace
}  // namespace millrace
