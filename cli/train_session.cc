#include "cli/train_session.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "cli/commands.h"
#include "cli/presets.h"
#include "cli/run_state.h"
#include "cli/stop_signal.h"
#include "common/config/config.h"
#include "common/row_groups.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

double WallSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}
double Seconds(Clock::time_point t) {
  return std::chrono::duration<double>(t.time_since_epoch()).count();
}

// Of a run that goes on at `steps` without what its replay held.
std::string EmptyReplayNote(const RunOptions& options, uint64_t steps) {
  const uint64_t left = options.run.steps - std::min(options.run.steps, steps);
  const bool idle = left > 0 && left / options.env.action_repeat < options.replay.min_size;
  return absl::StrCat("the replay begins empty (",
                      options.checkpoint.replay ? "the checkpoint has none" : "checkpoint.replay is false",
                      "): the run is not bit exact from here on",
                      idle ? ", and its last steps are too few for a gradient step (replay.min_size)" : "");
}

constexpr auto kCheckpointInterval = std::chrono::seconds(60);  // however long an update takes

}  // namespace

TrainSession::TrainSession(const TrainCommand& command, std::string go_on, Clock::time_point started,
                           RunHost& host)
    : command_(command),
      go_on_(std::move(go_on)),
      started_(started),
      terminal_(DetectTerminal(STDOUT_FILENO)),
      host_(host) {}

void TrainSession::Show(std::string_view text) const {
  if (command_.quiet || text.empty()) return;
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

ProgressState TrainSession::Now() const {
  return {trainer_->state().steps, options_.run.steps, trainer_->RecentReturn()};
}

void TrainSession::Say(const std::string& line) {
  const MutexLock lock(console_);
  if (progress_) Show(progress_->Clear());
  Show(line + "\n");
}

// A name of our own making may be taken by a run that began in the same second: the next one is tried.
Status TrainSession::CreateDir() {
  const bool named = !options_.run.dir.empty();
  for (int attempt = 0;; ++attempt) {
    if (!named) {
      const std::time_t now = std::time(nullptr);
      std::tm local = {};
      localtime_r(&now, &local);
      options_.run.dir = DefaultRunDir(fs_, options_.run.name, options_.run.seed, local);
    }
    StatusOr<RunDir> created = RunDir::Create(fs_, options_.run.dir);
    const bool taken = absl::IsAlreadyExists(created.status()) || absl::IsAborted(created.status());
    if (taken && !named && attempt < 100) continue;
    MILL_RETURN_IF_ERROR(created.status());
    dir_.emplace(*std::move(created));
    return absl::OkStatus();
  }
}

Status TrainSession::PrepareNew() {
  const std::vector<std::string> overrides = command_.Overrides();
  MILL_ASSIGN_OR_RETURN(options_, LoadPresetOrFile(command_.source, overrides));
  if (!command_.run_dir.empty()) options_.run.dir = command_.run_dir;
  MILL_ASSIGN_OR_RETURN(trainer_, host_.MakeTrainer(options_, ""));
  MILL_RETURN_IF_ERROR(WarmStart());
  MILL_RETURN_IF_ERROR(CreateDir());
  MILL_RETURN_IF_ERROR(dir_->WriteConfig(ToYaml(options_)));
  MILL_ASSIGN_OR_RETURN(store_, CheckpointStore::Open(fs_, dir_->checkpoints_dir()));
  return absl::OkStatus();
}

Status TrainSession::PrepareResumed() {
  MILL_ASSIGN_OR_RETURN(dir_, RunDir::Resume(fs_, command_.resume));
  MILL_ASSIGN_OR_RETURN(const std::string text, ReadFile(fs_, dir_->config_path()));
  MILL_ASSIGN_OR_RETURN(options_, LoadConfig(text, dir_->config_path(), command_.Overrides()));
  options_.run.dir = command_.resume;
  MILL_RETURN_IF_ERROR(CheckSameSource());
  MILL_ASSIGN_OR_RETURN(trainer_, host_.MakeTrainer(options_, dir_->path()));
  MILL_ASSIGN_OR_RETURN(store_, CheckpointStore::Open(fs_, dir_->checkpoints_dir()));
  std::vector<SkippedCheckpoint> skipped;
  const StatusOr<Checkpoint> latest = LoadLatestCheckpoint(fs_, dir_->checkpoints_dir(), &skipped);
  for (const SkippedCheckpoint& s : skipped) Say(absl::StrCat("skipped ", s.reason));
  if (absl::IsNotFound(latest.status())) {
    const auto lines = fs_.Size(dir_->metrics_path());
    if (!skipped.empty() || (lines.ok() && *lines > 0)) {
      return absl::FailedPreconditionError(absl::StrCat(
          dir_->path(), ": the run has begun, but no checkpoint of it can be read; bring one back into ",
          dir_->checkpoints_dir(), ", or begin a new run in another folder with --run"));
    }
    Say(absl::StrCat(dir_->path(), " has no checkpoint yet: the run begins anew"));
    return WarmStart();
  }
  MILL_RETURN_IF_ERROR(latest.status());
  MILL_RETURN_IF_ERROR(CheckSameCourse(*latest));
  MILL_RETURN_IF_ERROR(trainer_->state().Restore(*latest, options_, trainer_->learner(), trainer_->source()));
  MILL_RETURN_IF_ERROR(dir_->WriteConfig(ToYaml(options_)));
  last_checkpoint_ = latest->path;
  checkpointed_update_ = trainer_->learner().updates();
  Say(absl::StrCat("resumed from ", latest->path, " at ", trainer_->state().steps, " steps"));
  if (IsSac(options_) && !(options_.checkpoint.replay && HasReplay(*latest))) {
    Say(EmptyReplayNote(options_, trainer_->state().steps));
  }
  return absl::OkStatus();
}

// `learner` names a preset beside the folder, so that one command begins the run and goes on with it.
Status TrainSession::CheckSameSource() const {
  if (command_.source.empty()) return absl::OkStatus();
  MILL_ASSIGN_OR_RETURN(const RunOptions named, LoadPresetOrFile(command_.source, {}));
  if (named.run.name == options_.run.name && named.algorithm == options_.algorithm) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(dir_->path(), ": holds a run of ", options_.run.name, " (",
                                                 options_.algorithm, "), not of ", named.run.name, " (",
                                                 named.algorithm, "); take another folder for a new run"));
}

