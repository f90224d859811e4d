// The one list of the settings of a run: every field of RunOptions with its path, in the order of files. Both
// directions between plain values and protobuf walk it; a test fails when proto/millrace/v1/config.proto and
// it differ. Owner: common/config; plain C++; any thread.
#pragma once

#include "common/options.h"

namespace millrace::config_internal {

// Calls visit(path, member) for each; `options` is RunOptions or const RunOptions.
template <class Options, class Visitor>
void VisitFields(Options& options, Visitor&& visit) {
#define MILL_FIELD(path) visit(#path, options.path)
  MILL_FIELD(algorithm);
  MILL_FIELD(mode);

  MILL_FIELD(run.name);
  MILL_FIELD(run.dir);
  MILL_FIELD(run.seed);
  MILL_FIELD(run.steps);
  MILL_FIELD(run.threads);
  MILL_FIELD(run.stop_at_return);
  MILL_FIELD(run.stop_window);
  MILL_FIELD(run.warm_start);
  MILL_FIELD(run.on_nonfinite);

  MILL_FIELD(env.id);
  MILL_FIELD(env.rows);
  MILL_FIELD(env.group_rows);
  MILL_FIELD(env.params);
  MILL_FIELD(env.time_limit);
  MILL_FIELD(env.action_repeat);
  MILL_FIELD(env.frame_stack);
  MILL_FIELD(env.normalize_obs);
  MILL_FIELD(env.clip_obs);
  MILL_FIELD(env.scale_reward);
  MILL_FIELD(env.clip_reward);
  MILL_FIELD(env.step_wait_us);
  MILL_FIELD(env.clip_actions);

  MILL_FIELD(policy.hidden);
  MILL_FIELD(policy.activation);
  MILL_FIELD(policy.shared);
  MILL_FIELD(policy.gain_hidden);
  MILL_FIELD(policy.gain_policy);
  MILL_FIELD(policy.gain_value);
  MILL_FIELD(policy.log_std_init);

  MILL_FIELD(ppo.horizon);
  MILL_FIELD(ppo.minibatch_size);
  MILL_FIELD(ppo.epochs);
  MILL_FIELD(ppo.gamma);
  MILL_FIELD(ppo.gae_lambda);
  MILL_FIELD(ppo.clip_range);
  MILL_FIELD(ppo.clip_schedule);
  MILL_FIELD(ppo.value_clip);
  MILL_FIELD(ppo.entropy_coef);
  MILL_FIELD(ppo.value_coef);
  MILL_FIELD(ppo.target_kl);
  MILL_FIELD(ppo.max_grad_norm);
  MILL_FIELD(ppo.advantage_norm);
  MILL_FIELD(ppo.learning_rate);
  MILL_FIELD(ppo.lr_schedule);
  MILL_FIELD(ppo.adam_beta1);
  MILL_FIELD(ppo.adam_beta2);
  MILL_FIELD(ppo.adam_eps);
  MILL_FIELD(ppo.weight_decay);

  MILL_FIELD(sac.horizon);
  MILL_FIELD(sac.batch_size);
  MILL_FIELD(sac.gamma);
  MILL_FIELD(sac.tau);
  MILL_FIELD(sac.updates_per_step);
  MILL_FIELD(sac.random_steps);
  MILL_FIELD(sac.actor_learning_rate);
  MILL_FIELD(sac.critic_learning_rate);
  MILL_FIELD(sac.alpha_learning_rate);
  MILL_FIELD(sac.auto_alpha);
  MILL_FIELD(sac.alpha);
  MILL_FIELD(sac.auto_target_entropy);
  MILL_FIELD(sac.target_entropy);
  MILL_FIELD(sac.policy_delay);
  MILL_FIELD(sac.target_interval);
  MILL_FIELD(sac.critics);
  MILL_FIELD(sac.critic_subset);
  MILL_FIELD(sac.layer_norm);
  MILL_FIELD(sac.critic_hidden);
  MILL_FIELD(sac.max_grad_norm);
  MILL_FIELD(sac.activation_checkpoint);
  MILL_FIELD(sac.adam_beta1);
  MILL_FIELD(sac.adam_beta2);
  MILL_FIELD(sac.adam_eps);
  MILL_FIELD(sac.max_q_ratio);
  MILL_FIELD(sac.max_alpha);
  MILL_FIELD(sac.batch_min);
  MILL_FIELD(sac.batch_max);

  MILL_FIELD(replay.capacity);
  MILL_FIELD(replay.min_size);
  MILL_FIELD(replay.n_step);
  MILL_FIELD(replay.prioritized);
  MILL_FIELD(replay.alpha);
  MILL_FIELD(replay.beta);
  MILL_FIELD(replay.beta_end);
  MILL_FIELD(replay.priority_eps);
  MILL_FIELD(replay.file);
  MILL_FIELD(replay.samples_per_insert);
  MILL_FIELD(replay.error_band);

  MILL_FIELD(eval.every);
  MILL_FIELD(eval.episodes);

  MILL_FIELD(checkpoint.every);
  MILL_FIELD(checkpoint.keep);
  MILL_FIELD(checkpoint.replay);

  MILL_FIELD(metrics.every);
  MILL_FIELD(metrics.tensorboard);
  MILL_FIELD(metrics.segments);

  MILL_FIELD(actors.processes);
  MILL_FIELD(actors.threads);
  MILL_FIELD(actors.transport);
  MILL_FIELD(actors.lease_seconds);
  MILL_FIELD(actors.on_lost);
  MILL_FIELD(actors.max_restarts);

  MILL_FIELD(learner.queue_mib);
  MILL_FIELD(learner.max_policy_lag);
  MILL_FIELD(learner.correction);
  MILL_FIELD(learner.rho_bar);
  MILL_FIELD(learner.c_bar);
#undef MILL_FIELD
}

}  // namespace millrace::config_internal
