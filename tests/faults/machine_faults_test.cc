// What machines and people do: full disks, ports and folders that are in use, no shared memory, addresses
// where nobody is. Each ends in one clear message, or in the next best way with the reason in the status.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "tests/faults/run_under_test.h"

namespace millrace {
namespace {

using testing::HasSubstr;

constexpr uint64_t kStepsPerUpdate = 256;

// From now on no file of the process may grow beyond `bytes`: what a full disk is to it.
void FillDisk(const Process& process, rlim_t bytes) {
  const rlimit limit = {bytes, bytes};
  ASSERT_EQ(::prlimit(process.pid(), RLIMIT_FSIZE, &limit, nullptr), 0);
}

TEST(MachineFault, AFullDiskEndsTheRunAndNothingThatWasThereIsLost) {
  Settings settings = SmallRun();
  settings.push_back("checkpoint.every=5");
  const std::string dir = FreshDir("full-disk");
  {
    Learner learner(dir, settings);
    const auto actor = StartActor(learner.address(), "a");
    learner.WaitForUpdates(6);
    FillDisk(learner.process(), 1000);
    EXPECT_EQ(learner.process().WaitForEnd(), 3);
    EXPECT_THAT(learner.process().output(), HasSubstr(dir));
    // It is told that the run has failed, and does not wait for a learner that may come back.
    const auto code = actor->WaitForEnd();
    ASSERT_TRUE(code) << actor->output();
    EXPECT_NE(*code, 0) << actor->output();
  }
  ASSERT_FALSE(Checkpoints(dir).empty());
  Learner again(dir, settings);
  const auto actor = StartActor(again.address(), "a");
  again.WaitForUpdates(5);
  again.Stop();
  ExpectBitsOfTrain(dir, settings, kStepsPerUpdate);
}

TEST(MachineFault, APortInUseIsNamed) {
  Learner first(FreshDir("port-first"), SmallRun());
  const std::string address = first.address();
  Learner second(FreshDir("port-second"), SmallRun(), Process::Options(), address);
  EXPECT_EQ(second.process().WaitForEnd(), 2) << second.process().output();
  EXPECT_THAT(second.process().output(), HasSubstr(address));
  first.Stop();
}

TEST(MachineFault, ASecondLearnerOnOneFolderIsRefusedAndTheFirstGoesOn) {
  const std::string dir = FreshDir("one-folder");
  const Settings settings = SmallRun();
  Learner first(dir, settings);
  const auto actor = StartActor(first.address(), "a");
  first.WaitForUpdates(2);
  Learner second(dir, settings);
  EXPECT_EQ(second.process().WaitForEnd(), 2) << second.process().output();
  EXPECT_THAT(second.process().output(), HasSubstr(dir));
  first.WaitForUpdates(3);
  EXPECT_EQ(first.Counter("connections_lost"), 0u);
  first.Stop();
  ExpectBitsOfTrain(dir, settings, kStepsPerUpdate);
}

// Memory files count as files: with this limit checkpoints can be written, but no ring can be made.
TEST(MachineFault, WithoutMemoryForARingSegmentsGoAnotherWayAndStatusSaysWhy) {
  Settings settings = SmallRun();
  settings.insert(settings.end(), {"env.rows=64", "env.group_rows=16", "ppo.horizon=512", "ppo.epochs=1"});
  Process::Options options;
  options.largest_file = 1'000'000;
  Learner learner(FreshDir("no-shm"), settings, options);
  const auto actor = StartActor(learner.address(), "a", "auto");
  learner.WaitForUpdates(2);
  const RunStatus status = learner.Status();
  ASSERT_EQ(status.actors.size(), 1u);
  EXPECT_THAT(status.actors[0].transport_note, HasSubstr("memory"));
  learner.Stop();
}

struct Lost {
  const char* arguments;  // NOWHERE stands for an address where nobody listens, FOLDER for an empty path
  int code;
  const char* message;
};

TEST(MachineFault, WhatIsNotThereIsNamed) {
  std::string nowhere;
  {
    Learner gone(FreshDir("gone"), SmallRun());
    nowhere = gone.address();
    gone.Stop();
  }
  const std::string folder = FreshDir("not-there");
  const Lost lost[] = {{"status NOWHERE", 3, "NOWHERE"},
                       {"status NOWHERE --json", 3, "NOWHERE"},
                       {"control NOWHERE pause", 3, "NOWHERE"},
                       {"actor --learner 127.0.0.1", 2, "127.0.0.1"},
                       {"learner --listen 127.0.0.1:0 --run FOLDER", 2, "FOLDER"},
                       {"learner cartpole --listen 127.0.0.1:0 --run /proc/nothing", 2, "/proc/nothing"},
                       {"learner cartpole --listen 127.0.0.1:0 --set mode=sometimes", 2, "mode"}};
  for (const Lost& row : lost) {
    SCOPED_TRACE(row.arguments);
    std::vector<std::string> words = {MILLRACE_BINARY};
    for (const std::string& word : std::vector<std::string>(absl::StrSplit(row.arguments, ' '))) {
      words.push_back(word == "NOWHERE" ? nowhere : word == "FOLDER" ? folder : word);
    }
    const std::string named = row.message == std::string("NOWHERE")  ? nowhere
                              : row.message == std::string("FOLDER") ? folder
                                                                     : row.message;
    Process process(words);
    EXPECT_EQ(process.WaitForEnd(), row.code) << process.output();
    EXPECT_THAT(process.output(), HasSubstr(named));
  }
}

TEST(MachineFault, AnActorWaitsForItsLearnerAndEndsWhenAsked) {
  std::string address;
  const std::string dir = FreshDir("late");
  const Settings settings = SmallRun();
  {
    Learner early(dir, settings);
    address = early.address();
    early.Stop();
  }
  const auto actor = StartActor(address, "a");
  EXPECT_TRUE(actor->WaitForLine(address)) << actor->output();  // it says whom it waits for
  Learner late(dir, settings, Process::Options(), address);
  late.WaitForUpdates(3);
  actor->Signal(SIGTERM);
  const auto code = actor->WaitForEnd();
  ASSERT_TRUE(code) << actor->output();
  EXPECT_TRUE(*code == 0 || *code == 130) << *code << "\n" << actor->output();
  EXPECT_TRUE(late.WaitFor([](const RunStatus& s) { return s.rows_missing == 8; }));
  EXPECT_EQ(late.Counter("connections_lost"), 0u);  // it said goodbye
  late.Stop();
}

}  // namespace
}  // namespace millrace