// What decides the course of a run from its first step can't change in the middle of it.
Status TrainSession::CheckSameCourse(const Checkpoint& checkpoint) const {
  const auto saved = checkpoint.content.metadata.find("config");
  if (saved == checkpoint.content.metadata.end()) return absl::OkStatus();
  MILL_ASSIGN_OR_RETURN(const RunOptions before, ParseConfig(saved->second));
  const auto refuse = [&](const char* key, const auto& was, const auto& is) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, ": a resumed run keeps its ", was, "; it can't become ", is,
                     ". For a new run use --run DIR, with run.warm_start=", command_.resume,
                     " to begin with these weights"));
  };
  if (before.run.seed != options_.run.seed) return refuse("run.seed", before.run.seed, options_.run.seed);
  if (before.env.group_rows != options_.env.group_rows) {
    return refuse("env.group_rows", before.env.group_rows, options_.env.group_rows);
  }
  if (before.algorithm != options_.algorithm)
    return refuse("algorithm", before.algorithm, options_.algorithm);
  if (before.mode != options_.mode) {
    const auto name = [](RunMode mode) { return mode == RunMode::kSync ? "sync" : "async"; };
    return refuse("mode", name(before.mode), name(options_.mode));
  }
  if (IsSac(options_) && before.checkpoint.replay && options_.checkpoint.replay &&
      before.actors.processes != options_.actors.processes && KnownRows(before) != KnownRows(options_)) {
    return absl::InvalidArgumentError(
        absl::StrCat("actors.processes: the saved replay is laid out for the rows of ",
                     before.actors.processes, ", not of ", options_.actors.processes,
                     "; keep that, or begin with an empty replay by --set checkpoint.replay=false"));
  }
  return absl::OkStatus();
}

Status TrainSession::WarmStart() {
  if (options_.run.warm_start.empty()) return absl::OkStatus();
  MILL_ASSIGN_OR_RETURN(const Checkpoint checkpoint,
                        OpenCheckpoint(fs_, options_.run.warm_start, "best", nullptr));
  MILL_RETURN_IF_ERROR(RestoreWeights(checkpoint, trainer_->learner()));
  Say(absl::StrCat("weights from ", checkpoint.path));
  return absl::OkStatus();
}

