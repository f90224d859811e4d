// RunStatus: what a run is doing, as plain values; the mirror of proto/millrace/v1/status.proto, where each
// field's meaning stands. The learner fills it, `millrace status` shows it. NaN: not known yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

// Entries of a lag histogram that has all of them; its last one counts larger lags, too.
inline constexpr size_t kLagBins = 33;

struct StationShare {
  std::string station;  // env, inference, send, ingest, update, ... in the order of the path
  std::string where;    // actors or learner
  double busy = 0, waiting = 0,
         blocked = 0;  // shares of the time, 0 to 1; they add up to 1 where all are known
};

struct ActorStatus {
  std::string name, address, transport, transport_note, state;  // state: active, spare, silent, gone
  uint32_t rows = 0, threads = 0;
  uint64_t incarnation = 0, restarts = 0;
  uint64_t steps = 0, segments = 0, bytes = 0;  // taken in here
  double steps_per_second = 0;                  // of the last 10 seconds
  uint64_t policy_version = 0, policy_lag = 0;
  double last_seen_seconds = 0;
};

struct QueueStatus {
  std::string name;
  uint64_t depth = 0, bytes = 0, max_bytes = 0, total = 0;
  double wait_seconds = 0;  // mean time that an entry stood in it
};

struct Counter {
  std::string name;  // dropped_stale, dropped_lease, duplicates, checksum_errors, ...
  uint64_t value = 0;
};

struct RunStatus {
  std::string run_id, run_dir, mode, state;  // as in the .proto
  std::string preset, env, algorithm, program_version;
  uint64_t learner_incarnation = 0;
  uint64_t steps = 0, max_steps = 0, updates = 0, episodes = 0;
  double seconds = 0;  // of training
  double steps_per_second_10s = 0, steps_per_second_run = 0;
  double return_mean = std::numeric_limits<double>::quiet_NaN();
  double length_mean = std::numeric_limits<double>::quiet_NaN();
  double policy_loss = std::numeric_limits<double>::quiet_NaN();
  double value_loss = std::numeric_limits<double>::quiet_NaN();
  double entropy = std::numeric_limits<double>::quiet_NaN();
  double approx_kl = std::numeric_limits<double>::quiet_NaN();
  double learning_rate = 0;
  double critic_loss = std::numeric_limits<double>::quiet_NaN();  // from here on of algorithm sac
  double actor_loss = std::numeric_limits<double>::quiet_NaN();
  double alpha = std::numeric_limits<double>::quiet_NaN();
  double q_mean = std::numeric_limits<double>::quiet_NaN();
  uint64_t gradient_steps = 0, replay_size = 0, replay_capacity = 0;
  double samples_per_insert = std::numeric_limits<double>::quiet_NaN();
  std::string limiter;
  uint64_t policy_version = 0, weights_bytes = 0;
  uint64_t checkpoint_update = 0;
  std::string checkpoint_path;
  double checkpoint_age_seconds = std::numeric_limits<double>::quiet_NaN();
  uint32_t max_policy_lag = 0;  // async
  std::vector<uint64_t>
      policy_lag_histogram;          // [i] segments trained on at lag i; up to the last that is not 0
  uint32_t rows_missing = 0;         // rows that no actor holds
  std::vector<std::string> awaited;  // actors that rows are kept for
  bool bit_exact = true;             // false: a group began anew where its state was unknown
  std::vector<ActorStatus> actors;
  std::vector<QueueStatus> queues;
  std::vector<Counter> counters;
  std::vector<StationShare> stations;
  std::string limiting_station, advice;  // what limits the run, and what to do about it
};

// Fills limiting_station and advice from what else stands in the status: the station that works for the
// largest share of the time, or what the run waits for. Both are empty while nothing is to be said: before
// the shares are known, and when the run is paused or at its end.
void FindLimit(RunStatus& status);

}  // namespace millrace
