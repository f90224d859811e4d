// What is asked of a run that waits for actors, of which there are none: the loop is a thread of the test.
#include "cli/run_control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <thread>

#include "cli/presets.h"

namespace millrace {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::HasSubstr;
using End = RunControl::End;

std::chrono::steady_clock::time_point In(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

struct Fixture {
  RunOptions options;
  std::unique_ptr<TrajectoryService> service;
  std::unique_ptr<RunControl> control;

  explicit Fixture(const char* preset = "cartpole") {
    options = *LoadPresetOrFile(preset, {});
    TrajectoryServiceOptions service_options;
    service_options.run = options;
    service_options.spec.id = "CartPole-v1";
    service_options.spec.observations = {ArraySpec{"state", DType::kF32, {4}}};
    service_options.spec.action.kind = ActionSpec::Kind::kDiscrete;
    service_options.spec.action.nvec = {2};
    auto made = TrajectoryService::Make(std::move(service_options));
    EXPECT_TRUE(made.ok()) << made.status();
    service = *std::move(made);
    auto weights = std::make_shared<WeightsBlob>();
    service->Publish(weights);
    control = std::make_unique<RunControl>(*service, options, "runs/c");
  }
  // The loop as it waits for a batch, up to the next thing to do.
  RunControl::Work NextWork() {
    for (;;) {
      RunControl::Work work = control->Take();
      if (!work.none()) return work;
      EXPECT_TRUE(absl::IsCancelled(service->Take().status()));
    }
  }
};

TEST(RunControl, ACheckpointIsTakenWhileTheLoopWaitsForActors) {
  Fixture f;
  std::thread loop([&] {
    EXPECT_TRUE(f.NextWork().checkpoint);
    f.control->Checkpointed(RunControl::Saved{"there", 5});
  });
  const auto saved = f.control->Checkpoint(In(20s));
  loop.join();
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(saved->path, "there");
  EXPECT_EQ(saved->update, 5u);
}

TEST(RunControl, WhoWaitsTooBrieflyIsToldAndTheCheckpointFollows) {
  Fixture f;
  EXPECT_TRUE(absl::IsDeadlineExceeded(f.control->Checkpoint(In(1ms)).status()));
  EXPECT_TRUE(f.control->Take().checkpoint);
  EXPECT_TRUE(f.control->Take().none());
}

TEST(RunControl, AFailedCheckpointIsTheAskersError) {
  Fixture f;
  std::thread loop([&] {
    f.NextWork();
    f.control->Checkpointed(absl::ResourceExhaustedError("disk full"));
  });
  EXPECT_THAT(std::string(f.control->Checkpoint(In(20s)).status().message()), HasSubstr("disk full"));
  loop.join();
}

TEST(RunControl, APausedLoopDoesWhatIsAskedAndNothingElse) {
  Fixture f;
  ASSERT_TRUE(f.control->Pause().ok());
  EXPECT_EQ(f.control->Status().state, "paused");
  std::thread loop([&] {
    EXPECT_TRUE(f.control->Take().checkpoint);  // waits
    f.control->Checkpointed(RunControl::Saved{"paused", 1});
    EXPECT_TRUE(f.control->Take().none());  // waits until Resume
  });
  const auto saved = f.control->Checkpoint(In(20s));
  EXPECT_TRUE(saved.ok()) << saved.status();
  ASSERT_TRUE(f.control->Resume().ok());
  loop.join();
  EXPECT_EQ(f.control->Status().state, "waiting");
}

TEST(RunControl, APauseDoesNotHoldUpADrain) {
  Fixture f;
  ASSERT_TRUE(f.control->Pause().ok());
  std::thread loop([&] { EXPECT_TRUE(f.control->Take().none()); });
  ASSERT_TRUE(f.control->Drain().ok());
  loop.join();
  ASSERT_TRUE(f.control->Pause().ok());
  EXPECT_TRUE(f.control->Take().none()) << "what is here is still to be trained on";
}

TEST(RunControl, SettingsChangeTogetherOrNotAtAll) {
  Fixture f;
  const auto refused = [&](std::vector<std::string> settings, const char* text) {
    const Status status = f.control->Set(settings);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
    EXPECT_TRUE(f.control->Take().none());
  };
  refused({"ppo.learning_rate=1e-4", "run.seed=2"}, "run.seed: can't change");
  refused({"ppo.learning_rate=1e-4", "ppo.clip_range=-1"}, "ppo.clip_range");
  refused({"ppo.learnin_rate=1e-4"}, "did you mean ppo.learning_rate?");
  refused({"learner.max_policy_lag=x"}, "learner.max_policy_lag");
  ASSERT_TRUE(f.control->Set({"ppo.learning_rate=1e-4", "run.steps=77"}).ok());
  ASSERT_TRUE(f.control->Set({"checkpoint.every=9"}).ok());
  const RunControl::Work work = f.control->Take();
  ASSERT_TRUE(work.options);
  EXPECT_EQ(work.options->ppo.learning_rate, 1e-4);
  EXPECT_EQ(work.options->run.steps, 77u);
  EXPECT_EQ(work.options->checkpoint.every, 9u);
  EXPECT_EQ(work.options->run.seed, f.options.run.seed);
  EXPECT_EQ(f.control->Status().max_steps, 77u);
}

TEST(RunControl, EveryChangeableSettingIsOneOfTheConfiguration) {
  Fixture f;
  EXPECT_TRUE(
      f.control
          ->Set({"ppo.learning_rate=1e-3", "ppo.entropy_coef=0.1", "ppo.clip_range=0.3", "ppo.target_kl=0.1",
                 "ppo.max_grad_norm=1", "learner.max_policy_lag=2", "run.steps=100000", "checkpoint.every=1"})
          .ok());
}

TEST(RunControl, TheFirstReasonToEndCounts) {
  Fixture f;
  std::thread asker([&] { EXPECT_TRUE(f.control->Stop().ok()); });
  const RunControl::Work work = f.NextWork();
  asker.join();
  EXPECT_EQ(work.end, End::kStop);
  f.control->EndRun(End::kFailed, absl::InternalError("later"));
  EXPECT_EQ(f.control->end(), End::kStop);
  EXPECT_TRUE(f.control->Take().why.ok());
}

TEST(RunControl, AfterTheEndNobodyWaits) {
  Fixture f;
  f.control->NoteCheckpoint({"last", 3}, std::chrono::steady_clock::now());
  StatusOr<RunControl::Saved> saved = absl::UnknownError("");
  std::thread asker([&] { saved = f.control->Checkpoint(In(20s)); });
  while (!f.control->Take().checkpoint) EXPECT_TRUE(absl::IsCancelled(f.service->Take().status()));
  f.control->Close();
  asker.join();
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(saved->path, "last");
  EXPECT_TRUE(absl::IsUnavailable(f.control->Pause()));
  EXPECT_TRUE(absl::IsUnavailable(f.control->Set({"run.steps=5"})));
  EXPECT_TRUE(absl::IsUnavailable(f.control->Checkpoint(In(1s)).status()));
  EXPECT_EQ(f.control->Status().state, "done");
}

TEST(RunControl, StatusHasTheRunsNumbers) {
  Fixture f;
  f.control->NoteRun(1000, 10, 5, 2.0);
  EXPECT_EQ(f.control->Status().steps, 1000u);
  EXPECT_TRUE(std::isnan(f.control->Status().return_mean));
  MetricsRow row;
  row.steps = 3000;
  row.update = 11;
  row.seconds = 4;
  row.episodes = 2;
  row.return_mean = 17;
  f.control->NoteUpdate(row);
  const RunStatus status = f.control->Status();
  EXPECT_EQ(status.preset, "cartpole");
  EXPECT_EQ(status.env, "CartPole-v1");
  EXPECT_EQ(status.run_dir, "runs/c");
  EXPECT_EQ(status.state, "waiting");
  EXPECT_EQ(status.limiting_station, "actors");
  EXPECT_EQ(status.steps, 3000u);
  EXPECT_EQ(status.updates, 11u);
  EXPECT_EQ(status.episodes, 7u);
  EXPECT_EQ(status.return_mean, 17);
  EXPECT_EQ(status.steps_per_second_run, 750);
  EXPECT_GT(status.steps_per_second_10s, 0);
  f.control->SetEvaluating(true);
  EXPECT_EQ(f.control->Status().state, "evaluating");
}

TEST(RunControl, NumbersThatWentWrongAreCountersOfTheStatus) {
  Fixture f("pendulum-sac");
  const auto counted = [&] {
    std::map<std::string, uint64_t> counters;
    for (const Counter& c : f.control->Status().counters) {
      EXPECT_TRUE(counters.emplace(c.name, c.value).second) << c.name;
    }
    return counters;
  };
  MetricsRow row;
  f.control->NoteUpdate(row);
  EXPECT_TRUE(counted().empty());
  row.q_exploded = 1;
  f.control->NoteUpdate(row);
  row.updates_skipped = 3;
  row.q_exploded = 7;
  row.alpha_limited = 2;
  f.control->NoteUpdate(row);
  const std::map<std::string, uint64_t> all = {
      {"updates_skipped", 3}, {"q_exploded", 7}, {"alpha_limited", 2}};
  EXPECT_EQ(counted(), all);
  row.q_exploded = row.alpha_limited = 0;  // a batch that was dropped
  f.control->NoteUpdate(row);
  EXPECT_EQ(counted(), all);
}

}  // namespace
}  // namespace millrace