Status TrainSession::Prepare() {
  MILL_RETURN_IF_ERROR(command_.resume.empty() ? PrepareNew() : PrepareResumed());
  const RunState& state = trainer_->state();
  MILL_ASSIGN_OR_RETURN(metrics_,
                        MetricsWriter::Open(fs_, dir_->metrics_path(), trainer_->learner().updates()));
  if (options_.metrics.tensorboard) {
    MILL_ASSIGN_OR_RETURN(tensorboard_,
                          TensorBoardWriter::Open(fs_, dir_->path(), WallSeconds(), state.steps));
  }
  if (options_.metrics.segments) {
    MILL_ASSIGN_OR_RETURN(segments_, SegmentLog::Open(fs_, JoinPath(dir_->path(), "segments.jsonl"),
                                                      trainer_->learner().updates()));
  }
  if (options_.checkpoint.replay) writer_.emplace(*store_);
  cpu_.emplace(trainer_->threads());
  Say(absl::StrCat(options_.run.name, ": ", options_.env.id, ", ", options_.env.rows, " rows, ",
                   trainer_->threads(), trainer_->threads() == 1 ? " thread" : " threads", ", seed ",
                   options_.run.seed, "; writing to ", dir_->path()));
  {
    const MutexLock lock(console_);
    progress_.emplace(terminal_, options_.run.name, state.steps, Seconds(Clock::now()));
  }
  return trainer_->Done() ? absl::OkStatus() : host_.Begin(*this);
}

Status TrainSession::SaveCheckpoint() {
  MILL_RETURN_IF_ERROR(TakeWritten(/*wait=*/true));
  const auto save = [&](const CheckpointData& data) {
    return store_->Save(trainer_->learner().updates(), data);
  };
  MILL_ASSIGN_OR_RETURN(last_checkpoint_, trainer_->state().WithCheckpoint(options_, trainer_->learner(),
                                                                           trainer_->source(), save));
  checkpointed_update_ = trainer_->learner().updates();
  checkpointed_at_ = Clock::now();
  return store_->Keep(options_.checkpoint.keep);
}

void TrainSession::StartWriting(bool best) {
  writer_->Start({trainer_->learner().updates(), best, options_.checkpoint.keep, Clock::now(),
                  trainer_->state().Copy(options_, trainer_->learner(), trainer_->source())});
}

Status TrainSession::TakeWritten(bool wait) {
  if (!writer_) return absl::OkStatus();
  const auto result = writer_->Take(wait);
  if (!result) return absl::OkStatus();
  MILL_RETURN_IF_ERROR(result->status());
  const CheckpointWriter::Written& written = **result;
  if (written.best) return absl::OkStatus();
  last_checkpoint_ = written.path;
  checkpointed_update_ = written.update;
  checkpointed_at_ = written.at;
  return absl::OkStatus();
}

// One that falls due while another is being written follows it.
Status TrainSession::CheckpointIfDue(uint64_t update) {
  MILL_RETURN_IF_ERROR(TakeWritten(/*wait=*/false));
  const uint32_t every = options_.checkpoint.every;
  const bool writing = writer_ && writer_->busy();
  checkpoint_due_ =
      checkpoint_due_ || (every > 0 && (update % every == 0 ||
                                        (!writing && Clock::now() - checkpointed_at_ > kCheckpointInterval)));
  if (!checkpoint_due_ || writing) return absl::OkStatus();
  checkpoint_due_ = false;
  if (!writer_) return SaveCheckpoint();
  StartWriting(/*best=*/false);
  return absl::OkStatus();
}

Status TrainSession::Apply(const RunOptions& options) {
  MILL_RETURN_IF_ERROR(trainer_->Apply(options));
  options_ = options;
  return dir_->WriteConfig(ToYaml(options));
}

