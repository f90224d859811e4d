// What people write, and what becomes of it. Plain types only.
#include "common/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

StatusOr<RunOptions> Load(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return LoadConfig(text, "config.yaml", overrides);
}

// A configuration that is right, to put something below it in line 3, and one of SAC, in line 4.
#define E "env:\n  id: CartPole-v1\n"
#define S "algorithm: sac\n" E

TEST(LoadConfig, DefaultsFillWhatIsNotGiven) {
  const auto options = Load(E);
  ASSERT_TRUE(options.ok()) << options.status();
  RunOptions expected;
  expected.env.id = "CartPole-v1";
  EXPECT_EQ(*options, expected);
}

TEST(LoadConfig, EveryWayToWriteAValue) {
  const auto options = Load(
      "run: {seed: 18446744073709551615, steps: 1_000_000, threads: 1e1, name: \"a b: c\"}\n"
      "env:\n  id: Null\n  time_limit: -1\n  params: {shape: &shape 4, other: *shape, next: Null}\n"
      "policy:\n  hidden: [128, 32]\n  activation: none\n  shared: True\n"
      "ppo:\n  advantage_norm: off\n  learning_rate: 1E-3\n  gamma: 1\n  clip_range: +.25\n");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->run.seed, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(options->run.steps, 1'000'000u);
  EXPECT_EQ(options->run.threads, 10u);
  EXPECT_EQ(options->run.name, "a b: c");
  EXPECT_EQ(options->env.time_limit, -1);
  EXPECT_EQ(options->env.params,
            (std::map<std::string, std::string>{{"next", "Null"}, {"other", "4"}, {"shape", "4"}}));
  EXPECT_EQ(options->policy.hidden, (std::vector<uint32_t>{128, 32}));
  EXPECT_EQ(options->policy.activation, Activation::kNone);
  EXPECT_TRUE(options->policy.shared);
  EXPECT_EQ(options->ppo.advantage_norm, AdvantageNorm::kOff);
  EXPECT_EQ(options->ppo.learning_rate, 1e-3);
  EXPECT_EQ(options->ppo.gamma, 1.0);
  EXPECT_EQ(options->ppo.clip_range, 0.25);
}

TEST(LoadConfig, OverridesWinInTheirOrder) {
  const auto options =
      Load(E "  params: {a: 1, b: 2}\nppo:\n  epochs: 3\n  gamma: 0.5\nrun:\n  dir: here\n",
           {"ppo.epochs=4", "policy.hidden=[128,128]", "ppo.epochs=5", "env.params.b=3", "env.params.c.d=x",
            "run.dir=", "ppo={gamma: 0.6, horizon: 64}", "run.name=a=b"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->ppo.epochs, 5u);
  EXPECT_EQ(options->ppo.gamma, 0.6);
  EXPECT_EQ(options->ppo.horizon, 64u);
  EXPECT_EQ(options->policy.hidden, (std::vector<uint32_t>{128, 128}));
  EXPECT_EQ(options->env.params, (std::map<std::string, std::string>{{"a", "1"}, {"b", "3"}, {"c.d", "x"}}));
  EXPECT_EQ(options->run.dir, "");
  EXPECT_EQ(options->run.name, "a=b");
}

TEST(LoadConfig, OverridesMayRepairTheFile) {
  EXPECT_TRUE(Load("", {"env.id=CartPole-v1"}).ok());
  EXPECT_TRUE(Load("", {"env.id=Null"}).ok());
  EXPECT_TRUE(Load(E "  rows: 1\n", {"ppo.minibatch_size=128"}).ok());
  // A target with its window switched off is no mistake.
  EXPECT_TRUE(Load(E "run:\n  stop_at_return: 475\n  stop_window: 100\n", {"run.stop_window=0"}).ok());
}

TEST(LoadConfig, MinibatchNeedNotDivideTheBatch) {
  EXPECT_TRUE(Load(E "  rows: 3\nppo:\n  horizon: 7\n  minibatch_size: 5\n").ok());
  EXPECT_TRUE(Load(E "  rows: 3\nppo:\n  horizon: 7\n  minibatch_size: 21\n").ok());
}

TEST(LoadConfig, OneOfTwoSettingsHasTheRatioOfSac) {
  auto options = Load(S);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(UpdatesPerStep(*options), 1.0);
  options = Load(S "sac:\n  batch_size: 64\nreplay:\n  samples_per_insert: 32\n");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->sac.updates_per_step, 0.0);
  EXPECT_EQ(UpdatesPerStep(*options), 0.5);
  EXPECT_EQ(*Load(ToYaml(*options)), *options);  // although each key is given there
  EXPECT_TRUE(Load(S "sac:\n  updates_per_step: 0.125\n", {"replay.samples_per_insert=0"}).ok());
}

