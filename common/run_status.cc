#include "common/run_status.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_replace.h"
#include "common/text.h"

namespace millrace {
namespace {

// Below this share nothing is busy enough to be what holds the run up: messages and their waits do.
constexpr double kBusyEnough = 0.25;

struct Remedy {
  std::string_view station, advice;
  std::string_view of_sac = {};  // its own advice; empty: the same, with sac.horizon for ppo.horizon
};

constexpr std::array kRemedies = {
    Remedy{"env", "stepping environments takes the most time: start more actors, or give them more threads"},
    Remedy{"inference",
           "the actors' network takes the most time: start more actors, or shrink policy.hidden"},
    Remedy{"send",
           "checksums and sending take the most time: run actors on the learner's host by shared "
           "memory, or lengthen ppo.horizon"},
    Remedy{"ingest",
           "taking segments in takes the most time: use shared memory, fewer and larger segments "
           "(env.group_rows, ppo.horizon), or more learner threads"},
    Remedy{"update",
           "the update takes the most time: more learner threads (run.threads), fewer ppo.epochs, or "
           "larger minibatches; more actors will not help",
           "the update takes the most time: more learner threads (run.threads), fewer gradient steps "
           "(sac.updates_per_step), or in mode: async larger batches (sac.batch_max); more actors will not "
           "help"},
    Remedy{"publish", "publishing weights takes the most time: larger batches, or a smaller network"},
    Remedy{"checkpoint", "writing checkpoints takes the most time: raise checkpoint.every"},
    Remedy{"evaluate", "evaluation takes the most time: raise eval.every, or lower eval.episodes"},
};

bool IsSac(const RunStatus& status) {
  return status.algorithm == "sac";
}

// Both algorithms have a horizon, under their own name.
std::string ForAlgorithm(const RunStatus& status, const std::string& advice) {
  return IsSac(status) ? absl::StrReplaceAll(advice, {{"ppo.horizon", "sac.horizon"}}) : advice;
}

std::string AdviceFor(const RunStatus& status, const StationShare& station) {
  const auto it = std::find_if(kRemedies.begin(), kRemedies.end(),
                               [&](const Remedy& r) { return r.station == station.station; });
  std::string advice = it == kRemedies.end()
                           ? Cat(station.station, " takes the most time of the ", station.where)
                       : IsSac(status) && !it->of_sac.empty() ? std::string(it->of_sac)
                                                              : ForAlgorithm(status, std::string(it->advice));
  // Taking turns leaves the other side idle; where a side is idle for long, overlap is worth a word.
  const bool idle_elsewhere =
      std::any_of(status.stations.begin(), status.stations.end(), [&](const StationShare& other) {
        return other.where != station.where && other.waiting + other.blocked > 0.3;
      });
  if (status.mode == "sync" && idle_elsewhere) advice += "; mode: async lets actors and learner work at once";
  return advice;
}

bool AnyActor(const RunStatus& status) {
  return std::any_of(status.actors.begin(), status.actors.end(),
                     [](const ActorStatus& a) { return a.state == "active"; });
}

}  // namespace

void FindLimit(RunStatus& status) {
  status.limiting_station.clear();
  status.advice.clear();
  if (status.state != "training" && status.state != "waiting") return;
  if (status.mode == "sync" && !status.awaited.empty()) {
    status.limiting_station = "actors";
    status.advice =
        Cat("rows are kept for an actor that is gone (actors.on_lost: wait): start it again under "
            "its name, millrace actor --learner ADDR --name ",
            status.awaited.front());
    return;
  }
  if (!AnyActor(status)) {
    status.limiting_station = "actors";
    status.advice = "no actor is at work: start some with `millrace actor --learner ADDR`";
    return;
  }
  if (status.mode == "sync" && status.rows_missing > 0) {
    status.limiting_station = "actors";
    status.advice = Cat("no actor holds ", status.rows_missing,
                        " rows, and sync mode waits for all of them: start another actor");
    return;
  }
  // The actors' shares come with their second heartbeat; one side alone says nothing of which limits.
  const auto of_actors = [](const StationShare& s) { return s.where == "actors"; };
  if (std::none_of(status.stations.begin(), status.stations.end(), of_actors)) return;
  const auto busiest =
      std::max_element(status.stations.begin(), status.stations.end(),
                       [](const StationShare& a, const StationShare& b) { return a.busy < b.busy; });
  if (busiest == status.stations.end() || !(busiest->busy > 0)) return;
  if (busiest->busy < kBusyEnough) {
    status.limiting_station = "transport";
    status.advice =
        ForAlgorithm(status,
                     "no station works for a quarter of the time, so the way between them limits: use shared "
                     "memory, lengthen ppo.horizon, or look whether other programs need the CPUs");
    return;
  }
  status.limiting_station = busiest->station;
  status.advice = AdviceFor(status, *busiest);
}

}  // namespace millrace