Status TrainSession::EvaluateIfDue(MetricsRow& row, bool last) {
  RunState& state = trainer_->state();
  if (options_.eval.every == 0 || (state.steps < state.next_eval && !last)) return absl::OkStatus();
  while (state.next_eval <= state.steps) state.next_eval += options_.eval.every;
  host_.Evaluating(true);
  const StatusOr<EvalResult> evaluated = trainer_->EvaluateNow(StopRequested);
  host_.Evaluating(false);
  if (!evaluated.ok()) {  // training is sound all the same
    Say(absl::StrCat("evaluation failed: ", evaluated.status().message()));
    return absl::OkStatus();
  }
  const EvalResult& result = *evaluated;
  row.eval_return_mean = result.return_mean;
  state.has_eval = true;
  state.eval_return_mean = result.return_mean;
  state.eval_return_std = result.return_std;
  state.eval_episodes = result.returns.size();
  return KeepBest(result.return_mean);
}

Status TrainSession::KeepBest(double return_mean) {
  RunState& state = trainer_->state();
  if (state.has_best && return_mean <= state.best_return) return absl::OkStatus();
  state.has_best = true;
  state.best_return = return_mean;
  if (writer_) {
    MILL_RETURN_IF_ERROR(TakeWritten(/*wait=*/true));
    StartWriting(/*best=*/true);
    return absl::OkStatus();
  }
  return state
      .WithCheckpoint(
          options_, trainer_->learner(), trainer_->source(),
          [&](const CheckpointData& data) { return store_->SaveBest(trainer_->learner().updates(), data); })
      .status();
}

Status TrainSession::Record(const MetricsRow& row) {
  curve_.Add(static_cast<double>(row.steps), row.return_mean);
  window_.Add(row);
  const bool every = options_.metrics.every > 0 && row.update % options_.metrics.every == 0;
  if (!every && std::isnan(row.eval_return_mean)) return absl::OkStatus();
  // An update may take microseconds; the look at resources does too.
  MetricsRow line = window_.Take();
  const ResourceUsage usage = ReadResourceUsage();
  line.resident_mb = static_cast<double>(usage.resident_bytes) / (1 << 20);
  line.cpu_share = cpu_->Update(Seconds(Clock::now()), usage.cpu_seconds);
  MILL_RETURN_IF_ERROR(metrics_->Append(line));
  return tensorboard_ ? tensorboard_->Append(line, WallSeconds()) : absl::OkStatus();
}

bool TrainSession::AlreadyDone() {
  if (!trainer_->Done()) return false;
  Say(absl::StrCat("nothing to do: the run has ",
                   trainer_->state().target_reached && options_.run.stop_window > 0 ? "reached its target"
                                                                                    : "all its steps",
                   "; --steps N goes on to N, --set run.stop_window=0 past the target"));
  return true;
}

// What follows an update: evaluation, metrics, a checkpoint where one is due.
Status TrainSession::AfterUpdate(MetricsRow& row) {
  if (segments_) MILL_RETURN_IF_ERROR(segments_->Append(row.update, host_.Segments()));
  MILL_RETURN_IF_ERROR(EvaluateIfDue(row, trainer_->Done()));
  MILL_RETURN_IF_ERROR(Record(row));
  return CheckpointIfDue(row.update);
}

// The state is sound, so it is kept although the run ends here.
Status TrainSession::SaveAndFail(const Status& why) {
  if (checkpointed_update_ == trainer_->learner().updates()) return why;
  if (const Status saved = SaveCheckpoint(); !saved.ok())
    Say(absl::StrCat("and no checkpoint: ", saved.message()));
  return why;
}

StatusOr<RunOutcome> TrainSession::Loop() {
  const StatusOr<RunOutcome> outcome = RunToTheEnd();
  const Status written = TakeWritten(/*wait=*/true);
  if (outcome.ok() && !written.ok()) return written;
  return outcome;
}

