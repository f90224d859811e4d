// millrace: the one program. Parses the command line and hands over to a command.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <variant>

#include "cli/args.h"
#include "cli/commands.h"
#include "common/cpu_check.h"
#include "common/overloaded.h"

namespace {

// What `new` calls in its need, in any thread, where an exception that nobody awaits would end in an abort.
// Allocates nothing, and destroys nothing: a run's folder is as after a kill, so it can be resumed.
[[noreturn]] void EndOutOfMemory() {
  constexpr char kText[] =
      "millrace: out of memory; give the program more, or take smaller batches, networks or fewer env.rows\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kText, sizeof(kText) - 1);
  std::_Exit(millrace::kExitFailed);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace millrace;
  std::set_new_handler(EndOutOfMemory);
  const auto started = std::chrono::steady_clock::now();
  if (const Status cpu = CheckCpu(); !cpu.ok()) return Report(cpu);
  const StatusOr<Command> command = ParseArgs(argc, argv);
  if (!command.ok()) return Report(command.status());
  const int code = std::visit(Overloaded{
                                  [](const HelpCommand& c) {
                                    std::fputs(c.text.c_str(), stdout);
                                    return 0;
                                  },
                                  [](const VersionCommand&) {
                                    std::printf("millrace %s\n", MILLRACE_VERSION);
                                    return 0;
                                  },
                                  [&](const TrainCommand& c) { return RunTrain(c, started); },
                                  [&](const LearnerCommand& c) { return RunLearner(c, started); },
                                  [](const ActorCommand& c) { return RunActor(c); },
                                  [](const StatusCommand& c) { return RunStatusCommand(c); },
                                  [](const ControlCommand& c) { return RunControlCommand(c); },
                                  [](const EvalCommand& c) { return RunEval(c); },
                                  [](const EnvsCommand& c) { return RunEnvs(c); },
                                  [](const PresetsCommand& c) { return RunPresets(c); },
                                  [](const BenchCommand& c) { return RunBenchCommand(c); },
                                  [](const TuneCommand& c) { return RunTune(c); },
                              },
                              *command);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return Report(absl::DataLossError("cannot write to standard output"));
  }
  return code;
}
