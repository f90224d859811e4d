#include "common/rpc/status_codec.h"

#include <cmath>
#include <limits>

namespace millrace {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

void Put(const ActorStatus& from, v1::ActorStatus& to) {
  to.set_name(from.name);
  to.set_address(from.address);
  to.set_transport(from.transport);
  to.set_transport_note(from.transport_note);
  to.set_state(from.state);
  to.set_rows(from.rows);
  to.set_threads(from.threads);
  to.set_incarnation(from.incarnation);
  to.set_restarts(from.restarts);
  to.set_steps(from.steps);
  to.set_segments(from.segments);
  to.set_bytes(from.bytes);
  to.set_steps_per_second(from.steps_per_second);
  to.set_policy_version(from.policy_version);
  to.set_policy_lag(from.policy_lag);
  to.set_last_seen_seconds(from.last_seen_seconds);
}

ActorStatus Get(const v1::ActorStatus& from) {
  ActorStatus to;
  to.name = from.name();
  to.address = from.address();
  to.transport = from.transport();
  to.transport_note = from.transport_note();
  to.state = from.state();
  to.rows = from.rows();
  to.threads = from.threads();
  to.incarnation = from.incarnation();
  to.restarts = from.restarts();
  to.steps = from.steps();
  to.segments = from.segments();
  to.bytes = from.bytes();
  to.steps_per_second = from.steps_per_second();
  to.policy_version = from.policy_version();
  to.policy_lag = from.policy_lag();
  to.last_seen_seconds = from.last_seen_seconds();
  return to;
}

void Put(const QueueStatus& from, v1::QueueStatus& to) {
  to.set_name(from.name);
  to.set_depth(from.depth);
  to.set_bytes(from.bytes);
  to.set_max_bytes(from.max_bytes);
  to.set_total(from.total);
  to.set_wait_seconds(from.wait_seconds);
}

QueueStatus Get(const v1::QueueStatus& from) {
  QueueStatus to;
  to.name = from.name();
  to.depth = from.depth();
  to.bytes = from.bytes();
  to.max_bytes = from.max_bytes();
  to.total = from.total();
  to.wait_seconds = from.wait_seconds();
  return to;
}

void Put(const Counter& from, v1::Counter& to) {
  to.set_name(from.name);
  to.set_value(from.value);
}

Counter Get(const v1::Counter& from) {
  Counter to;
  to.name = from.name();
  to.value = from.value();
  return to;
}

void Put(const StationShare& from, v1::StationShare& to) {
  to.set_station(from.station);
  to.set_where(from.where);
  to.set_busy(from.busy);
  to.set_waiting(from.waiting);
  to.set_blocked(from.blocked);
}

StationShare Get(const v1::StationShare& from) {
  StationShare to;
  to.station = from.station();
  to.where = from.where();
  to.busy = from.busy();
  to.waiting = from.waiting();
  to.blocked = from.blocked();
  return to;
}

}  // namespace

void ToProto(const RunStatus& from, v1::RunStatus& to) {
  to.set_run_id(from.run_id);
  to.set_run_dir(from.run_dir);
  to.set_mode(from.mode);
  to.set_state(from.state);
  to.set_preset(from.preset);
  to.set_env(from.env);
  to.set_algorithm(from.algorithm);
  to.set_program_version(from.program_version);
  to.set_learner_incarnation(from.learner_incarnation);
  to.set_steps(from.steps);
  to.set_max_steps(from.max_steps);
  to.set_updates(from.updates);
  to.set_episodes(from.episodes);
  to.set_seconds(from.seconds);
  to.set_steps_per_second_10s(from.steps_per_second_10s);
  to.set_steps_per_second_run(from.steps_per_second_run);
  if (!std::isnan(from.return_mean)) to.set_return_mean(from.return_mean);
  if (!std::isnan(from.length_mean)) to.set_length_mean(from.length_mean);
  if (!std::isnan(from.policy_loss)) to.set_policy_loss(from.policy_loss);
  if (!std::isnan(from.value_loss)) to.set_value_loss(from.value_loss);
  if (!std::isnan(from.entropy)) to.set_entropy(from.entropy);
  if (!std::isnan(from.approx_kl)) to.set_approx_kl(from.approx_kl);
  to.set_learning_rate(from.learning_rate);
  if (!std::isnan(from.critic_loss)) to.set_critic_loss(from.critic_loss);
  if (!std::isnan(from.actor_loss)) to.set_actor_loss(from.actor_loss);
  if (!std::isnan(from.alpha)) to.set_alpha(from.alpha);
  if (!std::isnan(from.q_mean)) to.set_q_mean(from.q_mean);
  if (!std::isnan(from.samples_per_insert)) to.set_samples_per_insert(from.samples_per_insert);
  to.set_gradient_steps(from.gradient_steps);
  to.set_replay_size(from.replay_size);
  to.set_replay_capacity(from.replay_capacity);
  to.set_limiter(from.limiter);
  to.set_policy_version(from.policy_version);
  to.set_weights_bytes(from.weights_bytes);
  to.set_checkpoint_update(from.checkpoint_update);
  to.set_checkpoint_path(from.checkpoint_path);
  if (!std::isnan(from.checkpoint_age_seconds)) to.set_checkpoint_age_seconds(from.checkpoint_age_seconds);
  to.set_max_policy_lag(from.max_policy_lag);
  to.set_rows_missing(from.rows_missing);
  for (const std::string& name : from.awaited) to.add_awaited(name);
  to.set_bit_exact(from.bit_exact);
  to.set_limiting_station(from.limiting_station);
  to.set_advice(from.advice);
  for (const uint64_t segments : from.policy_lag_histogram) to.add_policy_lag_histogram(segments);
  for (const ActorStatus& actor : from.actors) Put(actor, *to.add_actors());
  for (const QueueStatus& queue : from.queues) Put(queue, *to.add_queues());
  for (const Counter& counter : from.counters) Put(counter, *to.add_counters());
  for (const StationShare& station : from.stations) Put(station, *to.add_stations());
}