StatusOr<RunOutcome> TrainSession::RunToTheEnd() {
  const RunState& state = trainer_->state();
  // A run that fails before its first checkpoint falls due would otherwise leave none.
  if (last_checkpoint_.empty()) MILL_RETURN_IF_ERROR(SaveCheckpoint());
  while (!trainer_->Done()) {
    const StatusOr<bool> go_on = host_.MayGoOn();
    if (!go_on.ok()) return SaveAndFail(go_on.status());
    if (!*go_on) break;
    const bool had_target = state.target_reached;
    StatusOr<MetricsRow> row = trainer_->Iterate();
    if (absl::IsCancelled(row.status())) continue;  // the host knows why
    MILL_RETURN_IF_ERROR(row.status());
    if (state.target_reached && !had_target) {
      target_wall_seconds_ = std::chrono::duration<double>(Clock::now() - started_).count();
    }
    host_.AfterUpdate(*row);
    if (const Status status = AfterUpdate(*row); !status.ok()) return SaveAndFail(status);
    const MutexLock lock(console_);
    Show(progress_->Update(Now(), Seconds(Clock::now())));
  }
  if (const Status written = TakeWritten(/*wait=*/true); !written.ok()) return SaveAndFail(written);
  if (checkpointed_update_ != trainer_->learner().updates()) MILL_RETURN_IF_ERROR(SaveCheckpoint());
  return trainer_->Done() ? RunOutcome::kDone : RunOutcome::kStopped;
}

RunSummary TrainSession::Summarize(const StatusOr<RunOutcome>& outcome) const {
  const RunState& state = trainer_->state();
  RunSummary summary;
  summary.end = !outcome.ok()                      ? RunSummary::End::kFailed
                : *outcome == RunOutcome::kStopped ? RunSummary::End::kStopped
                : state.target_reached             ? RunSummary::End::kTargetReached
                                                   : RunSummary::End::kDone;
  summary.error = outcome.ok() ? "" : std::string(outcome.status().message());
  summary.name = options_.run.name;
  summary.env = options_.env.id;
  summary.algorithm = options_.algorithm;
  summary.seed = options_.run.seed;
  summary.threads = trainer_->threads();
  summary.steps = state.steps;
  summary.updates = trainer_->learner().updates();
  summary.updates_skipped = state.updates_skipped;
  summary.seconds = state.seconds;
  summary.steps_per_second = state.seconds > 0 ? static_cast<double>(state.steps) / state.seconds : 0;
  summary.peak_resident_mb = static_cast<double>(ReadResourceUsage().peak_resident_bytes) / (1 << 20);
  summary.episodes = state.episodes.total();
  summary.window = std::min<uint64_t>(trainer_->window(), state.episodes.count());
  summary.return_mean = trainer_->RecentReturn();
  if (summary.window > 0) summary.length_mean = state.episodes.LengthMean(summary.window);
  if (state.has_eval) {
    summary.eval_return_mean = state.eval_return_mean;
    summary.eval_return_std = state.eval_return_std;
    summary.eval_episodes = state.eval_episodes;
  }
  if (state.has_best) {
    summary.best_return = state.best_return;
    summary.best_checkpoint = BestCheckpointPath(dir_->checkpoints_dir());
  }
  if (options_.run.stop_window > 0) summary.target_return = options_.run.stop_at_return;
  summary.target_reached = state.target_reached;
  summary.target_steps = state.target_steps;
  summary.target_seconds = target_wall_seconds_ > 0 ? target_wall_seconds_ : state.target_seconds;
  summary.run_dir = dir_->path();
  summary.checkpoint = last_checkpoint_;
  const char* command = std::getenv("MILLRACE_COMMAND");  // what the user types; ./mill says so
  const std::string name = command != nullptr ? command : "millrace";
  summary.next = {absl::StrCat(name, " eval ", dir_->path())};
  if (!trainer_->Done()) summary.next.push_back(absl::StrCat(name, " ", go_on_, " ", dir_->path()));
  return summary;
}

Status TrainSession::Finish(const StatusOr<RunOutcome>& outcome) {
  host_.End(outcome);
  const RunSummary summary = Summarize(outcome);
  const MutexLock lock(console_);
  Show(progress_->Finish(Now(), Seconds(Clock::now())));
  Show(SummaryText(summary, curve_.points(), terminal_.unicode));
  return dir_->WriteSummary(SummaryJson(summary));
}

int ExitCode(const StatusOr<RunOutcome>& outcome, const Status& finished) {
  for (const Status& status : {outcome.status(), finished}) {
    if (status.ok()) continue;
    Report(status);
    return kExitFailed;
  }
  return *outcome == RunOutcome::kStopped && StopRequested() ? kExitStopped : 0;
}

}  // namespace millrace
