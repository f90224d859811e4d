// A checkpoint that is written beside training holds what the run was when it was asked for.
#include "cli/checkpoint_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/presets.h"
#include "cli/trainer.h"
#include "common/file_system.h"
#include "common/testing/faulty_file_system.h"
#include "common/testing/temp_dir.h"

namespace millrace {
namespace {

using testing::HasSubstr;

RunOptions OptionsOf(const std::string& preset) {
  std::vector<std::string> overrides = {"run.threads=1", "policy.hidden=[8]"};
  if (preset == "pendulum-sac") {
    for (const char* setting : {"replay.capacity=300", "replay.min_size=40", "replay.prioritized=true",
                                "sac.batch_size=8", "checkpoint.replay=true"}) {
      overrides.push_back(setting);
    }
  }
  return *LoadPresetOrFile(preset, overrides);
}

std::unique_ptr<Trainer> MakeTrainer(const RunOptions& options) {
  auto made = Trainer::Make(options);
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

CheckpointWriter::Job JobOf(Trainer& trainer, bool best = false, uint32_t keep = 3) {
  return {trainer.learner().updates(), best, keep, std::chrono::steady_clock::now(),
          trainer.state().Copy(trainer.options(), trainer.learner(), trainer.source())};
}

TEST(CheckpointWriter, WhatIsWrittenIsTheMomentOfTheCopy) {
  for (const char* preset : {"cartpole", "pendulum-sac"}) {
    const RunOptions options = OptionsOf(preset);
    const int some = IsSac(options) ? 150 : 2;  // the replay goes round
    const auto trainer = MakeTrainer(options);
    PosixFileSystem fs;
    TempDir dir;
    auto beside = CheckpointStore::Open(fs, JoinPath(dir.path(), "beside"));
    auto within = CheckpointStore::Open(fs, JoinPath(dir.path(), "within"));
    ASSERT_TRUE(beside.ok() && within.ok());
    CheckpointWriter writer(*beside);
    EXPECT_FALSE(writer.Take(/*wait=*/true).has_value()) << "nothing was started";
    for (int round = 0; round < 4; ++round) {
      for (int i = 0; i < some; ++i) ASSERT_TRUE(trainer->Iterate().ok());
      const uint64_t update = trainer->learner().updates();
      const auto expected = trainer->state().WithCheckpoint(
          options, trainer->learner(), trainer->source(),
          [&](const CheckpointData& data) { return within->Save(update, data); });
      ASSERT_TRUE(expected.ok()) << expected.status();
      CheckpointWriter::Job job = JobOf(*trainer);
      for (int i = 0; i < some; ++i) ASSERT_TRUE(trainer->Iterate().ok());
      writer.Start(std::move(job));
      for (int i = 0; i < some; ++i) ASSERT_TRUE(trainer->Iterate().ok());
      const auto written = writer.Take(/*wait=*/true);
      ASSERT_TRUE(written.has_value());
      ASSERT_TRUE(written->ok()) << written->status();
      EXPECT_EQ((*written)->update, update);
      EXPECT_TRUE(*ReadFile(fs, (*written)->path) == *ReadFile(fs, *expected)) << preset << " " << update;
      EXPECT_FALSE(writer.busy());
      EXPECT_FALSE(writer.Take(/*wait=*/false).has_value()) << "once";
    }
    EXPECT_EQ(fs.ListDir(beside->dir())->size(), 3u) << "the newest stay";
    writer.Start(JobOf(*trainer, /*best=*/true));
    ASSERT_TRUE(writer.Take(/*wait=*/true)->ok());
    EXPECT_TRUE(FileExists(fs, BestCheckpointPath(beside->dir())));
  }
}

TEST(CheckpointWriter, AnErrorIsTakenAndTheNextOneIsWritten) {
  const auto trainer = MakeTrainer(OptionsOf("pendulum-sac"));
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(trainer->Iterate().ok());
  TempDir dir;
  PosixFileSystem posix;
  FaultyFileSystem fs(posix);
  auto store = CheckpointStore::Open(fs, dir.path());
  ASSERT_TRUE(store.ok());
  CheckpointWriter writer(*store);
  fs.faults.disk_bytes = 1000;
  writer.Start(JobOf(*trainer));
  const auto failed = writer.Take(/*wait=*/true);
  ASSERT_TRUE(failed.has_value());
  EXPECT_FALSE(failed->ok());
  EXPECT_THAT(std::string(failed->status().message()), HasSubstr("update-000000050"));
  EXPECT_TRUE(absl::IsNotFound(LoadLatestCheckpoint(posix, dir.path(), nullptr).status()));
  fs.faults.disk_bytes = FaultyFileSystem::kNever;
  writer.Start(JobOf(*trainer));
  EXPECT_TRUE(writer.Take(/*wait=*/true)->ok());
  EXPECT_TRUE(LoadLatestCheckpoint(posix, dir.path(), nullptr).ok());
}

TEST(CheckpointWriter, ItsEndWaitsForTheWrite) {
  const auto trainer = MakeTrainer(OptionsOf("pendulum-sac"));
  TempDir dir;
  PosixFileSystem fs;
  auto store = CheckpointStore::Open(fs, dir.path());
  ASSERT_TRUE(store.ok());
  {
    CheckpointWriter writer(*store);
    writer.Start(JobOf(*trainer));
  }
  EXPECT_TRUE(LoadLatestCheckpoint(fs, dir.path(), nullptr).ok());
}

}  // namespace
}  // namespace millrace
