// RunOptions: every setting of a run as plain values with their defaults; the mirror of
// proto/millrace/v1/config.proto, which is the schema of files, flags and checkpoints. common/config reads,
// checks and writes it; stations read it. Paths of keys in files and --set are the names here:
// `ppo.clip_range` is RunOptions::ppo.clip_range.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace millrace {

enum class Activation : uint8_t { kNone, kTanh, kRelu, kGelu, kSilu };
enum class AdvantageNorm : uint8_t { kMinibatch, kBatch, kOff };
enum class Schedule : uint8_t { kConstant, kLinear, kCosine };
enum class OnNonfinite : uint8_t { kStop, kSkip };
enum class RunMode : uint8_t { kSync, kAsync };
enum class TransportChoice : uint8_t { kAuto, kShm, kGrpc };
enum class OnLost : uint8_t { kReassign, kWait };
enum class Correction : uint8_t { kVtrace, kRatio };

struct RunSection {
  std::string name;  // of the preset or the file; names the run's folder
  std::string dir;   // the run's folder; empty: runs/<name>-<seed>-<time>
  uint64_t seed = 1;
  uint64_t steps = 1'000'000;  // environment steps (rows x env steps) after which the run is done
  uint32_t threads = 0;        // 0: as many as the CPUs that this process may use
  double stop_at_return =
      0;  // with stop_window > 0: done when the mean of the last stop_window episodes is there
  uint32_t stop_window = 0;  // episodes; 0: never stop early
  std::string warm_start;    // a run's folder or a checkpoint whose weights the run begins with
  OnNonfinite on_nonfinite = OnNonfinite::kStop;

  bool operator==(const RunSection&) const = default;
};

struct EnvSection {
  std::string id;
  uint32_t rows = 8;                          // environments (agents) stepped together
  uint32_t group_rows = 0;                    // rows of a row group; 0: chosen from rows alone
  std::map<std::string, std::string> params;  // the environment's own settings
  int32_t time_limit = -1;                    // steps; -1: the environment's own, 0: none
  uint32_t action_repeat = 1;
  uint32_t frame_stack = 1;
  bool normalize_obs = false;  // running mean and variance of fresh frames
  double clip_obs = 0;         // after normalisation, to [-clip_obs, clip_obs]; 0: off
  bool scale_reward = false;   // by the deviation of the return discounted by ppo.gamma; PPO only
  double clip_reward = 0;      // after scaling, to [-clip_reward, clip_reward]; 0: off
  uint32_t step_wait_us = 0;   // microseconds that each step waits: stands in for a slow environment
  bool clip_actions = true;    // Box actions are clipped to the bounds before the environment sees them

  bool operator==(const EnvSection&) const = default;
};

struct PolicySection {
  std::vector<uint32_t> hidden = {64, 64};
  Activation activation = Activation::kTanh;
  bool shared = false;                      // one trunk for policy and value, or one each
  double gain_hidden = 1.4142135623730951;  // orthogonal initialisation
  double gain_policy = 0.01;
  double gain_value = 1.0;
  double log_std_init = 0.0;  // Box only

  bool operator==(const PolicySection&) const = default;
};

struct PpoSection {
  uint32_t horizon = 128;         // steps a row in one rollout
  uint32_t minibatch_size = 256;  // samples
  uint32_t epochs = 10;
  double gamma = 0.99;
  double gae_lambda = 0.95;
  double clip_range = 0.2;
  Schedule clip_schedule = Schedule::kConstant;
  double value_clip = 0;  // 0: the value loss is not clipped
  double entropy_coef = 0.0;
  double value_coef = 0.5;
  double target_kl = 0;        // 0: off
  double max_grad_norm = 0.5;  // 0: off
  AdvantageNorm advantage_norm = AdvantageNorm::kMinibatch;
  double learning_rate = 3e-4;
  Schedule lr_schedule = Schedule::kConstant;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_eps = 1e-5;
  double weight_decay = 0.0;  // decoupled (AdamW); 0: Adam

  bool operator==(const PpoSection&) const = default;
};

