// What a checkpoint keeps of the environments: rows in step, rows that have come differently far, and damage.
#include "cli/run_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "cli/pool_source.h"
#include "cli/presets.h"
#include "cli/trainer.h"

namespace millrace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

RunOptions Small() {
  const std::vector<std::string> overrides = {"env.rows=12", "env.group_rows=4", "ppo.horizon=8",
                                              "ppo.minibatch_size=16", "run.threads=1"};
  return *LoadPresetOrFile("cartpole", overrides);
}

// A pool whose batches are all but the first group, as where one group's segments are late; its states are
// what the test says.
class UnevenSource final : public RolloutSource {
 public:
  explicit UnevenSource(std::unique_ptr<PoolSource> pool) : pool_(std::move(pool)) {}
  StatusOr<Rollout> Collect(const PolicyView& policy) override {
    MILL_ASSIGN_OR_RETURN(Rollout rollout, pool_->Collect(policy));
    rollout.segments = rollout.segments.subspan(1);
    rollout.groups = rollout.groups.subspan(1);
    return rollout;
  }
  RowStates SaveRows() const override { return states; }
  Status LoadRows(const RowStates& loaded) override {
    states = loaded;
    return absl::OkStatus();
  }
  void Stop() override { pool_->Stop(); }

  RowStates states;

 private:
  std::unique_ptr<PoolSource> pool_;
};

struct SmallRun {
  RunOptions options = Small();
  ThreadPool threads{1};
  UnevenSource* source = nullptr;  // the trainer's
  std::unique_ptr<Trainer> trainer;

  SmallRun() {
    auto pool = PoolSource::Make(options, threads);
    EXPECT_TRUE(pool.ok()) << pool.status();
    const EnvSpec spec = (*pool)->spec();
    auto uneven = std::make_unique<UnevenSource>(*std::move(pool));
    source = uneven.get();
    auto made = Trainer::Make(options, spec, {4, 4}, std::move(uneven));
    EXPECT_TRUE(made.ok()) << made.status();
    trainer = *std::move(made);
  }

  Checkpoint Save(const std::string& name) {
    const std::string dir = absl::StrCat(testing::TempDir(), "run-state-", getpid(), "-", name);
    std::filesystem::remove_all(dir);
    auto store = CheckpointStore::Open(fs, dir);
    const auto path =
        trainer->state().WithCheckpoint(options, trainer->learner(), *source,
                                        [&](const CheckpointData& data) { return store->Save(1, data); });
    EXPECT_TRUE(path.ok()) << path.status();
    auto loaded = LoadCheckpoint(fs, *path);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return *std::move(loaded);
  }
  Status Load(const Checkpoint& checkpoint) {
    return trainer->state().Restore(checkpoint, options, trainer->learner(), *source);
  }
  PosixFileSystem fs;
};

RowStates States(std::vector<uint32_t> group_rows, std::vector<uint64_t> next_step,
                 std::vector<uint8_t> known) {
  RowStates states;
  states.row_bytes = 3;
  states.group_rows = std::move(group_rows);
  states.next_step = std::move(next_step);
  states.known = std::move(known);
  size_t rows = 0;
  for (const uint32_t n : states.group_rows) rows += n;
  for (size_t i = 0; i < rows * states.row_bytes; ++i) states.bytes.push_back(static_cast<std::byte>(i));
  return states;
}

TEST(RunState, StepsAreThoseOfTheSegmentsOfTheBatch) {
  SmallRun run;
  const auto row = run.trainer->Iterate();
  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_EQ(row->steps, 8u * 8u);
}

TEST(RunState, GroupsThatCameDifferentlyFarComeBackAsTheyWere) {
  SmallRun run;
  run.source->states = States({5, 4, 3}, {24, 0, 1ull << 40}, {1, 0, 1});
  const RowStates saved = run.source->states;
  const Checkpoint checkpoint = run.Save("uneven");
  SmallRun other;
  const Status loaded = other.Load(checkpoint);
  ASSERT_TRUE(loaded.ok()) << loaded;
  EXPECT_EQ(other.source->states.bytes, saved.bytes);
  EXPECT_EQ(other.source->states.row_bytes, 3u);
  EXPECT_EQ(other.source->states.group_rows, saved.group_rows);
  EXPECT_EQ(other.source->states.next_step, saved.next_step);
  EXPECT_EQ(other.source->states.known, saved.known);
}