TEST(LoadConfig, TheLargestBatchAndRatioOfSacGoTogether) {
  const auto options = Load(S "replay:\n  capacity: 2000000\n",
                            {"sac.batch_size=1048576", "sac.updates_per_step=10000", "replay.min_size=80"});
  EXPECT_TRUE(options.ok()) << options.status();
  EXPECT_TRUE(Load(S "", {"sac.batch_size=1", "sac.updates_per_step=0.000001"}).ok());
}

// Each key is given in a run's own config.yaml, and the last update of a run may go beyond its steps.
TEST(LoadConfig, WhatIsReadIsTaken) {
  const auto prioritized = Load(S "replay: {prioritized: true, alpha: 0.7, beta: 0.5}\n");
  ASSERT_TRUE(prioritized.ok()) << prioritized.status();
  EXPECT_TRUE(Load(ToYaml(*prioritized)).ok());
  EXPECT_TRUE(Load(S "sac: {auto_target_entropy: false, target_entropy: -2}\n").ok());
  EXPECT_TRUE(Load(S "sac: {auto_alpha: false, alpha: 0.05, alpha_learning_rate: 0.001}\n").ok());
  EXPECT_TRUE(Load(S "run: {steps: 993}\n").ok()) << "125 updates of 8 rows";
  EXPECT_FALSE(Load(S "run: {steps: 992}\n").ok());
}

