#include "cli/trainer.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "cli/pool_source.h"
#include "common/resource_usage.h"
#include "learner/make_learner.h"

namespace millrace {
namespace {
constexpr size_t kReportWindow = 100;  // episodes, where no target asks for another number

using Clock = std::chrono::steady_clock;
double Millis(Clock::duration d) {
  return std::chrono::duration<double, std::milli>(d).count();
}
}  // namespace

Status ValidateForEnv(const RunOptions& options, const EnvSpec& spec) {
  if (options.env.group_rows > options.env.rows) {
    return absl::InvalidArgumentError(absl::StrCat("env.group_rows: ", options.env.group_rows,
                                                   " is more than env.rows, ", options.env.rows));
  }
  for (size_t d = 0; spec.action.box() && d < spec.action.low.size(); ++d) {
    if (options.env.clip_actions && !(spec.action.low[d] <= spec.action.high[d])) {
      return absl::InvalidArgumentError(
          absl::StrCat("env.id: ", spec.id, " has no valid bounds in action ", d));
    }
  }
  return absl::OkStatus();
}

Trainer::Trainer(const RunOptions& options)
    : options_(options),
      threads_(std::make_unique<ThreadPool>(
          static_cast<int>(options.run.threads > 0 ? options.run.threads : AvailableCpus()))),
      state_(std::max<size_t>(kReportWindow, options.run.stop_window)) {
  state_.next_eval = options.eval.every;
}

StatusOr<std::unique_ptr<Trainer>> Trainer::Make(const RunOptions& options) {
  auto trainer = std::unique_ptr<Trainer>(new Trainer(options));
  MILL_ASSIGN_OR_RETURN(auto source, PoolSource::Make(options, *trainer->threads_));
  MILL_RETURN_IF_ERROR(ValidateForEnv(options, source->spec()));
  MILL_ASSIGN_OR_RETURN(trainer->learner_,
                        MakeLearner(options, source->spec(), source->batch_rows(), *trainer->threads_));
  trainer->source_ = std::move(source);
  return trainer;
}

StatusOr<std::unique_ptr<Trainer>> Trainer::Make(const RunOptions& options, const EnvSpec& spec,
                                                 const std::vector<int>& batch_rows,
                                                 std::unique_ptr<RolloutSource> source) {
  MILL_RETURN_IF_ERROR(ValidateForEnv(options, spec));
  auto trainer = std::unique_ptr<Trainer>(new Trainer(options));
  MILL_ASSIGN_OR_RETURN(trainer->learner_, MakeLearner(options, spec, batch_rows, *trainer->threads_));
  trainer->source_ = std::move(source);
  return trainer;
}

Status Trainer::Apply(const RunOptions& options) {
  MILL_RETURN_IF_ERROR(learner_->Apply(options));
  options_ = options;
  return absl::OkStatus();
}

size_t Trainer::window() const {
  return options_.run.stop_window > 0 ? options_.run.stop_window : kReportWindow;
}

double Trainer::RecentReturn() const {
  const size_t n = std::min(window(), state_.episodes.count());
  return n > 0 ? state_.episodes.ReturnMean(n) : MetricsRow::kUnknown;
}

bool Trainer::Done() const {
  return state_.steps >= options_.run.steps || (state_.target_reached && options_.run.stop_window > 0);
}

void Trainer::TakeEpisodes(std::span<const SegmentView> segments, MetricsRow& row) {
  for (const SegmentView& segment : segments) {
    for (int e = 0; e < segment.episode_count(); ++e) {
      const EpisodeRecord& episode = segment.episodes()[e];
      state_.episodes.Add(episode.ret, episode.length);
      row.return_min = std::fmin(row.return_min, episode.ret);
      row.return_max = std::fmax(row.return_max, episode.ret);
      ++row.episodes;
    }
  }
  row.return_mean = RecentReturn();
  if (const size_t n = std::min(kReportWindow, state_.episodes.count()); n > 0) {
    row.length_mean = state_.episodes.LengthMean(n);
  }
}

uint64_t Trainer::StepsOf(std::span<const SegmentView> segments) const {
  uint64_t samples = 0;
  for (const SegmentView& segment : segments) samples += static_cast<uint64_t>(segment.layout().samples());
  return samples * options_.env.action_repeat;
}

void Trainer::NoteTarget() {
  const uint32_t window = options_.run.stop_window;
  if (state_.target_reached || window == 0 || state_.episodes.count() < window ||
      !(state_.episodes.ReturnMean(window) >= options_.run.stop_at_return)) {
    return;
  }
  state_.target_reached = true;
  state_.target_steps = state_.steps;
  state_.target_seconds = state_.seconds;
}

StatusOr<MetricsRow> Trainer::Iterate() {
  MetricsRow row;
  row.algorithm = IsSac(options_) ? MetricsOf::kSac : MetricsOf::kPpo;
  const Clock::time_point begin = Clock::now();
  const double progress = static_cast<double>(state_.steps) / static_cast<double>(options_.run.steps);
  MILL_ASSIGN_OR_RETURN(const Rollout rollout, source_->Collect(learner_->policy()));
  const Clock::time_point collected = Clock::now();
  const bool drop = !rollout.fault.ok();
  if (drop && options_.run.on_nonfinite == OnNonfinite::kStop) return rollout.fault;
  if (drop) {
    ++state_.updates_skipped;
    learner_->SkipUpdate(rollout.segments, rollout.groups);
  } else {
    MILL_ASSIGN_OR_RETURN(const LearnerReport report,
                          learner_->Update(rollout.segments, progress, rollout.groups));
    static_cast<LearnerMetrics&>(row) = report;
    state_.updates_skipped += static_cast<uint64_t>(report.skipped);
  }
  const Clock::time_point updated = Clock::now();
  const uint64_t steps = StepsOf(rollout.segments);
  state_.steps += steps;
  TakeEpisodes(rollout.segments, row);
  const double total = Millis(Clock::now() - begin);
  state_.seconds += total / 1000;
  NoteTarget();
  row.update = learner_->updates();
  row.steps = state_.steps;
  row.seconds = state_.seconds;
  row.ms_per_update = total;
  row.ms_rollout = Millis(collected - begin);
  row.ms_inference = 1000 * rollout.inference_seconds;
  row.ms_update = Millis(updated - collected);
  row.ms_rest = total - row.ms_rollout - row.ms_update;
  row.steps_per_second = 1000.0 * static_cast<double>(steps) / std::max(total, 1e-6);
  row.updates_skipped = state_.updates_skipped;
  return row;
}

StatusOr<EvalResult> Trainer::EvaluateNow(bool (*stop)()) {
  return Evaluate(options_.env, learner_->policy(), static_cast<int>(options_.eval.episodes),
                  options_.run.seed, *threads_, stop);
}

}  // namespace millrace
