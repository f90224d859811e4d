// `millrace train`: a run whose environments are in this process.
#include "cli/commands.h"
#include "cli/stop_signal.h"
#include "cli/train_session.h"

namespace millrace {
namespace {

class InProcess final : public RunHost {
 public:
  StatusOr<std::unique_ptr<Trainer>> MakeTrainer(const RunOptions& options,
                                                 const std::string& /*resumed_dir*/) override {
    return Trainer::Make(options);
  }
  Status Begin(TrainSession& /*session*/) override { return absl::OkStatus(); }
  StatusOr<bool> MayGoOn() override { return !StopRequested(); }
  void AfterUpdate(const MetricsRow& /*row*/) override {}
  void Evaluating(bool /*begins*/) override {}
};

}  // namespace

int RunTrain(const TrainCommand& command, std::chrono::steady_clock::time_point started) {
  InstallStopSignals();
  InProcess host;
  TrainSession session(command, "train --resume", started, host);
  if (const Status status = session.Prepare(); !status.ok()) return Report(status);
  if (session.AlreadyDone()) return 0;
  const StatusOr<TrainSession::Outcome> outcome = session.Loop();
  return ExitCode(outcome, session.Finish(outcome));
}

}  // namespace millrace
