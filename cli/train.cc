// `millrace train` and `millrace learner`: a run whose environments are in this process, in processes of its
// own, or in actors that come to it.
#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/commands.h"
#include "cli/learner_host.h"
#include "cli/pool_source.h"
#include "cli/stop_signal.h"
#include "cli/train_session.h"
#include "common/file_system.h"

namespace millrace {
namespace {

// Everything in this process.
class InProcess final : public RunHost {
 public:
  StatusOr<std::unique_ptr<Trainer>> MakeTrainer(const RunOptions& options,
                                                 const std::string& /*resumed_dir*/) override {
    if (options.mode == RunMode::kAsync) {
      return absl::InvalidArgumentError(
          "mode: async lets actors run ahead of the learner, and here are none: set actors.processes to 1 or "
          "more, or use `millrace learner`");
    }
    MILL_ASSIGN_OR_RETURN(auto trainer, Trainer::Make(options));
    source_ = static_cast<PoolSource*>(&trainer->source());
    return trainer;
  }
  Status Begin(TrainSession& /*session*/) override { return absl::OkStatus(); }
  StatusOr<bool> MayGoOn() override { return !StopRequested(); }
  void AfterUpdate(const MetricsRow& /*row*/) override {}
  std::span<const SegmentEntry> Segments() override { return source_->Describe(); }
  void Evaluating(bool /*begins*/) override {}
  void End(const StatusOr<RunOutcome>& /*outcome*/) override {}

 private:
  PoolSource* source_ = nullptr;  // the trainer's
};

// `train`: where the environments run, actors.processes says, which is known only with the configuration.
class TrainHost final : public RunHost {
 public:
  StatusOr<std::unique_ptr<Trainer>> MakeTrainer(const RunOptions& options,
                                                 const std::string& resumed_dir) override {
    if (options.actors.processes > 0) {
      ServeOptions serve;
      serve.own_actors = true;
      learner_ = std::make_unique<LearnerHost>(serve);
    }
    return host().MakeTrainer(options, resumed_dir);
  }
  Status Begin(TrainSession& session) override { return host().Begin(session); }
  StatusOr<bool> MayGoOn() override { return host().MayGoOn(); }
  void AfterUpdate(const MetricsRow& row) override { host().AfterUpdate(row); }
  std::span<const SegmentEntry> Segments() override { return host().Segments(); }
  void Evaluating(bool begins) override { host().Evaluating(begins); }
  void End(const StatusOr<RunOutcome>& outcome) override { host().End(outcome); }

 private:
  RunHost& host() { return learner_ != nullptr ? static_cast<RunHost&>(*learner_) : in_process_; }
  InProcess in_process_;
  std::unique_ptr<LearnerHost> learner_;
};

int Run(TrainSession& session) {
  if (const Status status = session.Prepare(); !status.ok()) return Report(status);
  if (session.AlreadyDone()) return 0;
  const StatusOr<RunOutcome> outcome = session.Loop();
  return ExitCode(outcome, session.Finish(outcome));
}

}  // namespace

int RunTrain(const TrainCommand& command, std::chrono::steady_clock::time_point started) {
  InstallStopSignals();
  TrainHost host;
  TrainSession session(command, "train --resume", started, host);
  return Run(session);
}

int RunLearner(const LearnerCommand& command, std::chrono::steady_clock::time_point started) {
  InstallStopSignals();
  TrainCommand train = command.train;
  PosixFileSystem fs;
  if (train.source.empty() && !FileExists(fs, JoinPath(train.run_dir, "config.yaml"))) {
    return Report(absl::InvalidArgumentError(absl::StrCat(
        train.run_dir,
        ": no run to go on with (it has no config.yaml); name a preset or a YAML file to begin one")));
  }
  if (!train.run_dir.empty() && FileExists(fs, JoinPath(train.run_dir, "config.yaml"))) {
    std::swap(train.resume, train.run_dir);
  } else if (train.source.empty()) {
    return Report(absl::InvalidArgumentError(absl::StrCat(
        train.run_dir, ": no run is there to go on with; name a preset or a YAML file to begin one")));
  }
  LearnerHost host({command.listen, command.health_listen, command.insecure, /*own_actors=*/false});
  const std::string go_on = absl::StrCat(
      "learner --listen ", command.listen, command.insecure ? " --insecure" : "",
      command.health_listen.empty() ? "" : absl::StrCat(" --health-listen ", command.health_listen),
      " --run");
  TrainSession session(train, go_on, started, host);
  return Run(session);
}

}  // namespace millrace
