// kill -9 of actors and the learner at random instants, a third of them while a checkpoint is being written.
// The Ledger environment numbers each row's transitions, and segments.jsonl says which of them were trained
// on: at the end they must be all, each once.
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "common/file_system.h"
#include "common/text.h"
#include "tests/faults/run_under_test.h"

namespace millrace {
namespace {

namespace stdfs = std::filesystem;
using std::chrono_literals::operator""ms;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

constexpr uint64_t kStepsPerUpdate = 256;
constexpr uint64_t kHorizon = 32;

class KilledRun {
 public:
  KilledRun(const std::string& name, Settings settings, int actors, unsigned seed)
      : dir_(FreshDir(name)), settings_(std::move(settings)), random_(seed) {
    learner_ = std::make_unique<Learner>(dir_, settings_);
    address_ = learner_->address();
    actors_.resize(static_cast<size_t>(actors));
    StartMissing();
  }

  Learner& learner() { return *learner_; }
  const std::string& dir() const { return dir_; }
  uint64_t stale() const { return stale_; }

  // Kills somebody while the run is in full swing, and starts what died again.
  void Kill(bool in_checkpoint) {
    learner_->WaitForUpdates(1);
    if (testing::Test::HasFailure()) return;
    stale_ += learner_->Counter("dropped_stale");
    const unsigned who = in_checkpoint ? 1 + random_() % 2 : random_() % 3;  // actor, learner, both
    if (in_checkpoint) {
      AwaitCheckpointBeingWritten();
    } else {
      learner_->process().WaitForEnd(std::chrono::milliseconds(random_() % 120));
    }
    const size_t actor = random_() % actors_.size();
    if (who != 0) learner_->process().Signal(SIGKILL);
    if (who != 1) actors_[actor]->Kill();
    if (who != 0) {
      learner_->process().Kill();
      stale_ = 0;  // what it had counted went with it, and so did all that it had not saved
      learner_ = std::make_unique<Learner>(dir_, settings_, Process::Options(), address_);
      EXPECT_EQ(learner_->address(), address_) << learner_->process().output();
    }
    StartMissing();
  }

  // Ends the run in order.
  void Stop() {
    learner_->WaitForUpdates(3);
    stale_ += learner_->Counter("dropped_stale");
    learner_->Stop();
  }

  int kills_in_checkpoint() const { return kills_in_checkpoint_; }
  std::string Outputs() const {
    std::string all = Cat("learner:\n", learner_->process().output());
    for (const auto& actor : actors_) CatTo(all, "\nactor:\n", actor->output());
    return all;
  }

 private:
  void StartMissing() {
    for (size_t i = 0; i < actors_.size(); ++i) {
      if (actors_[i] == nullptr || !actors_[i]->running()) {
        actors_[i] = StartActor(address_, Cat("actor-", i), i % 2 == 0 ? "grpc" : "auto");
      }
    }
  }

  // Looks without a pause: the file is there for a moment only.
  void AwaitCheckpointBeingWritten() {
    const auto until = Clock::now() + 3000ms;
    std::error_code gone;
    while (Clock::now() < until) {
      for (stdfs::directory_iterator it(dir_ + "/checkpoints", gone), end; !gone && it != end;
           it.increment(gone)) {
        if (it->path().extension() == kTempSuffix) {
          ++kills_in_checkpoint_;
          return;
        }
      }
    }
  }