TEST(RunState, RowsInStepAreSavedAsTheyAlwaysWere) {
  SmallRun run;
  run.source->states = States({4, 4, 4}, {16, 16, 16}, {1, 1, 1});
  const Checkpoint checkpoint = run.Save("even");
  EXPECT_EQ(checkpoint.content.Find("env/group_rows"), nullptr);
  EXPECT_THAT(checkpoint.content.Find("env/rows")->shape, ElementsAre(12, 3));
  EXPECT_THAT(checkpoint.content.metadata.at("counters"), HasSubstr("\"agent_steps\":16"));
  SmallRun other;
  const Status loaded = other.Load(checkpoint);
  ASSERT_TRUE(loaded.ok()) << loaded;
  EXPECT_THAT(other.source->states.group_rows, ElementsAre(4, 4, 4));
  EXPECT_THAT(other.source->states.next_step, ElementsAre(16, 16, 16));
  EXPECT_THAT(other.source->states.known, ElementsAre(1, 1, 1));
}

TEST(RunState, GroupsThatDoNotAddUpAreRefused) {
  SmallRun run;
  run.source->states = States({5, 4, 3}, {24, 0, 8}, {1, 0, 1});
  Checkpoint checkpoint = run.Save("damaged");
  const std::vector<int64_t> wrong = {5, -4, 11};
  for (NamedTensor& tensor : checkpoint.content.tensors) {
    if (tensor.name == "env/group_rows") tensor.bytes = std::as_bytes(std::span<const int64_t>(wrong));
  }
  const Status refused = run.Load(checkpoint);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("add up"));
}

// A file that is whole, and yet holds a replay that no run has left.
TEST(RunState, ADamagedReplayIsRefusedBeforeTheRunGoesOn) {
  const std::vector<std::string> overrides = {
      "run.threads=1",     "replay.capacity=600", "replay.min_size=40",    "replay.prioritized=true",
      "policy.hidden=[8]", "sac.batch_size=8",    "checkpoint.replay=true"};
  const RunOptions options = *LoadPresetOrFile("pendulum-sac", overrides);
  const auto make = [&] {
    auto made = Trainer::Make(options);
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  };
  const auto trainer = make();
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(trainer->Iterate().ok());
  PosixFileSystem fs;
  const std::string dir = absl::StrCat(testing::TempDir(), "run-state-", getpid(), "-replay");
  std::filesystem::remove_all(dir);
  auto store = CheckpointStore::Open(fs, dir);
  const float nan = std::nanf("");
  const uint32_t far = 1u << 30;
  const auto bytes_of = [](const auto& value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  struct Case {
    std::string tensor, begins_with;  // the bytes that it gets
    bool shorter = false;
    absl::StatusCode code = absl::StatusCode::kDataLoss;
  };
  for (const Case& c : {Case{"replay/pages", bytes_of(far)}, Case{"replay/priorities", bytes_of(nan)},
                        Case{"replay/lanes", bytes_of(uint64_t{far})},
                        Case{"replay/flags", "", true, absl::StatusCode::kInvalidArgument}, Case{"", ""}}) {
    std::string changed;
    const auto path = trainer->state().WithCheckpoint(
        options, trainer->learner(), trainer->source(), [&](const CheckpointData& data) {
          CheckpointData spoilt = data;
          for (NamedTensor& t : spoilt.tensors) {
            if (t.name != c.tensor) continue;
            if (c.shorter) --t.shape[0];
            const size_t n = t.bytes.size() / (t.shape[0] + c.shorter) * t.shape[0];
            changed.assign(reinterpret_cast<const char*>(t.bytes.data()), n);
            changed.replace(0, c.begins_with.size(), c.begins_with);
            t.bytes = std::as_bytes(std::span(changed));
          }
          return store->Save(1, spoilt);
        });
    ASSERT_TRUE(path.ok()) << path.status();
    const auto checkpoint = LoadCheckpoint(fs, *path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    const auto other = make();
    const Status status = other->state().Restore(*checkpoint, options, other->learner(), other->source());
    if (c.tensor.empty()) {
      EXPECT_TRUE(status.ok()) << status;
      continue;
    }
    EXPECT_EQ(status.code(), c.code) << status;
    for (const std::string& part : {*path, c.tensor, std::string("checkpoint.replay=false")}) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(part));
    }
  }
}