RunStatus FromProto(const v1::RunStatus& from) {
  RunStatus to;
  to.run_id = from.run_id();
  to.run_dir = from.run_dir();
  to.mode = from.mode();
  to.state = from.state();
  to.preset = from.preset();
  to.env = from.env();
  to.algorithm = from.algorithm();
  to.program_version = from.program_version();
  to.learner_incarnation = from.learner_incarnation();
  to.steps = from.steps();
  to.max_steps = from.max_steps();
  to.updates = from.updates();
  to.episodes = from.episodes();
  to.seconds = from.seconds();
  to.steps_per_second_10s = from.steps_per_second_10s();
  to.steps_per_second_run = from.steps_per_second_run();
  to.return_mean = from.has_return_mean() ? from.return_mean() : kUnknown;
  to.length_mean = from.has_length_mean() ? from.length_mean() : kUnknown;
  to.policy_loss = from.has_policy_loss() ? from.policy_loss() : kUnknown;
  to.value_loss = from.has_value_loss() ? from.value_loss() : kUnknown;
  to.entropy = from.has_entropy() ? from.entropy() : kUnknown;
  to.approx_kl = from.has_approx_kl() ? from.approx_kl() : kUnknown;
  to.learning_rate = from.learning_rate();
  to.critic_loss = from.has_critic_loss() ? from.critic_loss() : kUnknown;
  to.actor_loss = from.has_actor_loss() ? from.actor_loss() : kUnknown;
  to.alpha = from.has_alpha() ? from.alpha() : kUnknown;
  to.q_mean = from.has_q_mean() ? from.q_mean() : kUnknown;
  to.samples_per_insert = from.has_samples_per_insert() ? from.samples_per_insert() : kUnknown;
  to.gradient_steps = from.gradient_steps();
  to.replay_size = from.replay_size();
  to.replay_capacity = from.replay_capacity();
  to.limiter = from.limiter();
  to.policy_version = from.policy_version();
  to.weights_bytes = from.weights_bytes();
  to.checkpoint_update = from.checkpoint_update();
  to.checkpoint_path = from.checkpoint_path();
  to.checkpoint_age_seconds = from.has_checkpoint_age_seconds() ? from.checkpoint_age_seconds() : kUnknown;
  to.max_policy_lag = from.max_policy_lag();
  to.rows_missing = from.rows_missing();
  to.awaited.assign(from.awaited().begin(), from.awaited().end());
  to.bit_exact = from.bit_exact();
  to.limiting_station = from.limiting_station();
  to.advice = from.advice();
  to.policy_lag_histogram.assign(from.policy_lag_histogram().begin(), from.policy_lag_histogram().end());
  for (const v1::ActorStatus& actor : from.actors()) to.actors.push_back(Get(actor));
  for (const v1::QueueStatus& queue : from.queues()) to.queues.push_back(Get(queue));
  for (const v1::Counter& counter : from.counters()) to.counters.push_back(Get(counter));
  for (const v1::StationShare& station : from.stations()) to.stations.push_back(Get(station));
  return to;
}

}  // namespace millrace
