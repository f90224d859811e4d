#include "common/run_dir.h"

#include <cerrno>
#include <string>

#include "common/testing/faulty_file_system.h"
#include "common/testing/temp_dir.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RunDirTest : public ::testing::Test {
 protected:
  static void ExpectError(const Status& status, absl::StatusCode code, const std::string& path,
                          const std::string& text) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(path), HasSubstr(text)));
  }

  TempDir temp_;
  PosixFileSystem posix_;
  FaultyFileSystem fs_{posix_};
  const std::string path_ = temp_.File("runs/a");
};

TEST_F(RunDirTest, CreateWriteResume) {
  {
    auto run = RunDir::Create(fs_, path_);
    ASSERT_TRUE(run.ok()) << run.status();
    ASSERT_TRUE(run->WriteConfig("a: 1\n").ok());
    ASSERT_TRUE(run->WriteSummary("{}").ok());
    ASSERT_TRUE(run->WriteSummary("{\"steps\":1}").ok());
  }
  ASSERT_TRUE(WriteFileAtomically(fs_, path_ + "/summary.json.tmp", "left by a crash").ok());
  auto run = RunDir::Resume(fs_, path_);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(*ReadFile(fs_, run->config_path()), "a: 1\n");
  EXPECT_EQ(*ReadFile(fs_, run->summary_path()), "{\"steps\":1}");
  EXPECT_EQ(run->metrics_path(), path_ + "/metrics.jsonl");
  EXPECT_EQ(run->checkpoints_dir(), path_ + "/checkpoints");
  EXPECT_THAT(*fs_.ListDir(path_), ElementsAre("config.yaml", "lock", "summary.json"));
}

TEST_F(RunDirTest, AnotherRunIsNotOverwritten) {
  ASSERT_TRUE(RunDir::Create(fs_, path_)->WriteConfig("a: 1\n").ok());
  ExpectError(RunDir::Create(fs_, path_).status(), absl::StatusCode::kAlreadyExists, path_,
              "--resume " + path_);
}

TEST_F(RunDirTest, OtherFilesAreLeftAlone) {
  ASSERT_TRUE(fs_.CreateDirs(path_).ok());
  ASSERT_TRUE(WriteFileAtomically(fs_, path_ + "/thesis.tex", "precious").ok());
  ExpectError(RunDir::Create(fs_, path_).status(), absl::StatusCode::kAlreadyExists, path_, "thesis.tex");
  EXPECT_THAT(*fs_.ListDir(path_), ElementsAre("thesis.tex"));
}

// A start that failed before its config was written leaves a lock file, or half of that config, and does not
// stand in the way.
TEST_F(RunDirTest, AnEmptyFolderIsFine) {
  ASSERT_TRUE(RunDir::Create(fs_, path_).ok());
  ASSERT_TRUE(RunDir::Create(fs_, path_).ok());
  const auto half = fs_.OpenForWrite(path_ + "/config.yaml.tmp", FileSystem::WriteMode::kReplace);
  ASSERT_TRUE(half.ok());
  auto run = RunDir::Create(fs_, path_);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_TRUE(run->WriteConfig("a: 1\n").ok());
  EXPECT_THAT(*fs_.ListDir(path_), ElementsAre("config.yaml", "lock"));
}

TEST_F(RunDirTest, TwoProcessesRefuse) {
  auto first = RunDir::Create(fs_, path_);
  ASSERT_TRUE(first.ok());
  ExpectError(RunDir::Create(fs_, path_).status(), absl::StatusCode::kAborted, path_, "is in use");
  ASSERT_TRUE(first->WriteConfig("a: 1\n").ok());
  ExpectError(RunDir::Resume(fs_, path_).status(), absl::StatusCode::kAborted, path_,
              "another process holds it");
}

TEST_F(RunDirTest, FileInTheWay) {
  ASSERT_TRUE(WriteFileAtomically(fs_, temp_.File("f"), "x").ok());
  for (const std::string& path : {temp_.File("f"), temp_.File("f/sub")}) {
    ExpectError(RunDir::Create(fs_, path).status(), absl::StatusCode::kInvalidArgument, path,
                "choose another folder with --run");
  }
}

TEST_F(RunDirTest, Unwritable) {
  for (const int error : {EACCES, EROFS, EPERM}) {
    fs_.faults.create_error = error;
    ExpectError(RunDir::Create(fs_, path_).status(), absl::StatusCode::kPermissionDenied, path_, "--run");
  }
  fs_.faults.create_error = ENOSPC;
  ExpectError(RunDir::Create(fs_, path_).status(), absl::StatusCode::kResourceExhausted, path_, "free space");
}

TEST_F(RunDirTest, ResumeNeedsARun) {
  ExpectError(RunDir::Resume(fs_, path_).status(), absl::StatusCode::kNotFound, path_,
              "there is no run in it");
  ASSERT_TRUE(fs_.CreateDirs(path_).ok());
  ExpectError(RunDir::Resume(fs_, path_).status(), absl::StatusCode::kNotFound, path_, "no config.yaml");
  EXPECT_THAT(*fs_.ListDir(path_), ElementsAre());
}

TEST(DefaultRunDir, NameSeedAndTime) {
  PosixFileSystem fs;
  std::tm time{};
  time.tm_year = 126, time.tm_mon = 1, time.tm_mday = 3, time.tm_hour = 4, time.tm_min = 5, time.tm_sec = 6;
  EXPECT_EQ(DefaultRunDir(fs, "cartpole", 7, time), "runs/cartpole-7-20260203-040506");
}

}  // namespace
}  // namespace millrace
