// Real processes: shells that end as actors do.
#include "cli/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace millrace {
namespace {

using std::chrono_literals::operator""ms;
using testing::HasSubstr;

// What a supervisor said and did.
class Supervised {
 public:
  // `script` runs with $1 as the actor's name and the folder as its working directory.
  Supervised(const std::string& name, const std::string& script, int processes, uint32_t max_restarts)
      : dir_(absl::StrCat(testing::TempDir(), "supervisor-", getpid(), "-", name)) {
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    options_.processes = processes;
    options_.command = {"/bin/sh", "-c", "cd " + dir_ + "; " + script, "sh"};
    options_.log_dir = dir_;
    options_.max_restarts = max_restarts;
    options_.first_backoff = 1ms;
    options_.longest_backoff = 2ms;
    options_.segments = [this](const std::string&) {
      const MutexLock lock(mutex_);
      return segments_ += progress_;
    };
    options_.say = [this](const std::string& line) {
      const MutexLock lock(mutex_);
      said_ += line + "\n";
      ++lines_;
      changed_.NotifyAll();
    };
    options_.give_up = [this](const Status& why) {
      const MutexLock lock(mutex_);
      why_ = why;
      changed_.NotifyAll();
    };
  }
  void Start() { supervisor_ = std::make_unique<Supervisor>(options_); }
  void HavePatience(std::chrono::milliseconds time) { options_.patience = time; }
  void End() { supervisor_.reset(); }
  Supervisor& get() { return *supervisor_; }
  void MakeProgress() {
    const MutexLock lock(mutex_);
    progress_ = 1;
  }
  Status GaveUp() {
    const MutexLock lock(mutex_);
    for (int i = 0; i < 100 && why_.ok(); ++i) changed_.WaitFor(mutex_, 200ms);
    return why_;
  }
  void WaitForLines(int lines) {
    const MutexLock lock(mutex_);
    for (int i = 0; i < 100 && lines_ < lines; ++i) changed_.WaitFor(mutex_, 200ms);
    EXPECT_GE(lines_, lines);
  }
  std::string said() {
    const MutexLock lock(mutex_);
    return said_;
  }
  bool Appears(const std::string& file) const {
    for (int i = 0; i < 20000 && !std::filesystem::exists(dir_ + "/" + file); ++i) usleep(1000);
    return std::filesystem::exists(dir_ + "/" + file);
  }
  const std::string& dir() const { return dir_; }

 private:
  const std::string dir_;
  SupervisorOptions options_;
  Mutex mutex_;
  CondVar changed_;
  std::string said_;
  int lines_ = 0;
  uint64_t segments_ = 0, progress_ = 0;
  Status why_;
  std::unique_ptr<Supervisor> supervisor_;  // last: its threads use the above
};

TEST(Supervisor, GivesUpAfterCrashesInARowAndSaysHowTheyEnded) {
  Supervised run("crashes", "echo $1 was here; kill -9 $$", 1, 2);
  run.Start();
  const std::string why(run.GaveUp().message());
  EXPECT_THAT(why, HasSubstr("actor-0: ended by signal 9"));
  EXPECT_THAT(why, HasSubstr("3 times in a row"));
  EXPECT_THAT(why, HasSubstr("actor-0 was here"));
  EXPECT_THAT(why, HasSubstr("actor-0.log"));
}

TEST(Supervisor, CrashesWithSegmentsBetweenDoNotAddUp) {
  Supervised run("progress", "exit 3", 1, 2);
  run.MakeProgress();
  run.Start();
  run.WaitForLines(8);  // more than max_restarts
  EXPECT_THAT(run.said(), HasSubstr("ended with code 3"));
  run.End();
}

TEST(Supervisor, ARefusedActorIsFinalAtOnce) {
  Supervised run("refused", "echo other environment >&2; exit 2", 1, 5);
  run.Start();
  const std::string why(run.GaveUp().message());
  EXPECT_THAT(why, HasSubstr("ended with code 2"));
  EXPECT_THAT(why, HasSubstr("other environment"));
  EXPECT_EQ(run.said(), "");
}

TEST(Supervisor, AnActorThatLeavesIsNotStartedAgain) {
  Supervised run("leaves", "if test $1 = actor-1; then exit 0; fi; touch started; exec sleep 60", 2, 5);
  run.HavePatience(1ms);
  run.Start();
  run.WaitForLines(1);
  EXPECT_THAT(run.said(), HasSubstr("actor-1 has left"));
  EXPECT_TRUE(run.Appears("started"));
}

TEST(Supervisor, TheLastOneThatLeavesEndsTheRun) {
  Supervised run("last", "exit 0", 2, 5);
  run.Start();
  EXPECT_THAT(std::string(run.GaveUp().message()), HasSubstr("it was the last one"));
}

TEST(Supervisor, ProcessesThatEndWhenTheRunDoesAreNoCrash) {
  Supervised run("ends", "touch $1; while ! test -e end; do sleep 0.01; done; exit 3", 2, 0);
  run.Start();
  ASSERT_TRUE(run.Appears("actor-0") && run.Appears("actor-1"));
  run.get().Stopping();
  std::ofstream(run.dir() + "/end");
  run.End();
  EXPECT_EQ(run.said(), "");
}

}  // namespace
}  // namespace millrace