TEST(RunState, TheReplayMayComeBackToARunThatWentOnWithoutIt) {
  const auto options = [](const std::string& replay) {
    const std::vector<std::string> overrides = {"run.threads=1",      "replay.capacity=600",
                                                "replay.min_size=40", "policy.hidden=[8]",
                                                "sac.batch_size=8",   replay};
    return *LoadPresetOrFile("pendulum-sac", overrides);
  };
  PosixFileSystem fs;
  const std::string dir = absl::StrCat(testing::TempDir(), "run-state-", getpid(), "-back");
  std::filesystem::remove_all(dir);
  auto store = CheckpointStore::Open(fs, dir);
  const auto save = [&](const RunOptions& o, Trainer& trainer) {
    const auto path = trainer.state().WithCheckpoint(
        o, trainer.learner(), trainer.source(),
        [&](const CheckpointData& data) { return store->Save(trainer.learner().updates(), data); });
    EXPECT_TRUE(path.ok()) << path.status();
    return *LoadCheckpoint(fs, *path);
  };
  const RunOptions without = options("checkpoint.replay=false"), with = options("checkpoint.replay=true");
  const std::unique_ptr<Trainer> first = *Trainer::Make(without), second = *Trainer::Make(with);
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(first->Iterate().ok());
  const Checkpoint none = save(without, *first);
  EXPECT_FALSE(HasReplay(none));
  const Status status = second->state().Restore(none, with, second->learner(), second->source());
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(second->learner().updates(), 60u);
  ASSERT_TRUE(second->Iterate().ok());
  EXPECT_TRUE(HasReplay(save(with, *second)));
}

// Fewer critics find all their tensors among those of more; they are refused as more are.
TEST(RunState, CriticsOfOtherSettingsAreRefusedWithThoseSettings) {
  const auto make = [](const std::string& setting) {
    const std::vector<std::string> overrides = {"run.threads=1", "policy.hidden=[8]", "sac.critics=3",
                                                setting};
    const auto options = LoadPresetOrFile("pendulum-sac", overrides);
    EXPECT_TRUE(options.ok()) << options.status();
    auto made = Trainer::Make(*options);
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  };
  const std::string plain = "sac.layer_norm=false", norm = "sac.layer_norm=true";
  PosixFileSystem fs;
  const std::string dir = absl::StrCat(testing::TempDir(), "run-state-", getpid(), "-critics");
  for (const auto& [before, after] : {std::pair<std::string, std::string>{plain, "sac.critics=2"},
                                      {plain, "sac.critics=4"},
                                      {plain, norm},
                                      {norm, plain},
                                      {plain, "sac.critic_hidden=[9]"},
                                      {plain, "sac.critic_hidden=[8,8]"}}) {
    SCOPED_TRACE(absl::StrCat(before, " -> ", after));
    std::filesystem::remove_all(dir);
    auto store = CheckpointStore::Open(fs, dir);
    const auto from = make(before), to = make(after);
    const auto path =
        from->state().WithCheckpoint(from->options(), from->learner(), from->source(),
                                     [&](const CheckpointData& data) { return store->Save(1, data); });
    ASSERT_TRUE(path.ok()) << path.status();
    const auto checkpoint = LoadCheckpoint(fs, *path);
    for (const Status& status : {to->state().Restore(*checkpoint, to->options(), to->learner(), to->source()),
                                 RestoreWeights(*checkpoint, to->learner())}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("sac.critics, sac.critic_hidden, sac.layer_norm"));
    }
  }
  std::filesystem::remove_all(dir);
}

TEST(RunState, APoolRefusesGroupsThatAreNotInStep) {
  ThreadPool threads(1);
  auto pool = PoolSource::Make(Small(), threads);
  ASSERT_TRUE(pool.ok());
  RowStates states = (*pool)->SaveRows();
  EXPECT_TRUE((*pool)->LoadRows(states).ok());
  states.next_step[1] = 8;
  EXPECT_THAT(std::string((*pool)->LoadRows(states).message()), HasSubstr("differently far"));
  states.next_step[1] = 0;
  states.group_rows = {6, 6};
  EXPECT_THAT(std::string((*pool)->LoadRows(states).message()), HasSubstr("2 groups of 6"));
}

TEST(RunState, AStoppedSourceEndsTheIterationWithNothingDone) {
  SmallRun run;
  run.source->Stop();
  EXPECT_EQ(run.trainer->Iterate().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(run.trainer->state().steps, 0u);
  EXPECT_EQ(run.trainer->learner().updates(), 0u);
}

}  // namespace
}  // namespace millrace