  const std::string dir_;
  const Settings settings_;
  std::mt19937 random_;
  std::string address_;
  std::unique_ptr<Learner> learner_;
  std::vector<std::unique_ptr<Process>> actors_;
  uint64_t stale_ = 0;
  int kills_in_checkpoint_ = 0;
};

// Walks through segments.jsonl: every group's segments follow each other, and the reward of each says that it
// holds the transitions that its place claims. Returns the segments that are missing between others.
uint64_t CheckSegments(const std::string& dir, uint64_t segments_per_update) {
  std::map<uint64_t, uint64_t> next_step;  // by group
  std::map<uint64_t, uint64_t> in_update;
  uint64_t gaps = 0, last_update = 0;
  std::ifstream in(dir + "/segments.jsonl");
  std::string line;
  while (std::getline(in, line)) {
    const Json row = Json::parse(line);
    const uint64_t update = row["update"], group = row["group"], first = row["first_step"];
    const uint64_t steps = row["steps"], rows = row["rows"];
    EXPECT_GE(update, last_update) << line;
    last_update = update;
    ++in_update[update];
    EXPECT_EQ(steps, kHorizon);
    EXPECT_GE(first, next_step[group]) << "trained on twice: " << line;
    EXPECT_EQ((first - next_step[group]) % steps, 0u) << line;
    gaps += (first - next_step[group]) / steps;
    next_step[group] = first + steps;
    // The k-th transition of a row has reward k.
    EXPECT_EQ(row["reward_sum"], static_cast<double>(rows * (steps * first + steps * (steps + 1) / 2)))
        << line;
    if (testing::Test::HasFailure()) return gaps;
  }
  EXPECT_EQ(in_update.size(), last_update);
  for (const auto& [update, segments] : in_update) EXPECT_EQ(segments, segments_per_update) << update;
  const std::vector<std::string> checkpoints = Checkpoints(dir);
  EXPECT_FALSE(checkpoints.empty());
  if (!checkpoints.empty()) {
    EXPECT_EQ(UpdateOf(checkpoints.back()), last_update);
  }
  return gaps;
}

void ExpectWholeMetrics(const std::string& dir) {
  std::ifstream in(dir + "/metrics.jsonl");
  std::string line;
  uint64_t update = 0;
  while (std::getline(in, line)) EXPECT_EQ(Json::parse(line)["update"], ++update);
  EXPECT_GT(update, 0u);
}

Settings KillSettings() {
  Settings settings = SmallLedger();
  // A network large enough that writing it takes a while, and written often.
  settings.insert(settings.end(),
                  {"policy.hidden=[256,256]", "checkpoint.every=3", "ppo.epochs=1", "env.step_wait_us=200"});
  return settings;
}

void KillAndCheck(const std::string& mode, uint64_t segments_per_update) {
  Settings settings = KillSettings();
  settings.push_back("mode=" + mode);
  const int kills = LongForm() ? 100 : 10;
  KilledRun run("kill-" + mode, settings, 2, mode == "sync" ? 20261129 : 31);
  const auto began = Clock::now();
  for (int i = 0; i < kills && !testing::Test::HasFailure(); ++i) run.Kill(i % 3 == 2);
  run.Stop();
  std::printf("%s: %d kills in %.1f s, %d of them while a checkpoint was written\n", mode.c_str(), kills,
              std::chrono::duration<double>(Clock::now() - began).count(), run.kills_in_checkpoint());
  const uint64_t gaps = CheckSegments(run.dir(), segments_per_update);
  ExpectWholeMetrics(run.dir());
  if (mode == "sync") {
    EXPECT_EQ(gaps, 0u);
    ExpectBitsOfTrain(run.dir(), settings, kStepsPerUpdate);
  } else {
    EXPECT_LE(gaps, run.stale()) << "segments are missing that nobody counted";
  }
  if (testing::Test::HasFailure()) std::printf("%s\n", run.Outputs().c_str());
}

TEST(KillLedger, InSyncModeEachTransitionIsTrainedOnOnceAndTheBitsAreThoseOfOneProcess) {
  KillAndCheck("sync", 4);
}

TEST(KillLedger, InAsyncModeEachTransitionIsTrainedOnOnceOrCounted) {
  KillAndCheck("async", 4);
}

// The preset as users run it, to its target.
TEST(KillLedger, AfterKillsCartPoleReachesItsTargetInAsManySteps) {
  const auto target_steps = [](const std::string& dir) -> uint64_t {
    const Json summary = Json::parse(ReadText(dir + "/summary.json"), nullptr, false);
    if (!summary.is_object()) return 0;
    EXPECT_EQ(summary["end"], "target_reached");
    return summary["target_steps"];
  };
  const std::string alone = FreshDir("target-alone");
  Process train({MILLRACE_BINARY, "train", "cartpole", "--seed", "3", "--run", alone});
  KilledRun run("target-killed", {"run.seed=3", "checkpoint.every=5", "actors.lease_seconds=2"}, 2, 7);
  for (int i = 0; i < (LongForm() ? 20 : 3) && !testing::Test::HasFailure(); ++i) run.Kill(false);
  ASSERT_EQ(run.learner().process().WaitForEnd(), 0) << run.Outputs();
  ASSERT_EQ(train.WaitForEnd(), 0) << train.output();
  const uint64_t undisturbed = target_steps(alone), killed = target_steps(run.dir());
  std::printf("target reached after %lu steps, undisturbed after %lu\n", killed, undisturbed);
  EXPECT_LE(static_cast<double>(killed), 1.3 * static_cast<double>(undisturbed));
  EXPECT_EQ(killed, undisturbed);  // which sync mode promises
}

}  // namespace
}  // namespace millrace
