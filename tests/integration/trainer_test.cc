// What a run promises, in one process: a resumed run has the bits of one that never stopped, threads change
// nothing, and a change of any preset's arithmetic is noticed.
#include "cli/trainer.h"

#include <gmock/gmock.h>
#include <gnu/libc-version.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <xxhash.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/presets.h"

namespace millrace {
namespace {

RunOptions Preset(const std::string& name, std::vector<std::string> overrides = {}) {
  const auto options = LoadPresetOrFile(name, overrides);
  EXPECT_TRUE(options.ok()) << options.status();
  return *options;
}

std::unique_ptr<Trainer> MakeTrainer(const RunOptions& options) {
  auto trainer = Trainer::Make(options);
  EXPECT_TRUE(trainer.ok()) << trainer.status();
  return *std::move(trainer);
}

void Iterate(Trainer& trainer, int updates) {
  for (int i = 0; i < updates; ++i) {
    const auto row = trainer.Iterate();
    ASSERT_TRUE(row.ok()) << row.status();
  }
}

// A checksum of everything that an update changes: weights, optimizer, statistics, environments.
std::string Checksum(Trainer& trainer) {
  XXH3_state_t* state = XXH3_createState();
  XXH3_64bits_reset(state);
  for (const StateTensor& tensor : trainer.learner().State()) {
    const size_t n = tensor.elements();
    if (tensor.f32 != nullptr) XXH3_64bits_update(state, tensor.f32, n * sizeof(float));
    if (tensor.f64 != nullptr) XXH3_64bits_update(state, tensor.f64, n * sizeof(double));
    if (tensor.i64 != nullptr) XXH3_64bits_update(state, tensor.i64, n * sizeof(int64_t));
    if (tensor.bytes != nullptr) XXH3_64bits_update(state, tensor.bytes, n);
  }
  const std::vector<std::byte> rows = trainer.source().SaveRows().bytes;
  XXH3_64bits_update(state, rows.data(), rows.size());
  const uint64_t digest = XXH3_64bits_digest(state);
  XXH3_freeState(state);
  return absl::StrFormat("%016x", digest);
}

// A preset as it is, but that SAC begins to learn at once, takes two gradient steps for a step where it takes
// more, and saves what it learns from.
RunOptions Prompt(const std::string& name, std::vector<std::string> overrides = {}) {
  if (IsSac(Preset(name))) {
    for (const char* setting : {"replay.min_size=40", "sac.random_steps=20", "checkpoint.replay=true"})
      overrides.push_back(setting);
    if (Preset(name).sac.updates_per_step > 2) overrides.push_back("sac.updates_per_step=2");
  }
  return Preset(name, overrides);
}

// Updates that show what a preset does: SAC's are single steps.
int Some(const RunOptions& options, int updates) {
  return IsSac(options) ? 30 * updates : updates;
}

std::vector<std::string> PresetNames() {
  std::vector<std::string> names;
  for (const auto& preset : Presets()) names.push_back(preset.name);
  return names;
}

class EveryPreset : public testing::TestWithParam<std::string> {};

TEST_P(EveryPreset, ResumeHasTheBitsOfARunThatNeverStopped) {
  const RunOptions options = Prompt(GetParam());
  const std::string dir = absl::StrCat(testing::TempDir(), "resume-", getpid(), "-", GetParam());
  std::filesystem::remove_all(dir);
  auto whole = MakeTrainer(options);
  Iterate(*whole, Some(options, 4));

  auto first = MakeTrainer(options);
  Iterate(*first, Some(options, 2));
  PosixFileSystem fs;
  auto store = CheckpointStore::Open(fs, dir);
  ASSERT_TRUE(store.ok()) << store.status();
  const auto saved =
      first->state().WithCheckpoint(options, first->learner(), first->source(),
                                    [&](const CheckpointData& data) { return store->Save(2, data); });
  ASSERT_TRUE(saved.ok()) << saved.status();
  first.reset();

  auto second = MakeTrainer(options);
  const auto checkpoint = LoadLatestCheckpoint(fs, dir, nullptr);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const Status restored = second->state().Restore(*checkpoint, options, second->learner(), second->source());
  ASSERT_TRUE(restored.ok()) << restored;
  Iterate(*second, Some(options, 2));
  EXPECT_EQ(Checksum(*second), Checksum(*whole));
  EXPECT_EQ(second->state().steps, whole->state().steps);
  EXPECT_EQ(second->state().episodes.total(), whole->state().episodes.total());
  EXPECT_EQ(std::isnan(second->RecentReturn()) ? 0 : second->RecentReturn(),
            std::isnan(whole->RecentReturn()) ? 0 : whole->RecentReturn());
}

TEST_P(EveryPreset, ThreadsDoNotChangeABit) {
  std::vector<std::string> sums;
  for (const char* threads : {"run.threads=1", "run.threads=2", "run.threads=5"}) {
    const RunOptions options = Prompt(GetParam(), {threads});
    auto trainer = MakeTrainer(options);
    Iterate(*trainer, Some(options, 2));
    sums.push_back(Checksum(*trainer));
  }
  EXPECT_THAT(sums, testing::Each(sums[0]));
}

// The checksum after the first updates, for the build and C library that recorded it; elsewhere the
// comparison says that it does not apply. MILLRACE_RECORD=1 writes the record anew: a change of it belongs
// into the commit that caused it.
TEST_P(EveryPreset, TheFirstUpdatesHaveTheRecordedChecksum) {
  const std::string path = MILLRACE_GOLDEN_DIR "/preset_checksums.json";
  const std::string fingerprint = absl::StrCat(MILLRACE_BUILD, " glibc-", gnu_get_libc_version());
  nlohmann::ordered_json record;
  if (std::ifstream in(path); in) record = nlohmann::ordered_json::parse(in);
  const bool recording = std::getenv("MILLRACE_RECORD") != nullptr;
  ASSERT_TRUE(recording || record.is_object()) << path << " is missing";
  const bool same_build = record.is_object() && record.value("fingerprint", "") == fingerprint;
  if (!recording && !same_build) {
    GTEST_SKIP() << "the record is of " << record.value("fingerprint", "") << "; this is " << fingerprint;
  }
  if (!same_build) record = {{"fingerprint", fingerprint}};
  const RunOptions options = Prompt(GetParam());
  auto trainer = MakeTrainer(options);
  Iterate(*trainer, IsSac(options) ? 100 : 20);
  const std::string sum = Checksum(*trainer);
  if (recording) {
    record["checksums"][GetParam()] = sum;
    std::ofstream(path) << record.dump(1) << "\n";
    return;
  }
  ASSERT_TRUE(record["checksums"].contains(GetParam()))
      << "no record of this preset; see MILLRACE_RECORD above";
  EXPECT_EQ(sum, record["checksums"][GetParam()])
      << "the arithmetic of this preset has changed; if that is meant, run with MILLRACE_RECORD=1";
}

INSTANTIATE_TEST_SUITE_P(Presets, EveryPreset, testing::ValuesIn(PresetNames()), [](const auto& info) {
  std::string name = info.param;
  std::erase(name, '-');
  return name;
});

TEST(Trainer, TheFirstMinibatchSeesAnUnchangedPolicy) {
  // One minibatch an update: the ratio is that of the weights that acted, so it must be 1.
  auto trainer = MakeTrainer(
      Preset("cartpole", {"ppo.minibatch_size=256", "ppo.horizon=32", "ppo.epochs=1", "env.rows=8"}));
  for (int i = 0; i < 3; ++i) {
    const auto row = trainer->Iterate();
    ASSERT_TRUE(row.ok());
    EXPECT_NEAR(row->approx_kl, 0, 1e-7);
    EXPECT_EQ(row->clip_fraction, 0);
  }
  auto normalized = MakeTrainer(
      Preset("pendulum", {"ppo.minibatch_size=512", "ppo.horizon=64", "ppo.epochs=1", "env.rows=8"}));
  for (int i = 0; i < 3; ++i) {
    const auto row = normalized->Iterate();
    ASSERT_TRUE(row.ok());
    EXPECT_NEAR(row->approx_kl, 0, 1e-6);
  }
}

TEST(Trainer, SacTakesItsGradientStepsAtTheRatio) {
  auto trainer = MakeTrainer(Prompt("pendulum-sac", {"sac.updates_per_step=0.5", "env.rows=3"}));
  uint64_t before = 0;
  for (int i = 0; i < 60; ++i) {
    const auto row = trainer->Iterate();
    ASSERT_TRUE(row.ok()) << row.status();
    EXPECT_EQ(row->algorithm, MetricsOf::kSac);
    EXPECT_EQ(row->steps, 3u * static_cast<uint64_t>(i + 1));
    EXPECT_EQ(row->replay_size, row->steps);
    if (i >= 20) {
      EXPECT_LE(row->gradient_steps - before, 2u);
    }
    before = row->gradient_steps;
  }
  EXPECT_NEAR(static_cast<double>(before), 0.5 * (180 - 40), 2);
}

TEST(Trainer, EvaluationIsRepeatableAndChangesNothing) {
  auto trainer = MakeTrainer(Preset("cartpole", {"eval.episodes=20"}));
  Iterate(*trainer, 2);
  const std::string before = Checksum(*trainer);
  const auto first = trainer->EvaluateNow(), second = trainer->EvaluateNow();
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->returns.size(), 20u);
  EXPECT_EQ(first->returns, second->returns);
  EXPECT_EQ(Checksum(*trainer), before);
}

}  // namespace
}  // namespace millrace
