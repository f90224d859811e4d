// `millrace actor`: an ActorLoop with the process's signals and standard output.
#include <sys/prctl.h>

#include <cstdio>
#include <string>

#include "actor/actor_loop.h"
#include "actor/connector_grpc.h"
#include "cli/commands.h"
#include "cli/stop_signal.h"

namespace millrace {

int RunActor(const ActorCommand& command) {
  prctl(PR_SET_NAME, "millrace");  // a supervised one is started by way of /proc/self/exe
  InstallStopSignals("handing over what is underway, then leaving; once more to leave at once");
  ConnectorOptions connector_options;
  connector_options.learner = command.learner;
  connector_options.transport = command.transport;
  connector_options.program_version = MILLRACE_VERSION;
  const auto connector = MakeConnector(connector_options);
  if (!connector.ok()) return Report(connector.status());
  ActorLoopOptions options;
  options.name = command.name;
  options.learner = command.learner;
  options.threads = static_cast<int>(command.threads.value_or(0));
  options.program_version = MILLRACE_VERSION;
  options.log = [](const std::string& line) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  };
  ActorLoop loop(**connector, std::move(options));
  const StopWatcher watcher([&loop] { loop.Drain(); }, std::chrono::hours(1), [] {});
  const Status status = loop.Run();
  return status.ok() ? 0 : Report(status);
}

}  // namespace millrace
