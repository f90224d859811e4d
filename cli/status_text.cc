#include "cli/status_text.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/human.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;
using Table = std::vector<std::vector<std::string>>;  // rows of cells, the first one the head

std::string FormatBytes(uint64_t bytes) {
  double size = static_cast<double>(bytes);
  const char* unit = "B";
  for (const char* next : {"KiB", "MiB", "GiB", "TiB"}) {
    if (size < 999.5) break;
    size /= 1024;
    unit = next;
  }
  return absl::StrFormat("%.*f %s", size < 9.995 && *unit != 'B' ? 1 : 0, size, unit);
}

std::string Count(uint64_t n) {
  return FormatCount(static_cast<double>(n));
}

// Columns two spaces apart, as wide as their widest cell.
void AppendTable(std::string& out, const Table& table) {
  std::vector<size_t> widths;
  for (const auto& row : table) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  for (const auto& row : table) {
    for (size_t c = 0; c < row.size(); ++c) {
      out += row[c];
      if (c + 1 < row.size()) out.append(widths[c] - row[c].size() + 2, ' ');
    }
    out += '\n';
  }
}

std::string Percent(uint64_t part, uint64_t whole) {
  if (whole == 0) return "";
  return absl::StrFormat(" (%d%%)", static_cast<int>(100.0 * static_cast<double>(std::min(part, whole)) /
                                                     static_cast<double>(whole)));
}

std::string Losses(const RunStatus& s) {
  if (s.algorithm == "sac") {
    return absl::StrCat("critic ", FormatReal(s.critic_loss), ", actor ", FormatReal(s.actor_loss),
                        ", entropy ", FormatReal(s.entropy), ", alpha ", FormatReal(s.alpha), ", mean Q ",
                        FormatReal(s.q_mean));
  }
  return absl::StrCat("policy ", FormatReal(s.policy_loss), ", value ", FormatReal(s.value_loss),
                      ", entropy ", FormatReal(s.entropy), ", kl ", FormatReal(s.approx_kl),
                      ", learning rate ", FormatReal(s.learning_rate));
}

void AppendRun(std::string& out, const RunStatus& s) {
  absl::StrAppend(&out, s.preset, " on ", s.env, ", ", s.algorithm, ", ", s.mode, ": ", s.state, "\n");
  Table table = {
      {"run", absl::StrCat(s.run_id, " in ", s.run_dir)},
      {"steps", absl::StrCat(Count(s.steps), " of ", Count(s.max_steps), Percent(s.steps, s.max_steps), ", ",
                             Count(s.updates), " updates, ", Count(s.episodes), " episodes, ",
                             FormatDuration(s.seconds), " of training")},
      {"rate", absl::StrCat(FormatCount(s.steps_per_second_10s), " steps/s, ",
                            FormatCount(s.steps_per_second_run), " over the run")},
      {"return", absl::StrCat(FormatReal(s.return_mean), ", length ", FormatReal(s.length_mean))},
      {"losses", Losses(s)},
      {"weights", absl::StrCat("version ", s.policy_version, ", ", FormatBytes(s.weights_bytes))},
      {"checkpoint", s.checkpoint_path.empty() ? "none yet"
                                               : absl::StrCat("update ", s.checkpoint_update, ", ",
                                                              FormatDuration(s.checkpoint_age_seconds),
                                                              " ago: ", s.checkpoint_path)},
  };
  if (s.algorithm == "sac") {
    table.push_back({"replay", absl::StrCat(Count(s.replay_size), " of ", Count(s.replay_capacity),
                                            " transitions, ", Count(s.gradient_steps), " gradient steps, ",
                                            FormatReal(s.samples_per_insert), " samples an insert",
                                            s.limiter.empty() ? "" : "; ", s.limiter)});
  }
  if (s.mode == "async") {
    std::vector<std::string> bins;
    for (size_t lag = 0; lag < s.policy_lag_histogram.size(); ++lag) {
      const bool last = lag + 1 == kLagBins;
      if (s.policy_lag_histogram[lag] > 0)
        bins.push_back(absl::StrCat(lag, last ? "+" : "", ": ", Count(s.policy_lag_histogram[lag])));
    }
    table.push_back({"lag", absl::StrCat("at most ", s.max_policy_lag, "; segments by lag: ",
                                         bins.empty() ? "none" : absl::StrJoin(bins, ", "))});
  }
  if (s.rows_missing > 0)
    table.push_back(
        {"missing", absl::StrCat(s.rows_missing, " rows that no actor holds",
                                 s.awaited.empty() ? "" : "; kept for ", absl::StrJoin(s.awaited, ", "))});
  if (!s.bit_exact) table.push_back({"exact", "no: episodes began anew where a row's state was not known"});
  AppendTable(out, table);
}

