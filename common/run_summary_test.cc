#include "common/run_summary.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

RunSummary Solved() {
  RunSummary s;
  s.end = RunSummary::End::kTargetReached;
  s.name = "cartpole";
  s.env = "CartPole-v1";
  s.algorithm = "ppo";
  s.seed = 3;
  s.threads = 2;
  s.steps = 98'304;
  s.updates = 24;
  s.seconds = 0.93;
  s.steps_per_second = 105'703;
  s.peak_resident_mb = 41.6;
  s.episodes = 812;
  s.window = 100;
  s.return_mean = 475.25;
  s.length_mean = 475.25;
  s.eval_return_mean = 500;
  s.eval_return_std = 0;
  s.eval_episodes = 100;
  s.best_return = 500;
  s.target_return = 475;
  s.target_reached = true;
  s.target_steps = 98'304;
  s.target_seconds = 0.93;
  s.run_dir = "runs/a";
  s.checkpoint = "runs/a/checkpoints/update-000000024.safetensors";
  s.next = {"millrace eval runs/a", "tensorboard --logdir runs"};
  return s;
}

TEST(SummaryText, SolvedRun) {
  EXPECT_EQ(SummaryText(Solved(), {}, true),
            "cartpole: done, the target is reached\n"
            "  steps       98.3k in 24 updates\n"
            "  time        0.93s, 106k steps/s\n"
            "  memory      42 MiB at most\n"
            "  return      475.2 over the last 100 episodes of 812, length 475.2\n"
            "  evaluation  500 +- 0 over 100 episodes, best 500\n"
            "  target 475  reached after 98.3k steps, 0.93s\n"
            "  run         runs/a\n"
            "  checkpoint  runs/a/checkpoints/update-000000024.safetensors\n"
            "  next        millrace eval runs/a\n"
            "              tensorboard --logdir runs\n");
}

TEST(SummaryText, FailedBeforeAnyEpisode) {
  RunSummary s;
  s.end = RunSummary::End::kFailed;
  s.error = "reward of row 3 is NaN";
  s.name = "pendulum";
  s.updates = 1;
  s.updates_skipped = 2;
  EXPECT_EQ(SummaryText(s, {}, false),
            "pendulum: failed\n"
            "  steps       0 in 1 update, 2 skipped\n"
            "  time        0s, 0 steps/s\n"
            "  return      no episode has ended\n");
}

TEST(SummaryText, CurveFollowsTheTerminal) {
  const std::vector<CurvePoint> curve = {{0, 10}, {50'000, 200}, {100'000, 475}};
  const std::string unicode = SummaryText(Solved(), curve, true);
  EXPECT_THAT(unicode, HasSubstr("\n  return over steps\n"));
  EXPECT_THAT(unicode, HasSubstr("┤"));
  const std::string ascii = SummaryText(Solved(), curve, false);
  for (char c : ascii) ASSERT_LT(static_cast<unsigned char>(c), 0x80);
  EXPECT_THAT(ascii, HasSubstr("100k\n"));
}

TEST(SummaryJson, HoldsWhatProgramsAskFor) {
  const auto json = nlohmann::json::parse(SummaryJson(Solved()));
  EXPECT_EQ(json["end"], "target_reached");
  EXPECT_EQ(json["steps"], 98'304);
  EXPECT_EQ(json["seconds"], 0.93);
  EXPECT_EQ(json["steps_per_second"], 105'703.0);
  EXPECT_EQ(json["return_mean"], 475.25);
  EXPECT_EQ(json["target_steps"], 98'304);
  EXPECT_FALSE(json.contains("error"));

  const auto empty = nlohmann::json::parse(SummaryJson(RunSummary()));
  EXPECT_TRUE(empty["return_mean"].is_null());
  EXPECT_TRUE(empty["target_steps"].is_null());
  EXPECT_EQ(empty["end"], "done");
}

}  // namespace
}  // namespace millrace
