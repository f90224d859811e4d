// TrajectoryService: what it says of itself.
#include <algorithm>

#include "learner/trajectory_service.h"

namespace millrace {
namespace {
double Since(std::chrono::steady_clock::time_point now, std::chrono::steady_clock::time_point then) {
  return std::max(0.0, std::chrono::duration<double>(now - then).count());
}
}  // namespace

// What is underway counts up to now: a long wait shows while it lasts.
TrajectoryService::Totals TrajectoryService::TotalsAt(Time now) const {
  Totals totals = totals_;
  if (waiting_) totals.wait_seconds += Since(now, waiting_since_);
  totals.ingest_seconds += ingesting_ * std::chrono::duration<double>(now.time_since_epoch()).count();
  return totals;
}

void TrajectoryService::FillActors(RunStatus& status, Time now) const {
  std::map<uint64_t, uint32_t> rows;
  for (const HeldGroup& group : table_.groups()) {
    rows[group.holder] += static_cast<uint32_t>(group.layout->rows());
  }
  for (const auto& [number, actor] : actors_) {
    ActorStatus s;
    s.name = actor->name;
    s.address = actor->peer;
    s.transport = std::string(TransportName(actor->kind));
    s.transport_note = actor->note;
    s.rows = rows[number];
    s.state = actor->left || (actor->session == 0 && s.rows == 0) ? "gone"
              : actor->session == 0                               ? "silent"
              : s.rows == 0                                       ? "spare"
                                                                  : "active";
    s.threads = actor->threads;
    s.incarnation = actor->incarnation;
    s.restarts = actor->restarts;
    s.steps = actor->steps;
    s.segments = actor->segments;
    s.bytes = actor->bytes;
    if (actor->steps_window.known()) {
      s.steps_per_second = static_cast<double>(actor->steps_window.last() - actor->steps_window.first()) /
                           actor->steps_window.seconds();
    }
    // Heartbeats are seconds apart; what has come in since knows better.
    s.policy_version = std::max(actor->stats.policy_version, actor->acted_version);
    if (weights_ != nullptr && weights_->version > s.policy_version) {
      s.policy_lag = weights_->version - s.policy_version;
    }
    s.last_seen_seconds = Since(now, actor->last_seen);
    status.actors.push_back(std::move(s));
  }
}

// Shares of the last ten seconds. On the actors' side a second of a thread is the unit, on the learner's a
// second of the clock.
void TrajectoryService::FillStations(RunStatus& status) const {
  double all = 0, env = 0, inference = 0, send = 0, weights = 0, credit = 0;
  for (const auto& [number, actor] : actors_) {
    if (actor->session == 0 || !actor->stats_window.known()) continue;
    const ActorStats &a = actor->stats_window.first(), &b = actor->stats_window.last();
    all += actor->stats_window.seconds() * actor->threads;
    env += b.env_seconds - a.env_seconds;
    inference += b.inference_seconds - a.inference_seconds;
    send += b.send_seconds - a.send_seconds;
    weights += b.wait_weights_seconds - a.wait_weights_seconds;
    credit += b.wait_credit_seconds - a.wait_credit_seconds;
  }
  const auto share = [](double part, double whole) {
    const double ratio = part / whole;
    return ratio > 0 ? std::min(ratio, 1.0) : 0.0;  // what actors say may be no number
  };
  if (all > 0) {
    status.stations.push_back({"env", "actors", share(env, all), share(weights, all), share(credit, all)});
    status.stations.push_back({"inference", "actors", share(inference, all), 0, 0});
    status.stations.push_back({"send", "actors", share(send, all), 0, 0});
  }
  if (!totals_window_.known()) return;
  const double seconds = totals_window_.seconds();
  const Totals &first = totals_window_.first(), &last = totals_window_.last();
  const double waited = share(last.wait_seconds - first.wait_seconds, seconds);
  const double published = share(last.publish_seconds - first.publish_seconds, seconds);
  status.stations.push_back(
      {"ingest", "learner", share(last.ingest_seconds - first.ingest_seconds, seconds), 0, 0});
  status.stations.push_back({"update", "learner", std::max(0.0, 1 - waited - published), waited, 0});
  status.stations.push_back({"publish", "learner", published, 0, 0});
}

void TrajectoryService::FillStatus(RunStatus& status) const {
  MutexLock lock(mutex_);
  const Time now = options_.now();
  status.run_id = options_.run_id;
  status.mode = async_ ? "async" : "sync";
  status.env = options_.spec.id;
  status.program_version = options_.program_version;
  status.learner_incarnation = options_.learner_incarnation;
  status.max_policy_lag = async_ ? max_policy_lag_ : 0;
  status.bit_exact = bit_exact_;
  status.rows_missing = table_.missing_rows();
  status.awaited = table_.awaited();
  if (weights_ != nullptr) {
    status.policy_version = weights_->version;
    status.weights_bytes = weights_->bytes.size();
  }
  size_t bins = lag_histogram_.size();
  while (bins > 1 && lag_histogram_[bins - 1] == 0) --bins;
  status.policy_lag_histogram.assign(lag_histogram_.begin(),
                                     lag_histogram_.begin() + static_cast<std::ptrdiff_t>(bins));
  FillActors(status, now);
  QueueStatus queue;
  queue.name = "segments";
  queue.depth = queue_.size();
  for (const Held& held : queue_) queue.bytes += held.view.layout().bytes();
  queue.max_bytes = uint64_t{options_.run.learner.queue_mib} << 20;
  queue.total = taken_in_;
  if (taken_in_ > queue_.size()) {
    queue.wait_seconds = queue_seconds_ / static_cast<double>(taken_in_ - queue_.size());
  }
  status.queues.push_back(queue);
  QueueStatus granted;
  granted.name = "granted";
  granted.depth = granted_;
  granted.bytes = granted_ * table_.max_segment_bytes();
  granted.max_bytes = queue.max_bytes;
  status.queues.push_back(granted);
  for (const auto& [name, value] : counters_) status.counters.push_back({name, value});
  FillStations(status);
}

}  // namespace millrace
