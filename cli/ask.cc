// `millrace status` and `millrace control`: what people and scripts ask of a running learner.
#include <unistd.h>

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/commands.h"
#include "cli/status_text.h"
#include "cli/stop_signal.h"
#include "common/progress.h"
#include "common/rpc/client_grpc.h"

namespace millrace {
namespace {

using std::chrono_literals::operator""ms;

constexpr auto kAnswer = 5000ms;       // for what needs no work
constexpr auto kSaved = 120'000ms;     // for a checkpoint: the present update may be long
constexpr auto kWatchPeriod = 1000ms;  // between two of --watch

// A whole status at once, so that a reader of the output never sees half of one.
void Print(const RunStatus& status, bool json, bool redraw, const Terminal& terminal) {
  std::string text = json ? StatusJson(status) + "\n" : StatusText(status, terminal.unicode);
  if (redraw) text = absl::StrCat("\x1b[H\x1b[2J", text);
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

Status Watch(LearnerClient& client, bool json) {
  const Terminal terminal = DetectTerminal(STDOUT_FILENO);
  bool first = true;
  return client.WatchStatus(kWatchPeriod, [&](const RunStatus& status) {
    if (!json && !terminal.live && !first) std::fputs("\n", stdout);
    first = false;
    Print(status, json, terminal.live && !json, terminal);
    return !StopRequested() && std::ferror(stdout) == 0;
  });
}

StatusOr<std::string> Do(LearnerClient& client, const ControlCommand& command) {
  using Action = ControlCommand::Action;
  switch (command.action) {
    case Action::kCheckpoint: {
      MILL_ASSIGN_OR_RETURN(const LearnerClient::Checkpoint saved, client.SaveCheckpoint(kSaved));
      return absl::StrCat("update ", saved.update, ": ", saved.path);
    }
    case Action::kPause:
      return client.Pause(kAnswer);
    case Action::kResume:
      return client.Resume(kAnswer);
    case Action::kDrain:
      return client.Drain(kAnswer);
    case Action::kStop:
      return client.Stop(kAnswer);
    case Action::kSet: {
      MILL_ASSIGN_OR_RETURN(const std::string state, client.Set(command.settings, kAnswer));
      return absl::StrCat(state, ", from the next update on with ", absl::StrJoin(command.settings, ", "));
    }
  }
  return absl::InternalError("no such action");
}

}  // namespace

int RunStatusCommand(const StatusCommand& command) {
  const auto client = LearnerClient::Make(command.learner);
  if (!client.ok()) return Report(client.status());
  if (command.watch) {
    InstallStopSignals("stopping");
    const Status status = Watch(**client, command.json);
    return status.ok() ? 0 : Report(status);
  }
  const StatusOr<RunStatus> status = (*client)->GetStatus(kAnswer);
  if (!status.ok()) return Report(status.status());
  Print(*status, command.json, /*redraw=*/false, DetectTerminal(STDOUT_FILENO));
  return 0;
}

int RunControlCommand(const ControlCommand& command) {
  const auto client = LearnerClient::Make(command.learner);
  if (!client.ok()) return Report(client.status());
  const StatusOr<std::string> state = Do(**client, command);
  if (!state.ok()) return Report(state.status());
  std::printf("%s\n", state->c_str());
  return 0;
}

}  // namespace millrace