TEST(LoadConfig, AListMayBeEmptyWhereThatIsItsDefault) {
  const auto options = Load(S "sac:\n  critic_hidden: [32]\n", {"sac.critic_hidden=[]"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_TRUE(options->sac.critic_hidden.empty());
}

TEST(LoadConfig, HorizonAndDiscountAreTheAlgorithms) {
  const auto sac = Load(S "sac: {horizon: 3, gamma: 0.5}\n"),
             ppo = Load(E "ppo: {horizon: 64, gamma: 0.25}\n");
  ASSERT_TRUE(sac.ok() && ppo.ok()) << sac.status() << ppo.status();
  EXPECT_EQ(Horizon(*sac), 3u);
  EXPECT_EQ(Gamma(*sac), 0.5);
  EXPECT_EQ(Horizon(*ppo), 64u);
  EXPECT_EQ(Gamma(*ppo), 0.25);
}

TEST(Validate, WorksWithoutAFile) {
  RunOptions options;
  options.env.id = "Null";
  EXPECT_TRUE(Validate(options).ok()) << Validate(options);
  options.ppo.learning_rate = std::nan("");
  EXPECT_EQ(Validate(options).message(),
            "ppo.learning_rate: nan is out of range; must be greater than 0 and at most 1000");
  options.ppo.learning_rate = 1;
  options.run.stop_at_return = -std::numeric_limits<double>::infinity();
  EXPECT_EQ(Validate(options).message(), "run.stop_at_return: -inf is out of range; must be a finite number");
  options.run.stop_at_return = 0;
  options.policy.hidden.assign(17, 64);
  EXPECT_EQ(Validate(options).message(),
            "policy.hidden: has 17 layers; give 1 to 16 sizes, for example [64, 64]");
  options.policy.hidden.clear();
  EXPECT_FALSE(Validate(options).ok());
}

// Valid, and nothing as it is by default.
RunOptions Unusual() {
  RunOptions o;
  o.mode = RunMode::kAsync;
  o.run = {.name = "tricky: \"name\" \\ #1",
           .dir = "/tmp/\xC3\xA9t\xC3\xA9\n\t\x01 end ",
           .seed = std::numeric_limits<uint64_t>::max(),
           .steps = (uint64_t{1} << 53) + 1,
           .threads = 3,
           .stop_at_return = -1.0 / 3.0,
           .stop_window = 20,
           .warm_start = "null",
           .on_nonfinite = OnNonfinite::kSkip};
  o.env = {.id = "1e3",
           .rows = 64,
           .group_rows = 16,
           .params = {{"true", "no"}, {"b: {", "~"}, {"c", ""}, {"null", "- x"}},
           .time_limit = 77,
           .action_repeat = 4,
           .frame_stack = 2,
           .normalize_obs = true,
           .clip_obs = 0.1,
           .scale_reward = true,
           .clip_reward = std::numeric_limits<double>::denorm_min(),
           .step_wait_us = 2500,
           .clip_actions = false};
  o.policy = {.hidden = {1, 65536, 3},
              .activation = Activation::kSilu,
              .shared = true,
              .gain_hidden = std::nextafter(1.0, 2.0),
              .gain_policy = 1e-300,
              .gain_value = 123.456,
              .log_std_init = -19.999999999999996};
  o.ppo = {.horizon = 5,
           .minibatch_size = 320,
           .epochs = 1,
           .gamma = std::nextafter(1.0, 0.0),
           .gae_lambda = 0.1 + 0.2,
           .clip_range = 1e-7,
           .clip_schedule = Schedule::kCosine,
           .value_clip = 1e20,
           .entropy_coef = 2.0 / 3.0,
           .value_coef = 1,
           .target_kl = 0.015,
           .max_grad_norm = 1e6,
           .advantage_norm = AdvantageNorm::kOff,
           .learning_rate = 2.5e-4,
           .lr_schedule = Schedule::kLinear,
           .adam_beta1 = 0.5,
           .adam_beta2 = 0.95,
           .adam_eps = 1e-8,
           .weight_decay = 0.01};
  o.eval = {.every = 12345678901, .episodes = 7};
  o.checkpoint = {.every = 0, .keep = 9};
  o.metrics = {.every = 10, .tensorboard = false, .segments = true};
  o.actors = {.processes = 4,
              .threads = 2,
              .transport = TransportChoice::kGrpc,
              .lease_seconds = 0.1 + 0.2,
              .on_lost = OnLost::kWait,
              .max_restarts = 0};
  o.learner = {.queue_mib = 1,
               .max_policy_lag = 16,
               .correction = Correction::kRatio,
               .rho_bar = 1e-300,
               .c_bar = 1e-301};
  return o;
}

TEST(ToYaml, LoadsBackExactly) {
  const RunOptions unusual = Unusual();
  const std::string yaml = ToYaml(unusual);
  const auto again = LoadConfig(yaml, "again.yaml", {});
  // A name with a slash-free but odd text is allowed, one with a control character is not: run.dir has those.
  ASSERT_TRUE(again.ok()) << again.status() << "\n" << yaml;
  EXPECT_EQ(*again, unusual) << yaml;
  EXPECT_EQ(ToYaml(*again), yaml);
}

TEST(ToYaml, IsInTheOrderOfTheSchemaAndReadable) {
  RunOptions options;
  options.env.id = "CartPole-v1";
  const std::string yaml = ToYaml(options);
  EXPECT_THAT(yaml, StartsWith("algorithm: ppo\nmode: sync\nrun:\n  name: \"\"\n"));
  EXPECT_THAT(yaml, HasSubstr("env:\n  id: CartPole-v1\n  rows: 8\n  group_rows: 0\n  params: {}\n"));
  EXPECT_THAT(yaml, HasSubstr("  hidden: [64, 64]\n  activation: tanh\n  shared: false\n"));
  EXPECT_THAT(yaml, HasSubstr("  learning_rate: 0.0003\n"));
  EXPECT_LT(yaml.find("\npolicy:"), yaml.find("\nppo:"));
}

TEST(SerializeConfig, ParsesBackExactly) {
  const RunOptions unusual = Unusual();
  const auto again = ParseConfig(SerializeConfig(unusual));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, unusual);
  EXPECT_THAT(SerializeConfig(unusual), HasSubstr("\"clip_range\":"));
}

// Protobuf's maps have an order that differs from process to process and from copy to copy.
TEST(SerializeConfig, BytesDependOnTheValuesAlone) {
  RunOptions options = Unusual();
  for (int i = 0; i < 50; ++i) options.env.params.emplace(absl::StrCat("p", i * 7919), "x");
  const std::string first = SerializeConfig(options);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(SerializeConfig(options), first);
}

TEST(ParseConfig, IgnoresWhatItDoesNotKnowAndKeepsDefaults) {
  const auto options = ParseConfig(
      R"({"run": {"later": [1, {}]}, "env": {"id": "Null"}, "ppo": {"epochs": 3, "lr_schedule": "SCHEDULE_X"}, "z": 1})");
  ASSERT_TRUE(options.ok()) << options.status();
  RunOptions expected;
  expected.env.id = "Null";
  expected.ppo.epochs = 3;
  EXPECT_EQ(*options, expected);
}

TEST(ParseConfig, RefusesDamage) {
  for (const char* bytes :
       {"", "{", "[]", "\x80\x01", R"({"ppo": 3})", R"({"env": {"id": "Null", "rows": 0}})",
        R"({"env": {"id": "Null", "rows": -1}})"}) {
    EXPECT_EQ(ParseConfig(bytes).status().code(), absl::StatusCode::kInvalidArgument) << bytes;
  }
}

TEST(FormatNumber, IsShortAndExact) {
  EXPECT_EQ(FormatNumber(0.0003), "0.0003");
  EXPECT_EQ(FormatNumber(1e6), "1000000");
  EXPECT_EQ(FormatNumber(0.1), "0.1");
  EXPECT_EQ(FormatNumber(0), "0");
  EXPECT_EQ(FormatNumber(-2.5), "-2.5");
  EXPECT_EQ(FormatNumber(1e-7), "1e-07");
  EXPECT_EQ(FormatNumber(1e300), "1e+300");
}

}  // namespace
}  // namespace millrace
