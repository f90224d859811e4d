#include "common/file_system.h"

#include <cerrno>
#include <filesystem>

#include "common/testing/faulty_file_system.h"
#include "common/testing/temp_dir.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(PosixFileSystem, AppendsReadsAndTruncates) {
  TempDir dir;
  PosixFileSystem fs;
  const std::string path = dir.File("a");
  auto file = fs.OpenForWrite(path, FileSystem::WriteMode::kAppend);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Append("hello ").ok());
  ASSERT_TRUE((*file)->Append("world").ok());
  EXPECT_EQ(*ReadFile(fs, path), "hello world");
  EXPECT_EQ(*fs.Read(path, 6, 3), "wor");
  EXPECT_EQ(*fs.Read(path, 9, 100), "ld");
  EXPECT_EQ(*fs.Read(path, 100, 1), "");
  EXPECT_EQ(*fs.Size(path), 11u);
  ASSERT_TRUE((*file)->Truncate(5).ok());
  ASSERT_TRUE((*file)->Append("!").ok());
  ASSERT_TRUE((*file)->Sync().ok());
  ASSERT_TRUE((*file)->Close().ok());
  ASSERT_TRUE((*file)->Close().ok());
  EXPECT_EQ(*ReadFile(fs, path), "hello!");
  ASSERT_TRUE((*fs.OpenForWrite(path, FileSystem::WriteMode::kAppend))->Append("?").ok());
  EXPECT_EQ(*ReadFile(fs, path), "hello!?");
  ASSERT_TRUE((*fs.OpenForWrite(path, FileSystem::WriteMode::kReplace))->Append("new").ok());
  EXPECT_EQ(*ReadFile(fs, path), "new");
}

TEST(PosixFileSystem, FoldersAndNames) {
  TempDir dir;
  PosixFileSystem fs;
  const std::string deep = dir.File("x/y/z");
  ASSERT_TRUE(fs.CreateDirs(deep).ok());
  ASSERT_TRUE(fs.CreateDirs(deep).ok());
  ASSERT_TRUE(WriteFileAtomically(fs, deep + "/b", "1").ok());
  ASSERT_TRUE(WriteFileAtomically(fs, deep + "/a", "2").ok());
  EXPECT_THAT(*fs.ListDir(deep), ElementsAre("a", "b"));
  ASSERT_TRUE(fs.Rename(deep + "/a", deep + "/c").ok());
  ASSERT_TRUE(fs.Remove(deep + "/b").ok());
  EXPECT_THAT(*fs.ListDir(deep), ElementsAre("c"));
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
  EXPECT_EQ(JoinPath("", "b"), "b");
  EXPECT_EQ(DirName("a/b/c"), "a/b");
  EXPECT_EQ(DirName("/c"), "/");
  EXPECT_EQ(DirName("c"), ".");
}

TEST(PosixFileSystem, ErrorsNamePathAndReason) {
  TempDir dir;
  PosixFileSystem fs;
  const std::string missing = dir.File("nothing");
  EXPECT_EQ(ReadFile(fs, missing).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(ReadFile(fs, missing).status().message(),
              AllOf(HasSubstr(missing), HasSubstr("No such file or directory")));
  EXPECT_EQ(fs.ListDir(missing).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(fs.Size(missing).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(fs.Remove(missing).ok());
  EXPECT_FALSE(fs.Rename(missing, dir.File("b")).ok());
  EXPECT_FALSE(fs.SyncDir(missing).ok());
  EXPECT_FALSE(ReadFile(fs, dir.path()).ok()) << "a folder is no file";
  ASSERT_TRUE(WriteFileAtomically(fs, dir.File("file"), "x").ok());
  EXPECT_FALSE(fs.CreateDirs(dir.File("file/sub")).ok());
  EXPECT_THAT(FileError(ENOSPC, "write", "p").message(),
              HasSubstr("free space or choose another folder with --run"));
  EXPECT_EQ(FileError(ENOSPC, "write", "p").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(FileError(EACCES, "write", "p").code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(FileError(EROFS, "write", "p").code(), absl::StatusCode::kPermissionDenied);
}

TEST(PosixFileSystem, FullDiskIsReported) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  PosixFileSystem fs;
  auto file = fs.OpenForWrite("/dev/full", FileSystem::WriteMode::kAppend);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->Append("x").code(), absl::StatusCode::kResourceExhausted);
}

TEST(PosixFileSystem, LockExcludesAndEnds) {
  TempDir dir;
  PosixFileSystem fs;
  auto first = fs.Lock(dir.File("lock"));
  ASSERT_TRUE(first.ok()) << first.status();
  auto second = fs.Lock(dir.File("lock"));
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(second.status().message(), HasSubstr("process "));
  first->reset();
  EXPECT_TRUE(fs.Lock(dir.File("lock")).ok());
}

// After each fault the old content is there, whole, and no temp file is left.
TEST(WriteFileAtomically, AnyFaultLeavesTheOldFile) {
  TempDir dir;
  PosixFileSystem posix;
  FaultyFileSystem fs(posix);
  const std::string path = dir.File("f");
  ASSERT_TRUE(WriteFileAtomically(fs, path, "old").ok());
  std::vector<FaultyFileSystem::Faults> plans(4);
  plans[0].disk_bytes = 0;
  plans[1].disk_bytes = 2;
  plans[2].sync_fails = true;
  plans[3].rename_fails = true;
  for (const auto& plan : plans) {
    fs.faults = plan;
    EXPECT_FALSE(WriteFileAtomically(fs, path, "newer").ok());
    EXPECT_EQ(*ReadFile(fs, path), "old");
    EXPECT_THAT(*fs.ListDir(dir.path()), ElementsAre("f"));
  }
  fs.faults = {};
  ASSERT_TRUE(WriteFileAtomically(fs, path, "newer").ok());
  EXPECT_EQ(*ReadFile(fs, path), "newer");
}

TEST(WriteFileAtomically, KilledAnywhereLeavesOldOrNew) {
  TempDir dir;
  PosixFileSystem posix;
  const std::string path = dir.File("f");
  bool finished = false;
  for (uint64_t operations = 0; !finished; ++operations) {
    ASSERT_TRUE(WriteFileAtomically(posix, path, "old").ok());
    FaultyFileSystem fs(posix);
    fs.faults.operations = operations;
    finished = WriteFileAtomically(fs, path, "new").ok();
    const std::string now = *ReadFile(posix, path);
    EXPECT_TRUE(now == "new" || (now == "old" && !finished)) << now;
    ASSERT_LT(operations, 20u);
  }
}

}  // namespace
}  // namespace millrace