struct SacSection {
  uint32_t horizon = 1;       // steps a row in one segment
  uint32_t batch_size = 256;  // transitions of one gradient step
  double gamma = 0.99;
  double tau = 0.005;            // of the target critics' average
  double updates_per_step = 1;   // gradient steps an agent step, any ratio; 0: by replay.samples_per_insert
  uint64_t random_steps = 1000;  // agent steps, over all rows, that are acted uniformly at random
  double actor_learning_rate = 3e-4;
  double critic_learning_rate = 3e-4;
  double alpha_learning_rate = 3e-4;
  bool auto_alpha = true;
  double alpha = 1.0;  // the entropy's weight: at the start, or throughout
  bool auto_target_entropy = true;
  double target_entropy = 0;  // nats, where it is not automatic
  uint32_t policy_delay = 1;  // gradient steps of the critics to one of the policy
  uint32_t target_interval = 1;
  uint32_t critics = 2;
  uint32_t critic_subset = 2;           // of them in the target's minimum, drawn each gradient step
  bool layer_norm = false;              // in the critics
  std::vector<uint32_t> critic_hidden;  // empty: policy.hidden
  double max_grad_norm = 0;             // 0: off
  uint32_t activation_checkpoint = 0;   // every so many layers; 0: off
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_eps = 1e-8;
  double max_q_ratio = 100;  // |Q| over the largest discounted return that rewards allow
  double max_alpha = 1000;
  uint32_t batch_min = 0, batch_max = 0;  // async: what is ready within these; both 0: batch_size

  bool operator==(const SacSection&) const = default;
};

struct ReplaySection {
  uint64_t capacity = 1'000'000;  // transitions
  uint64_t min_size = 1000;       // transitions before the first gradient step
  uint32_t n_step = 1;
  bool prioritized = false;
  double alpha = 0.6;  // exponent of the priorities
  double beta = 0.4;   // exponent of the importance weights at the start, moving linearly
  double beta_end = 1.0;
  double priority_eps = 1e-6;
  std::string file;               // memory-mapped; empty: in memory
  double samples_per_insert = 0;  // transitions sampled to one added; 0: by sac.updates_per_step
  double error_band = 0;          // samples that the ratio may be off by; 0: one batch of inserts

  bool operator==(const ReplaySection&) const = default;
};

struct EvalSection {
  uint64_t every = 0;  // environment steps between evaluations while training; 0: none
  uint32_t episodes = 100;

  bool operator==(const EvalSection&) const = default;
};

struct CheckpointSection {
  uint32_t every = 100;  // updates; 0: only at the end
  uint32_t keep = 3;     // the newest that stay, besides the best
  bool replay = false;   // sac: the replay's content too

  bool operator==(const CheckpointSection&) const = default;
};

struct MetricsSection {
  uint32_t every = 1;  // updates a line of metrics.jsonl
  bool tensorboard = true;
  bool segments = false;  // segments.jsonl: a line for each segment that was trained on

  bool operator==(const MetricsSection&) const = default;
};

struct ActorsSection {
  uint32_t processes = 0;  // that `train` starts and supervises; 0: environments run in its own process
  uint32_t threads = 0;    // of each actor process; 0: its share of the CPUs
  TransportChoice transport = TransportChoice::kAuto;
  double lease_seconds = 10;  // of silence after which an actor's row groups are free
  OnLost on_lost = OnLost::kReassign;
  uint32_t max_restarts = 5;  // of one process in a row, without a segment between them

  bool operator==(const ActorsSection&) const = default;
};

struct LearnerSection {
  uint32_t queue_mib = 256;                     // segments granted, underway and waiting
  uint32_t max_policy_lag = 1;                  // async: updates between acting and training
  Correction correction = Correction::kVtrace;  // async
  double rho_bar = 1.0, c_bar = 1.0;            // V-trace

  bool operator==(const LearnerSection&) const = default;
};

struct RunOptions {
  std::string algorithm = "ppo";
  RunMode mode = RunMode::kSync;
  RunSection run;
  EnvSection env;
  PolicySection policy;
  PpoSection ppo;
  SacSection sac;
  ReplaySection replay;
  EvalSection eval;
  CheckpointSection checkpoint;
  MetricsSection metrics;
  ActorsSection actors;
  LearnerSection learner;

  bool operator==(const RunOptions&) const = default;
};

// What rollouts, transports and statistics ask of whichever algorithm runs.
inline bool IsSac(const RunOptions& options) {
  return options.algorithm == "sac";
}
// Steps of each row in one segment.
inline uint32_t Horizon(const RunOptions& options) {
  return IsSac(options) ? options.sac.horizon : options.ppo.horizon;
}
// The discount a step.
inline double Gamma(const RunOptions& options) {
  return IsSac(options) ? options.sac.gamma : options.ppo.gamma;
}
// Agent steps of a row at the start whose actions are uniform: its share of sac.random_steps, rounded up.
inline uint64_t UniformSteps(const RunOptions& options) {
  return IsSac(options) ? (options.sac.random_steps + options.env.rows - 1) / options.env.rows : 0;
}
// Sac: gradient steps an agent step, from whichever of the two settings has it.
inline double UpdatesPerStep(const RunOptions& options) {
  return options.sac.updates_per_step > 0 ? options.sac.updates_per_step
                                          : options.replay.samples_per_insert / options.sac.batch_size;
}

}  // namespace millrace