void AppendActors(std::string& out, const RunStatus& s) {
  if (s.actors.empty()) return;
  Table table = {{"actor", "state", "transport", "rows", "threads", "steps/s", "steps", "version", "lag",
                  "seen", "restarts", "address"}};
  for (const ActorStatus& a : s.actors) {
    table.push_back({a.name, a.state, a.transport, absl::StrCat(a.rows), absl::StrCat(a.threads),
                     FormatCount(a.steps_per_second), Count(a.steps), absl::StrCat(a.policy_version),
                     absl::StrCat(a.policy_lag), absl::StrCat(FormatDuration(a.last_seen_seconds), " ago"),
                     absl::StrCat(a.restarts), a.address});
  }
  out += '\n';
  AppendTable(out, table);
  for (const ActorStatus& a : s.actors) {
    if (!a.transport_note.empty()) absl::StrAppend(&out, a.name, ": ", a.transport_note, "\n");
  }
}

void AppendQueues(std::string& out, const RunStatus& s) {
  if (!s.queues.empty()) {
    Table table = {{"queue", "entries", "bytes", "of", "total", "wait"}};
    for (const QueueStatus& q : s.queues) {
      table.push_back({q.name, absl::StrCat(q.depth), FormatBytes(q.bytes), FormatBytes(q.max_bytes),
                       Count(q.total), FormatDuration(q.wait_seconds)});
    }
    out += '\n';
    AppendTable(out, table);
  }
  if (s.counters.empty()) return;
  out += "\ncounted: ";
  for (const Counter& c : s.counters) {
    absl::StrAppend(&out, &c == s.counters.data() ? "" : ", ", c.name, " ", c.value);
  }
  out += '\n';
}

// Busy, blocked and waiting as one bar of fixed width.
std::string Bar(const StationShare& s, bool unicode) {
  constexpr int kWidth = 20;
  const auto columns = [](double share) {
    return std::isfinite(share) ? static_cast<int>(std::lround(std::clamp(share, 0.0, 1.0) * kWidth)) : 0;
  };
  const int busy = columns(s.busy), blocked = std::min(columns(s.blocked), kWidth - busy);
  std::string bar;
  for (int i = 0; i < kWidth; ++i) {
    if (unicode) {
      bar += i < busy ? "\u2588" : i < busy + blocked ? "\u2592" : "\u00b7";
    } else {
      bar += i < busy ? '#' : i < busy + blocked ? 'x' : '.';
    }
  }
  return bar;
}

void AppendStations(std::string& out, const RunStatus& s, bool unicode) {
  if (s.stations.empty()) return;
  size_t name = 7, where = 5;
  for (const StationShare& station : s.stations) {
    name = std::max(name, station.station.size());
    where = std::max(where, station.where.size());
  }
  const auto pad = [](const std::string& text, size_t width) {
    return text + std::string(width - std::min(width, text.size()) + 2, ' ');
  };
  absl::StrAppend(&out, "\n", pad("station", name), pad("where", where), std::string(22, ' '),
                  "busy  waiting  blocked\n");
  for (const StationShare& station : s.stations) {
    absl::StrAppend(&out, pad(station.station, name), pad(station.where, where), Bar(station, unicode),
                    absl::StrFormat("  %3.0f%%  %6.0f%%  %6.0f%%\n", 100 * station.busy,
                                    100 * station.waiting, 100 * station.blocked));
  }
}

Json Number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

