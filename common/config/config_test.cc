// What people write, good and bad, and what they are told. Plain types only.
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

struct BadInput {
  const char* text;
  std::vector<std::string> overrides;
  const char* message;  // all of it
};

// `E` is a configuration that is right, to put something wrong below it in line 3.
#define E "env:\n  id: CartPole-v1\n"

const BadInput kBadInputs[] = {
    // Keys.
    {E "ppo:\n  clip_rnage: 0.1\n",
     {},
     "config.yaml:4: ppo.clip_rnage: unknown key; did you mean ppo.clip_range?"},
    {E "pppo:\n  gamma: 1\n", {}, "config.yaml:3: pppo: unknown key; did you mean ppo?"},
    {E "gamma: 0.9\n", {}, "config.yaml:3: gamma: unknown key; did you mean ppo.gamma?"},
    {E "policy:\n  learning_rate: 0.1\n",
     {},
     "config.yaml:4: policy.learning_rate: unknown key; did you mean ppo.learning_rate?"},
    {E "checkpoint:\n  interval: 3\n",
     {},
     "config.yaml:4: checkpoint.interval: unknown key; known here: checkpoint.every, checkpoint.keep"},
    {E "ppo.gamma: 0.9\n",
     {},
     "config.yaml:3: ppo.gamma: unknown key; dotted names are for --set, in a file each section is a line of "
     "its own "
     "and its keys are indented below it"},
    {E "ppo:\n  gamma: 0.9\n  epochs: 1\n  gamma: 0.8\n",
     {},
     "config.yaml:6: ppo.gamma: given twice, first in line 4; remove one"},
    {E "env:\n  rows: 3\n", {}, "config.yaml:3: env: given twice, first in line 1; remove one"},
    {E "  params: {a: 1, a: 2}\n",
     {},
     "config.yaml:3: env.params.a: given twice, first in line 3; remove one"},
    {E "\"a\\nb\": 3\n",
     {},
     "config.yaml:3: a b: unknown key; known here: algorithm, mode, run, env, policy, ppo, eval, "
     "checkpoint, metrics, actors, learner"},
    {E "? [a, b]\n: 3\n", {}, "config.yaml:3: a key must be a plain word"},
    // Types.
    {E "ppo:\n  epochs: x\n", {}, "config.yaml:4: ppo.epochs: expected a whole number, got \"x\""},
    {E "ppo:\n  epochs: 1.5\n", {}, "config.yaml:4: ppo.epochs: expected a whole number, got \"1.5\""},
    {E "ppo:\n  epochs: 1.5e0\n", {}, "config.yaml:4: ppo.epochs: expected a whole number, got \"1.5e0\""},
    {E "ppo:\n  epochs: 1__0\n", {}, "config.yaml:4: ppo.epochs: expected a whole number, got \"1__0\""},
    {E "ppo:\n  epochs: 0x10\n", {}, "config.yaml:4: ppo.epochs: expected a whole number, got \"0x10\""},
    {E "ppo:\n  epochs: \"\"\n", {}, "config.yaml:4: ppo.epochs: expected a whole number, got \"\""},
    {E "ppo:\n  epochs: [1]\n", {}, "config.yaml:4: ppo.epochs: expected a whole number, got a list"},
    {E "ppo:\n  gamma: high\n", {}, "config.yaml:4: ppo.gamma: expected a number, got \"high\""},
    {E "ppo:\n  gamma: 0,9\n", {}, "config.yaml:4: ppo.gamma: expected a number, got \"0,9\""},
    {E "ppo:\n  gamma: {a: 1}\n", {}, "config.yaml:4: ppo.gamma: expected a number, got a map"},
    {E "ppo:\n  gamma: nan\n", {}, "config.yaml:4: ppo.gamma: expected a finite number, got \"nan\""},
    {E "ppo:\n  gamma: .NaN\n", {}, "config.yaml:4: ppo.gamma: expected a finite number, got \".NaN\""},
    {E "ppo:\n  gamma: -.inf\n", {}, "config.yaml:4: ppo.gamma: expected a finite number, got \"-.inf\""},
    {E "ppo:\n  value_coef: 1e999\n",
     {},
     "config.yaml:4: ppo.value_coef: expected a finite number, got \"1e999\""},
    {E "policy:\n  shared: yes\n", {}, "config.yaml:4: policy.shared: expected true or false, got \"yes\""},
    {E "policy:\n  shared: [true]\n", {}, "config.yaml:4: policy.shared: expected true or false, got a list"},
    {E "policy:\n  activation: tahn\n",
     {},
     "config.yaml:4: policy.activation: expected one of none, tanh, relu, gelu, silu; got \"tahn\"; did you "
     "mean tanh?"},
    {E "ppo:\n  lr_schedule: 3\n",
     {},
     "config.yaml:4: ppo.lr_schedule: expected one of constant, linear, cosine; got \"3\""},
    {E "run:\n  name: [a]\n", {}, "config.yaml:4: run.name: expected a text, got a list"},
    {E "ppo: 3\n", {}, "config.yaml:3: ppo: expected a map of keys and values, got \"3\""},
    {E "ppo: [1, 2]\n", {}, "config.yaml:3: ppo: expected a map of keys and values, got a list"},
    {E "  params: 3\n", {}, "config.yaml:3: env.params: expected a map of names and values, got \"3\""},
    {E "  params: {skip: [4]}\n", {}, "config.yaml:3: env.params.skip: expected a single value, got a list"},
    {E "policy:\n  hidden: 64\n",
     {},
     "config.yaml:4: policy.hidden: expected a list of whole numbers like [64, 64], got \"64\""},
    {E "policy:\n  hidden: []\n",
     {},
     "config.yaml:4: policy.hidden: expected a list of whole numbers like [64, 64], got an empty one"},
    {E "policy:\n  hidden:\n    - 64\n    - big\n",
     {},
     "config.yaml:6: policy.hidden: element 2: expected a whole number, got \"big\""},
    {E "policy:\n  hidden: [[64]]\n",
     {},
     "config.yaml:4: policy.hidden: element 1: expected a whole number, got a list"},
    // Nothing where something should be.
    {E "ppo:\n  gamma:\n", {}, "config.yaml:4: ppo.gamma: has no value; give one or remove the key"},
    {E "ppo:\n  gamma: ~\n", {}, "config.yaml:4: ppo.gamma: has no value; give one or remove the key"},
    {E "run:\n  name: null\n", {}, "config.yaml:4: run.name: has no value; give one or remove the key"},
    {E "policy:\n  hidden:\n", {}, "config.yaml:4: policy.hidden: has no value; give one or remove the key"},
    {E "ppo:\n", {}, "config.yaml:3: ppo: has no value; give its keys below it or remove it"},
    {"", {}, "config.yaml: env.id: is missing; name an environment (`millrace envs` lists them)"},
    {"# nothing\n", {}, "config.yaml: env.id: is missing; name an environment (`millrace envs` lists them)"},
    {"env:\n  id: \"\"\n",
     {},
     "config.yaml:2: env.id: is missing; name an environment (`millrace envs` lists them)"},
    // Not such a file at all.
    {"- 1\n- 2\n", {}, "config.yaml:1: expected sections (`env:`, `ppo:` ...) at the top, got a list"},
    {"\n\ncartpole\n",
     {},
     "config.yaml:3: expected sections (`env:`, `ppo:` ...) at the top, got \"cartpole\""},
    {E "---\nppo: {}\n", {}, "config.yaml:4: a second YAML document; keep one"},
    {E "ppo:\n\tgamma: 1\n",
     {},
     "config.yaml:4: not valid YAML: illegal map value; indent with spaces, not tabs"},
    {E "ppo: {gamma: 1\n", {}, "config.yaml:4: not valid YAML: end of map flow not found"},
    {E "ppo: *missing\n", {}, "config.yaml:3: not valid YAML: the referenced anchor is not defined"},
    {E "run:\n  name: \"a\x04\"\n",
     {},
     "config.yaml:4: a character that YAML does not allow; save it as UTF-8 text"},
    {E "run:\n  name: \xC0\xAF\n",
     {},
     "config.yaml:4: a character that YAML does not allow; save it as UTF-8 text"},
    // Ranges.
    {"env:\n  id: X\n  rows: 0\n",
     {},
     "config.yaml:3: env.rows: 0 is out of range; must be between 1 and 1048576"},
    {E "  rows: -1\n", {}, "config.yaml:3: env.rows: -1 is out of range; must be between 1 and 1048576"},
    {E "  rows: 4294967296\n",
     {},
     "config.yaml:3: env.rows: 4294967296 is out of range; must be between 1 and 1048576"},
    {E "  time_limit: -2\n",
     {},
     "config.yaml:3: env.time_limit: -2 is out of range; must be between -1 and 1000000000"},
    {E "  time_limit: 3000000000\n",
     {},
     "config.yaml:3: env.time_limit: 3000000000 is out of range; must be between -1 and 1000000000"},
    {E "  frame_stack: 0\n",
     {},
     "config.yaml:3: env.frame_stack: 0 is out of range; must be between 1 and 1024"},
    {E "  action_repeat: 0\n",
     {},
     "config.yaml:3: env.action_repeat: 0 is out of range; must be between 1 and 1024"},
    {E "  clip_obs: -1\n", {}, "config.yaml:3: env.clip_obs: -1 is out of range; must be at least 0"},
    {E "run:\n  seed: -1\n", {}, "config.yaml:4: run.seed: -1 is out of range; must be at least 0"},
    {E "run:\n  seed: 18446744073709551616\n",
     {},
     "config.yaml:4: run.seed: 18446744073709551616 is out of range; must be between 0 and "
     "18446744073709551615"},
    {E "run:\n  steps: 0\n", {}, "config.yaml:4: run.steps: 0 is out of range; must be at least 1"},
    {E "ppo:\n  minibatch_size: 0\n",
     {},
     "config.yaml:4: ppo.minibatch_size: 0 is out of range; must be at least 1"},
    {E "ppo:\n  gamma: 1.01\n",
     {},
     "config.yaml:4: ppo.gamma: 1.01 is out of range; must be between 0 and 1"},
    {E "ppo:\n  gae_lambda: -0.1\n",
     {},
     "config.yaml:4: ppo.gae_lambda: -0.1 is out of range; must be between 0 and 1"},
    {E "ppo:\n  clip_range: 0\n",
     {},
     "config.yaml:4: ppo.clip_range: 0 is out of range; must be greater than 0 and at most 1000"},
    {E "ppo:\n  learning_rate: -3e-4\n",
     {},
     "config.yaml:4: ppo.learning_rate: -0.0003 is out of range; must be greater than 0 and at most 1000"},
    {E "ppo:\n  adam_beta1: 1\n",
     {},
     "config.yaml:4: ppo.adam_beta1: 1 is out of range; must be at least 0 and less than 1"},
    {E "policy:\n  log_std_init: 2.5\n",
     {},
     "config.yaml:4: policy.log_std_init: 2.5 is out of range; must be between -20 and 2"},
    {E "policy:\n  hidden: [64, 65537]\n",
     {},
     "config.yaml:4: policy.hidden: element 2, 65537, is out of range; must be between 1 and 65536"},
    {E "policy:\n  hidden: [-64]\n",
     {},
     "config.yaml:4: policy.hidden: element 1: -64 is out of range; must be between 1 and 65536"},
    {E "eval:\n  episodes: 0\n",
     {},
     "config.yaml:4: eval.episodes: 0 is out of range; must be between 1 and 1000000"},
    {E "  step_wait_us: 10000001\n",
     {},
     "config.yaml:3: env.step_wait_us: 10000001 is out of range; must be between 0 and 10000000"},
    {E "actors:\n  processes: 1025\n",
     {},
     "config.yaml:4: actors.processes: 1025 is out of range; must be between 0 and 1024"},
    {E "actors:\n  threads: 1025\n",
     {},
     "config.yaml:4: actors.threads: 1025 is out of range; must be between 0 and 1024"},
    {E "actors:\n  lease_seconds: 0\n",
     {},
     "config.yaml:4: actors.lease_seconds: 0 is out of range; must be between 0.1 and 3600"},
    {E "actors:\n  max_restarts: 1000001\n",
     {},
     "config.yaml:4: actors.max_restarts: 1000001 is out of range; must be between 0 and 1000000"},
    {E "learner:\n  queue_mib: 0\n",
     {},
     "config.yaml:4: learner.queue_mib: 0 is out of range; must be between 1 and 1048576"},
    {E "learner:\n  max_policy_lag: 0\n",
     {},
     "config.yaml:4: learner.max_policy_lag: 0 is out of range; must be between 1 and 1000000"},
    {E "learner:\n  rho_bar: 0\n",
     {},
     "config.yaml:4: learner.rho_bar: 0 is out of range; must be greater than 0"},
    {E "learner:\n  c_bar: -1\n",
     {},
     "config.yaml:4: learner.c_bar: -1 is out of range; must be greater than 0"},
    // Names.
    {E "mode: asynk\n",
     {},
     "config.yaml:3: mode: expected one of sync, async; got \"asynk\"; did you mean async?"},
    {E "actors:\n  transport: shmem\n",
     {},
     "config.yaml:4: actors.transport: expected one of auto, shm, grpc; got \"shmem\"; did you mean shm?"},
    {E "actors:\n  on_lost: stop\n",
     {},
     "config.yaml:4: actors.on_lost: expected one of reassign, wait; got \"stop\""},
    {E "learner:\n  correction: v-trace\n",
     {},
     "config.yaml:4: learner.correction: expected one of vtrace, ratio; got \"v-trace\"; did you mean "
     "vtrace?"},
    // Combinations.
    {E "learner:\n  c_bar: 2\n",
     {},
     "config.yaml:4: learner.c_bar: 2 is more than learner.rho_bar, 1; lower learner.c_bar or raise "
     "learner.rho_bar"},
    {E "learner:\n  rho_bar: 0.5\n",
     {},
     "config.yaml: learner.c_bar: 1 (the default) is more than learner.rho_bar, 0.5; lower learner.c_bar or "
     "raise learner.rho_bar"},
    {E "  rows: 4\nppo:\n  horizon: 16\n  minibatch_size: 65\n",
     {},
     "config.yaml:6: ppo.minibatch_size: 65 is larger than the batch, env.rows 4 x ppo.horizon 16 = 64 "
     "samples; lower it "
     "to 64 or less, or raise env.rows or ppo.horizon"},
    {E "  rows: 1\n",
     {},
     "config.yaml: ppo.minibatch_size: 256 (the default) is larger than the batch, env.rows 1 x ppo.horizon "
     "128 = 128 "
     "samples; lower it to 128 or less, or raise env.rows or ppo.horizon"},
    {E "  rows: 1000000\nppo:\n  horizon: 100000\n",
     {},
     "config.yaml:5: ppo.horizon: the batch, env.rows 1000000 x ppo.horizon 100000 = 100000000000 samples, "
     "is too "
     "large; at most 2147483647"},
    {E "  group_rows: 9\n",
     {},
     "config.yaml:3: env.group_rows: 9 is more than env.rows, 8; lower env.group_rows (0 chooses it) or "
     "raise env.rows"},
    {E "run:\n  stop_at_return: 475\n",
     {},
     "config.yaml:4: run.stop_at_return: has no effect alone; set run.stop_window to the number of episodes "
     "to average"},
    {E "algorithm: pppo\n",
     {},
     "config.yaml:3: algorithm: unknown algorithm \"pppo\"; known: ppo; did you mean ppo?"},
    {E "run:\n  name: a/b\n",
     {},
     "config.yaml:4: run.name: \"a/b\" cannot name a folder; leave out slashes and control characters "
     "(run.dir takes a "
     "path)"},
    {E "run:\n  name: ..\n", {}, "config.yaml:4: run.name: \"..\" cannot name a folder; choose another"},
    // --set.
    {E, {"ppo.epochs=x"}, "--set ppo.epochs=x: ppo.epochs: expected a whole number, got \"x\""},
    {E,
     {"ppo.clip_rnage=1"},
     "--set ppo.clip_rnage=1: ppo.clip_rnage: unknown key; did you mean ppo.clip_range?"},
    {E, {"epochs=1"}, "--set epochs=1: epochs: unknown key; did you mean ppo.epochs?"},
    {E, {"ppo.epochs"}, "--set ppo.epochs: expected key.path=value, for example ppo.epochs=4"},
    {E, {"=4"}, "--set =4: expected key.path=value, for example ppo.epochs=4"},
    {E, {"ppo.epochs="}, "--set ppo.epochs=: ppo.epochs: has no value; give one or remove the key"},
    {E, {"ppo=4"}, "--set ppo=4: ppo: expected a map of keys and values, got \"4\""},
    {E,
     {"ppo.gamma.x=4"},
     "--set ppo.gamma.x=4: ppo.gamma.x: unknown key; ppo.gamma is a value, not a section"},
    {E, {"env.params.=4"}, "--set env.params.=4: env.params.: a name is empty; name the setting"},
    {E, {"ppo.gamma=2"}, "--set ppo.gamma=2: ppo.gamma: 2 is out of range; must be between 0 and 1"},
    {E, {"policy.hidden=[1,"}, "--set policy.hidden=[1,: not valid YAML: end of sequence flow not found"},
    {E "ppo:\n  gamma: 2\n",
     {"env.rows=3", "ppo.gamma=3"},
     "--set ppo.gamma=3: ppo.gamma: 3 is out of range; must be between 0 and 1"},
};

TEST(LoadConfig, BadInputIsNamedWithItsPlace) {
  for (const BadInput& bad : kBadInputs) {
    const auto options = Load(bad.text, bad.overrides);
    ASSERT_FALSE(options.ok()) << bad.text << "\nshould give: " << bad.message;
    EXPECT_EQ(options.status().code(), absl::StatusCode::kInvalidArgument);
    const std::string message(options.status().message());
    // The words after "not valid YAML" are the parser's, and grow with its version.
    if (absl::StrContains(bad.message, "not valid YAML")) {
      EXPECT_THAT(message, StartsWith(bad.message));
    } else {
      EXPECT_EQ(message, bad.message) << bad.text;
    }
    EXPECT_THAT(std::string(options.status().message()), Not(HasSubstr("\n")));
  }
}

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
