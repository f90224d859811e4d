// What the command line asks for, as plain values. Owner: none, these are functions; any thread. Station:
// before all of them; main calls it once and hands the command on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/options.h"
#include "common/status.h"

namespace millrace {

struct HelpCommand {
  std::string text;  // for standard output
};

struct VersionCommand {};

// millrace train PRESET|FILE [--set k=v]... [--seed N] [--steps N] [--run DIR] [--resume DIR] [--threads N]
// [--quiet]
struct TrainCommand {
  std::string source;  // a preset's name or a file; may be empty with `resume`
  std::vector<std::string> sets;
  std::optional<uint64_t> seed, steps;
  std::optional<uint32_t> threads;
  std::string run_dir;
  std::string resume;  // a run's folder; empty: a new run
  bool quiet = false;

  // Everything that changes the configuration, as overrides for LoadConfig: the sets, then the flags.
  std::vector<std::string> Overrides() const;
};

// millrace learner PRESET|FILE --listen ADDR [--run DIR] [--health-listen ADDR] [--insecure] and train's
// flags
struct LearnerCommand {
  TrainCommand train;  // resume: empty; a run that is in run_dir already goes on
  std::string listen;  // host:port
  std::string health_listen;
  bool insecure = false;
};

// millrace actor --learner ADDR [--threads N] [--name NAME] [--transport auto|shm|grpc]
struct ActorCommand {
  std::string learner;  // host:port
  std::optional<uint32_t> threads;
  std::string name;  // empty: of the host and the process
  TransportChoice transport = TransportChoice::kAuto;
};

// millrace status ADDR [--watch] [--json]
struct StatusCommand {
  std::string learner;
  bool watch = false, json = false;
};

// millrace control ADDR checkpoint|pause|resume|drain|stop|set [KEY=VALUE]...
struct ControlCommand {
  enum class Action : uint8_t { kCheckpoint, kPause, kResume, kDrain, kStop, kSet };
  std::string learner;
  Action action = Action::kCheckpoint;
  std::vector<std::string> settings;  // of kSet
};

// millrace eval RUN [--episodes N] [--seed N] [--json] [--checkpoint best|latest|FILE]
struct EvalCommand {
  std::string run;  // a run's folder
  std::optional<uint32_t> episodes;
  std::optional<uint64_t> seed;
  std::string checkpoint = "best";  // best (the latest where none is best), latest, or a file
  bool json = false;
};

struct EnvsCommand {
  bool json = false;
};

// millrace presets [--json] [show NAME]
struct PresetsCommand {
  std::string show;  // the preset to print; empty: the list
  bool json = false;
};

// millrace bench [WORK...|list] [--json] [--seconds S] [--threads N]
struct BenchCommand {
  std::vector<std::string> works;  // empty: all
  bool list = false;
  std::optional<double> seconds;
  std::optional<uint32_t> threads;
  bool json = false;
};

// millrace tune batch PRESET|FILE [--sizes N,N...] [--seconds S] [--set k=v]... [--threads N] [--json]
struct TuneCommand {
  TrainCommand train;           // its source, sets and threads
  std::vector<uint32_t> sizes;  // rising; empty: around the configured one
  double seconds = 1.5;         // measured of each size
  bool json = false;
};

using Command =
    std::variant<HelpCommand, VersionCommand, TrainCommand, LearnerCommand, ActorCommand, StatusCommand,
                 ControlCommand, EvalCommand, EnvsCommand, PresetsCommand, BenchCommand, TuneCommand>;

// InvalidArgument, with one line for the user, when the command line is wrong; the program's exit code is
// then 2.
// `--help` is no mistake, at any level: it gives a HelpCommand. Presets and files are not looked at here.
StatusOr<Command> ParseArgs(int argc, const char* const* argv);

}  // namespace millrace