Json ToJson(const ActorStatus& a) {
  return {{"name", a.name},
          {"address", a.address},
          {"transport", a.transport},
          {"transport_note", a.transport_note},
          {"state", a.state},
          {"rows", a.rows},
          {"threads", a.threads},
          {"incarnation", a.incarnation},
          {"restarts", a.restarts},
          {"steps", a.steps},
          {"segments", a.segments},
          {"bytes", a.bytes},
          {"steps_per_second", Number(a.steps_per_second)},
          {"policy_version", a.policy_version},
          {"policy_lag", a.policy_lag},
          {"last_seen_seconds", Number(a.last_seen_seconds)}};
}

Json ToJson(const QueueStatus& q) {
  return {{"name", q.name},           {"depth", q.depth}, {"bytes", q.bytes},
          {"max_bytes", q.max_bytes}, {"total", q.total}, {"wait_seconds", Number(q.wait_seconds)}};
}

Json ToJson(const Counter& c) {
  return {{"name", c.name}, {"value", c.value}};
}

Json ToJson(const StationShare& s) {
  return {{"station", s.station},
          {"where", s.where},
          {"busy", Number(s.busy)},
          {"waiting", Number(s.waiting)},
          {"blocked", Number(s.blocked)}};
}

template <class T>
Json ToJson(const std::vector<T>& entries) {
  Json list = Json::array();
  for (const T& entry : entries) list.push_back(ToJson(entry));
  return list;
}

}  // namespace

std::string StatusText(const RunStatus& status, bool unicode) {
  std::string out;
  AppendRun(out, status);
  AppendActors(out, status);
  AppendQueues(out, status);
  AppendStations(out, status, unicode);
  if (!status.limiting_station.empty()) {
    absl::StrAppend(&out, "\nlimit: ", status.limiting_station, " - ", status.advice, "\n");
  }
  return out;
}

std::string StatusJson(const RunStatus& s) {
  const Json json = {{"run_id", s.run_id},
                     {"run_dir", s.run_dir},
                     {"mode", s.mode},
                     {"state", s.state},
                     {"preset", s.preset},
                     {"env", s.env},
                     {"algorithm", s.algorithm},
                     {"program_version", s.program_version},
                     {"learner_incarnation", s.learner_incarnation},
                     {"steps", s.steps},
                     {"max_steps", s.max_steps},
                     {"updates", s.updates},
                     {"episodes", s.episodes},
                     {"seconds", Number(s.seconds)},
                     {"steps_per_second_10s", Number(s.steps_per_second_10s)},
                     {"steps_per_second_run", Number(s.steps_per_second_run)},
                     {"return_mean", Number(s.return_mean)},
                     {"length_mean", Number(s.length_mean)},
                     {"policy_loss", Number(s.policy_loss)},
                     {"value_loss", Number(s.value_loss)},
                     {"entropy", Number(s.entropy)},
                     {"approx_kl", Number(s.approx_kl)},
                     {"learning_rate", Number(s.learning_rate)},
                     {"critic_loss", Number(s.critic_loss)},
                     {"actor_loss", Number(s.actor_loss)},
                     {"alpha", Number(s.alpha)},
                     {"q_mean", Number(s.q_mean)},
                     {"gradient_steps", s.gradient_steps},
                     {"replay_size", s.replay_size},
                     {"replay_capacity", s.replay_capacity},
                     {"samples_per_insert", Number(s.samples_per_insert)},
                     {"limiter", s.limiter},
                     {"policy_version", s.policy_version},
                     {"weights_bytes", s.weights_bytes},
                     {"checkpoint_update", s.checkpoint_update},
                     {"checkpoint_path", s.checkpoint_path},
                     {"checkpoint_age_seconds", Number(s.checkpoint_age_seconds)},
                     {"max_policy_lag", s.max_policy_lag},
                     {"policy_lag_histogram", s.policy_lag_histogram},
                     {"rows_missing", s.rows_missing},
                     {"awaited", s.awaited},
                     {"bit_exact", s.bit_exact},
                     {"actors", ToJson(s.actors)},
                     {"queues", ToJson(s.queues)},
                     {"counters", ToJson(s.counters)},
                     {"stations", ToJson(s.stations)},
                     {"limiting_station", s.limiting_station},
                     {"advice", s.advice}};
  // Names come from the network; bytes that are no text must not end the program.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace millrace
