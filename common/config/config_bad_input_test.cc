// What people get wrong, and what they are told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "common/config/config.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct BadInput {
  const char* text;
  std::vector<std::string> overrides;
  const char* message;  // all of it
};

// A configuration that is right, to put something wrong below it in line 3, and one of SAC, in line 4.
#define E "env:\n  id: CartPole-v1\n"
#define S "algorithm: sac\n" E

const BadInput kBadInputs[] = {
    // Keys.
    {E "ppo:\n  clip_rnage: 0.1\n",
     {},
     "config.yaml:4: ppo.clip_rnage: unknown key; did you mean ppo.clip_range?"},
    {E "pppo:\n  gamma: 1\n", {}, "config.yaml:3: pppo: unknown key; did you mean ppo?"},
    {E "gamma: 0.9\n", {}, "config.yaml:3: gamma: unknown key; did you mean ppo.gamma or sac.gamma?"},
    {E "policy:\n  learning_rate: 0.1\n",
     {},
     "config.yaml:4: policy.learning_rate: unknown key; did you mean ppo.learning_rate?"},
    {E "checkpoint:\n  interval: 3\n",
     {},
     "config.yaml:4: checkpoint.interval: unknown key; known here: checkpoint.every, checkpoint.keep, "
     "checkpoint.replay"},
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
     "config.yaml:3: a b: unknown key; known here: algorithm, mode, run, env, policy, ppo, sac, "
     "replay, eval, checkpoint, metrics, actors, learner"},
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
     "config.yaml:3: algorithm: unknown algorithm \"pppo\"; known: ppo, sac; did you mean ppo?"},
    {E "run:\n  name: a/b\n",
     {},
     "config.yaml:4: run.name: \"a/b\" cannot name a folder; leave out slashes and control characters "
     "(run.dir takes a "
     "path)"},
    {E "run:\n  name: ..\n", {}, "config.yaml:4: run.name: \"..\" cannot name a folder; choose another"},
    // SAC and its replay.
    {S "sac:\n  batch_size: 0\n",
     {},
     "config.yaml:5: sac.batch_size: 0 is out of range; must be between 1 and 1048576"},
    {S "sac:\n  tau: 0\n",
     {},
     "config.yaml:5: sac.tau: 0 is out of range; must be greater than 0 and at most 1"},
    {S "sac:\n  updates_per_step: -1\n",
     {},
     "config.yaml:5: sac.updates_per_step: -1 is out of range; must be between 0 and 10000"},
    {S "sac:\n  alpha: -0.2\n",
     {},
     "config.yaml:5: sac.alpha: -0.2 is out of range; must be between 0 and 1000000"},
    {S "replay:\n  alpha: 1.1\n",
     {},
     "config.yaml:5: replay.alpha: 1.1 is out of range; must be between 0 and 1"},
    {S "replay:\n  priority_eps: 0\n",
     {},
     "config.yaml:5: replay.priority_eps: 0 is out of range; must be greater than 0 and at most 1000"},
    {S "replay:\n  capacity: 4294967296\n",
     {},
     "config.yaml:5: replay.capacity: 4294967296 is out of range; must be between 1 and 2147483647"},
    {S "sac:\n  alpha: 0\n",
     {},
     "config.yaml:5: sac.alpha: 0 cannot be tuned, for its logarithm is; give a start above 0, or "
     "sac.auto_alpha=false"},
    {S "sac:\n  max_alpha: 0.5\n",
     {},
     "config.yaml: sac.alpha: 1 (the default) is more than sac.max_alpha, 0.5; lower sac.alpha or raise "
     "sac.max_alpha"},
    {S "sac:\n  target_entropy: -2\n",
     {},
     "config.yaml:5: sac.target_entropy: has no effect with sac.auto_target_entropy; remove it, or set that "
     "to false"},
    {S "sac:\n  auto_alpha: false\n  auto_target_entropy: false\n  target_entropy: -2\n",
     {},
     "config.yaml:7: sac.target_entropy: has no effect without sac.auto_alpha; remove it, or set that to "
     "true"},
    {S "sac:\n  auto_target_entropy: false\n  target_entropy: 1e308\n",
     {},
     "config.yaml:6: sac.target_entropy: 1e+308 is out of range; must be between -1000000 and 1000000"},
    {S "replay:\n  alpha: 0.7\n",
     {},
     "config.yaml:5: replay.alpha: has no effect without replay.prioritized; remove it, or set that to true"},
    {S "replay:\n  prioritized: false\n  beta_end: 0.7\n",
     {},
     "config.yaml:6: replay.beta_end: has no effect without replay.prioritized; remove it, or set that to "
     "true"},
    {S "replay:\n  min_size: 5000\n",
     {"run.steps=1300"},
     "--set run.steps=1300: run.steps: 1300 end before the first gradient step: they give 1304 transitions, "
     "and it waits for replay.min_size, 5000; raise run.steps to 5000 or more, or lower replay.min_size"},
    {S "  action_repeat: 4\nrun:\n  steps: 3968\n",
     {},
     "config.yaml:6: run.steps: 3968 end before the first gradient step: they give 992 transitions, and it "
     "waits for replay.min_size, 1000 (the default); raise run.steps to 4000 or more, or lower "
     "replay.min_size"},
    {S "sac:\n  critics: 1\n",
     {},
     "config.yaml: sac.critic_subset: 2 (the default) is more than sac.critics, 1; lower sac.critic_subset "
     "or "
     "raise sac.critics"},
    {S "sac:\n  critic_hidden: [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]\n",
     {},
     "config.yaml:5: sac.critic_hidden: has 17 layers; at most 16"},
    {S "sac:\n  batch_min: 32\n  batch_max: 64\n",
     {},
     "config.yaml:5: sac.batch_min: a batch of what is ready differs from run to run, so mode sync excludes "
     "it; set mode to async, or remove it and choose sac.batch_size"},
    {S "mode: async\nsac:\n  batch_max: 64\n",
     {},
     "config.yaml:6: sac.batch_max: needs the other of sac.batch_min and sac.batch_max; set both, or "
     "neither"},
    {S "mode: async\nsac:\n  batch_max: 64\n  batch_min: 65\n",
     {},
     "config.yaml:7: sac.batch_min: 65 is more than sac.batch_max, 64"},
    {S "mode: async\nsac:\n  batch_max: 5121\n  batch_min: 64\n",
     {},
     "config.yaml:6: sac.batch_max: 5121 is never reached: it takes 6 segments, and with "
     "learner.max_policy_lag 1 (the default) at most 2 can be ready; raise learner.max_policy_lag to 3 or "
     "more, or lower sac.batch_max"},
    {S "replay:\n  capacity: 255\n",
     {},
     "config.yaml:5: replay.capacity: 255 is less than a batch, 256 transitions; raise it to 256 or more"},
    {S "replay:\n  capacity: 256\n  n_step: 32\n",
     {},
     "config.yaml:5: replay.capacity: 256 is less than the n-step window, env.rows 8 x (sac.horizon 1 + "
     "replay.n_step 32) = 264 transitions; raise it to 264 or more"},
    {S "  frame_stack: 256\nreplay:\n  capacity: 1000\n",
     {"env.time_limit=0"},
     "config.yaml:6: replay.capacity: 1000 is less than the n-step window, env.rows 8 x (sac.horizon 1 + "
     "replay.n_step 1 + env.frame_stack 256 - 1) = 2056 transitions; raise it to 2056 or more"},
    {S "replay:\n  capacity: 1000\n",
     {"mode=async", "env.rows=200", "actors.processes=3"},
     "config.yaml:5: replay.capacity: 1000 is less than the n-step window, env.rows 200 x actors.processes 3 "
     "x "
     "(sac.horizon 1 + replay.n_step 1) = 1200 transitions; raise it to 1200 or more"},
    {S "",
     {"sac.batch_size=2", "sac.updates_per_step=1e-7"},
     "--set sac.updates_per_step=1e-7: sac.updates_per_step: 1e-07 x sac.batch_size 2 = 2e-07 transitions "
     "drawn "
     "for each one added; from 1e-06 to 1e+11 are possible"},
    {S "replay:\n  samples_per_insert: 2e11\n",
     {},
     "config.yaml:5: replay.samples_per_insert: 200000000000 transitions drawn for each one added; from "
     "1e-06 to "
     "1e+11 are possible"},
    {S "replay:\n  capacity: 2000000000\n  min_size: 1000000000\nsac:\n  batch_size: 1048576\n",
     {},
     "config.yaml:8: sac.batch_size: 1048576 x sac.updates_per_step 1 = 1.04858e+06 transitions "
     "drawn for each of replay.min_size 1000000000, or of one update's, are more than the 1e+12 in all that "
     "can be counted; lower one of them"},
    {S "replay:\n  error_band: 2e12\n",
     {},
     "config.yaml:5: replay.error_band: 2000000000000 samples are more than the 1e+12 that can be counted; "
     "lower it, "
     "or "
     "set it to 0, which chooses it"},
    {S "replay:\n  capacity: 999\n",
     {},
     "config.yaml:5: replay.capacity: 999 is less than replay.min_size, 1000 (the default): the first "
     "gradient step would never come; raise it to 1000 or more"},
    {S "sac:\n  updates_per_step: 2\nreplay:\n  samples_per_insert: 256\n",
     {},
     "config.yaml:7: replay.samples_per_insert: sac.updates_per_step, 2, sets this ratio too; set one of "
     "them "
     "to 0"},
    {S "sac:\n  updates_per_step: 0\n",
     {},
     "config.yaml:5: sac.updates_per_step: 0 never takes a gradient step; give a ratio above 0 here or in "
     "replay.samples_per_insert"},
    {S "replay:\n  error_band: 2047\n",
     {},
     "config.yaml:5: replay.error_band: 2047 samples can never be kept, for one batch of inserts asks for "
     "2048 "
     "and one gradient step takes 256; raise it to 2048 or more, or to 0, which chooses it"},
    {S "replay:\n  samples_per_insert: 4\n  error_band: 255\n",
     {},
     "config.yaml:6: replay.error_band: 255 samples can never be kept, for one batch of inserts asks for 32 "
     "and one gradient step takes 256; raise it to 256 or more, or to 0, which chooses it"},
    {S "  rows: 1000000\nsac:\n  horizon: 100000\n",
     {},
     "config.yaml:6: sac.horizon: env.rows 1000000 x sac.horizon 100000 = 100000000000 transitions at once "
     "are "
     "too many; at most 2147483647"},
    {S "ppo:\n  epochs: 4\n",
     {},
     "config.yaml:5: ppo.epochs: has no effect with algorithm sac; remove it, or set algorithm to ppo"},
    {S "  scale_reward: true\n",
     {},
     "config.yaml:4: env.scale_reward: has no effect with algorithm sac; remove it, or set algorithm to ppo"},
    {S "policy:\n  shared: true\n",
     {},
     "config.yaml:5: policy.shared: has no effect with algorithm sac; remove it, or set algorithm to ppo"},
    {E "sac:\n  tau: 0.01\n",
     {},
     "config.yaml:4: sac.tau: has no effect with algorithm ppo; remove it, or set algorithm to sac"},
    {E "checkpoint:\n  replay: true\n",
     {},
     "config.yaml:4: checkpoint.replay: has no effect with algorithm ppo; remove it, or set algorithm to "
     "sac"},
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
    const auto options = LoadConfig(bad.text, "config.yaml", bad.overrides);
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

}  // namespace
}  // namespace millrace
