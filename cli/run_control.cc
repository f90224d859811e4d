#include "cli/run_control.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config/config.h"
#include "common/nearest.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

// What may change while a run goes on: nothing that decides its course from the first step on.
constexpr std::array kChangeable = {"learner.max_policy_lag", "run.steps", "checkpoint.every"};
constexpr std::array kChangeableOfPpo = {"ppo.learning_rate", "ppo.entropy_coef", "ppo.clip_range",
                                         "ppo.target_kl", "ppo.max_grad_norm"};
constexpr std::array kChangeableOfSac = {"sac.actor_learning_rate", "sac.critic_learning_rate",
                                         "sac.alpha_learning_rate"};

constexpr auto kRateWindow = std::chrono::seconds(10);
constexpr auto kSampleEvery = std::chrono::milliseconds(100);

Status CheckChangeable(const std::vector<std::string>& settings, bool sac) {
  std::vector<std::string> names;
  if (sac) {
    names.assign(kChangeableOfSac.begin(), kChangeableOfSac.end());
  } else {
    names.assign(kChangeableOfPpo.begin(), kChangeableOfPpo.end());
  }
  names.insert(names.end(), kChangeable.begin(), kChangeable.end());
  for (const std::string& setting : settings) {
    const std::string key = setting.substr(0, setting.find('='));
    if (std::find(names.begin(), names.end(), key) != names.end()) continue;
    return absl::InvalidArgumentError(absl::StrCat(key, ": can't change while the run goes on",
                                                   DidYouMean(key, names),
                                                   "; what can: ", absl::StrJoin(names, ", ")));
  }
  return absl::OkStatus();
}

double Seconds(Clock::duration d) {
  return std::chrono::duration<double>(d).count();
}

}  // namespace

struct RunControl::Ask {
  bool answered = false;
  StatusOr<Saved> answer = absl::UnknownError("");
};

RunControl::RunControl(TrajectoryService& service, const RunOptions& options, std::string run_dir,
                       std::function<void(const std::string&)> say)
    : service_(service), sac_(IsSac(options)), say_(std::move(say)), applied_(options), options_(options) {
  const MutexLock lock(mutex_);
  numbers_.run_dir = std::move(run_dir);
  numbers_.preset = options.run.name;
  numbers_.algorithm = options.algorithm;
  numbers_.learning_rate = sac_ ? options.sac.actor_learning_rate : options.ppo.learning_rate;
  if (sac_) numbers_.replay_capacity = options.replay.capacity;
}

RunControl::~RunControl() {
  Close();
}

// ---- what is asked ----

void RunControl::Wake() {
  service_.Interrupt();
  changed_.NotifyAll();
}

absl::Status RunControl::CheckOpen() const {
  return closed_ ? absl::UnavailableError("the run has ended") : absl::OkStatus();
}

StatusOr<RunControl::Saved> RunControl::Checkpoint(Clock::time_point deadline) {
  const MutexLock lock(mutex_);
  MILL_RETURN_IF_ERROR(CheckOpen());
  const auto ask = std::make_shared<Ask>();
  asked_.push_back(ask);
  Wake();
  while (!ask->answered) {
    const auto left = deadline - Clock::now();
    if (left <= Clock::duration::zero()) {
      return absl::DeadlineExceededError("the present update is not done; the checkpoint follows it");
    }
    changed_.WaitFor(mutex_, left);
  }
  return ask->answer;
}

absl::Status RunControl::Pause() {
  const MutexLock lock(mutex_);
  MILL_RETURN_IF_ERROR(CheckOpen());
  paused_ = true;
  service_.SetPaused(true);
  Wake();
  return absl::OkStatus();
}

absl::Status RunControl::Resume() {
  const MutexLock lock(mutex_);
  MILL_RETURN_IF_ERROR(CheckOpen());
  paused_ = false;
  service_.SetPaused(false);
  Wake();
  return absl::OkStatus();
}

// The loop goes on with what still comes in; whoever watches the actors leave ends the run (EndRun).
absl::Status RunControl::Drain() {
  const MutexLock lock(mutex_);
  MILL_RETURN_IF_ERROR(CheckOpen());
  draining_ = true;
  service_.Drain("the learner is being drained");
  Wake();  // a pause does not hold it up
  return absl::OkStatus();
}

absl::Status RunControl::Stop() {
  {
    const MutexLock lock(mutex_);
    MILL_RETURN_IF_ERROR(CheckOpen());
  }
  EndRun(End::kStop);
  return absl::OkStatus();
}

absl::Status RunControl::Set(const std::vector<std::string>& settings) {
  MILL_RETURN_IF_ERROR(CheckChangeable(settings, sac_));
  const MutexLock lock(mutex_);
  MILL_RETURN_IF_ERROR(CheckOpen());
  MILL_ASSIGN_OR_RETURN(RunOptions changed,
                        LoadConfig(ToYaml(options_), "the running configuration", settings));
  options_ = std::move(changed);
  options_changed_ = true;
  Wake();
  return absl::OkStatus();
}

void RunControl::Note(const std::string& line) {
  if (say_ != nullptr) say_(line);
}

void RunControl::EndRun(End end, absl::Status why) {
  const MutexLock lock(mutex_);
  if (end_ != End::kNone) return;
  end_ = end;
  why_ = std::move(why);
  Wake();
}

RunControl::End RunControl::end() const {
  const MutexLock lock(mutex_);
  return end_;
}

bool RunControl::draining() const {
  const MutexLock lock(mutex_);
  return draining_;
}

// ---- the loop ----

RunControl::Work RunControl::Take() {
  const MutexLock lock(mutex_);
  for (;;) {
    Work work;
    work.end = end_;
    work.why = why_;
    work.checkpoint = !asked_.empty();
    taken_.insert(taken_.end(), asked_.begin(), asked_.end());
    asked_.clear();
    if (options_changed_) {
      applied_ = options_;
      work.options = options_;
      service_.SetMaxPolicyLag(options_.learner.max_policy_lag);
    }
    options_changed_ = false;
    if (!work.none()) return work;
    if (!paused_ || draining_) {
      service_.Resume();  // under the lock: what is asked from here on interrupts again
      return work;
    }
    changed_.Wait(mutex_);
  }
}

void RunControl::Checkpointed(const StatusOr<Saved>& saved) {
  const MutexLock lock(mutex_);
  for (const std::shared_ptr<Ask>& ask : taken_) {
    ask->answer = saved;
    ask->answered = true;
  }
  taken_.clear();
  changed_.NotifyAll();
}

void RunControl::NoteCheckpoint(const Saved& saved, Clock::time_point at) {
  const MutexLock lock(mutex_);
  if (saved.path.empty()) return;
  numbers_.checkpoint_path = saved.path;
  numbers_.checkpoint_update = saved.update;
  checkpoint_at_ = at;
}

void RunControl::NoteRun(uint64_t steps, uint64_t updates, uint64_t episodes, double seconds) {
  const MutexLock lock(mutex_);
  numbers_.steps = steps;
  numbers_.updates = updates;
  numbers_.episodes = episodes;
  numbers_.seconds = seconds;
  AddSample(steps);
}

void RunControl::NoteUpdate(const MetricsRow& row) {
  const MutexLock lock(mutex_);
  numbers_.steps = row.steps;
  numbers_.updates = row.update;
  numbers_.episodes += row.episodes;
  numbers_.seconds = row.seconds;
  numbers_.return_mean = row.return_mean;
  numbers_.length_mean = row.length_mean;
  numbers_.policy_loss = row.policy_loss;
  numbers_.value_loss = row.value_loss;
  numbers_.entropy = row.entropy;
  numbers_.approx_kl = row.approx_kl;
  NoteCounter("updates_skipped", row.updates_skipped);
  if (sac_) {
    NoteReplay(row);
  } else {
    numbers_.learning_rate = row.learning_rate;
  }
  AddSample(row.steps);
}

// As the service's, a counter is there from its first count on. The row of a dropped batch has zeros.
void RunControl::NoteCounter(const char* name, uint64_t value) {
  if (value == 0) return;
  for (Counter& counter : numbers_.counters) {
    if (counter.name == name) {
      counter.value = value;
      return;
    }
  }
  numbers_.counters.push_back({name, value});
}

// Averages over some updates: single ones are too short to say who waits.
void RunControl::NoteReplay(const MetricsRow& row) {
  constexpr double kNew = 0.05;
  const auto blend = [](double& mean, double value) {
    if (!std::isnan(value)) mean = std::isnan(mean) ? value : mean + kNew * (value - mean);
  };
  if (!std::isnan(row.critic_loss)) numbers_.critic_loss = row.critic_loss;
  if (!std::isnan(row.actor_loss)) numbers_.actor_loss = row.actor_loss;
  if (!std::isnan(row.q_mean)) numbers_.q_mean = row.q_mean;
  numbers_.learning_rate = applied_.sac.actor_learning_rate;
  numbers_.alpha = row.alpha;
  numbers_.gradient_steps = row.gradient_steps;
  numbers_.replay_size = row.replay_size;
  NoteCounter("q_exploded", row.q_exploded);
  NoteCounter("alpha_limited", row.alpha_limited);
  numbers_.samples_per_insert = row.samples_per_insert;
  blend(insert_wait_, row.insert_wait_share);
  blend(sample_wait_, row.sample_wait_share);
  blend(prefetch_, row.prefetch_share);
}

void RunControl::SetEvaluating(bool evaluating) {
  const MutexLock lock(mutex_);
  evaluating_ = evaluating;
}

void RunControl::Close() {
  const MutexLock lock(mutex_);
  closed_ = true;
  taken_.insert(taken_.end(), asked_.begin(), asked_.end());
  asked_.clear();
  for (const std::shared_ptr<Ask>& ask : taken_) {
    ask->answered = true;
    ask->answer = absl::UnavailableError("the run has ended");
    if (!numbers_.checkpoint_path.empty())
      ask->answer = Saved{numbers_.checkpoint_path, numbers_.checkpoint_update};
  }
  taken_.clear();
  changed_.NotifyAll();
}

// ---- status ----

void RunControl::AddSample(uint64_t steps) {
  const Clock::time_point now = Clock::now();
  if (!samples_.empty() && now - samples_.back().at < kSampleEvery && samples_.size() > 1) {
    samples_.back().steps = steps;
    return;
  }
  samples_.push_back({now, steps});
  while (samples_.size() > 2 && now - samples_[1].at > kRateWindow) samples_.pop_front();
}

double RunControl::RecentRate(Clock::time_point now) const {
  if (samples_.size() < 2) return 0;
  const auto first = std::find_if(samples_.begin(), samples_.end() - 1,
                                  [&](const Sample& s) { return now - s.at <= kRateWindow; });
  const double seconds = Seconds(now - first->at);
  return seconds > 0 ? static_cast<double>(samples_.back().steps - first->steps) / seconds : 0;
}

std::string RunControl::StateOf(const RunStatus& status) const {
  if (closed_) return "done";
  if (end_ != End::kNone) return "stopping";
  if (draining_) return "draining";
  if (paused_) return "paused";
  if (evaluating_) return "evaluating";
  const bool any = std::any_of(status.actors.begin(), status.actors.end(),
                               [](const ActorStatus& a) { return a.state == "active"; });
  return !any || (status.mode == "sync" && status.rows_missing > 0) ? "waiting" : "training";
}

RunStatus RunControl::Status() {
  RunStatus status;
  const Clock::time_point now = Clock::now();
  {
    const MutexLock lock(mutex_);
    status = numbers_;
    status.max_steps = options_.run.steps;
    status.steps_per_second_10s = RecentRate(now);
    status.steps_per_second_run =
        numbers_.seconds > 0 ? static_cast<double>(numbers_.steps) / numbers_.seconds : 0;
    if (checkpoint_at_) status.checkpoint_age_seconds = Seconds(now - *checkpoint_at_);
  }
  service_.FillStatus(status);
  {
    const MutexLock lock(mutex_);
    status.state = StateOf(status);
    if (sac_) FillReplay(status);
  }
  FindLimit(status);
  return status;
}

// Which side of the limiter waits for the other, and why.
void RunControl::FillReplay(RunStatus& status) const {
  if (status.gradient_steps == 0) {
    status.limiter =
        absl::StrCat("gradient steps begin at ", options_.replay.min_size, " transitions (replay.min_size)");
  } else if (!std::isnan(insert_wait_) && !std::isnan(sample_wait_)) {
    const bool inserts = insert_wait_ > sample_wait_;
    status.limiter = absl::StrCat(
        inserts ? "inserts wait for gradient steps" : "gradient steps wait for inserts", ", ",
        std::lround(100 * std::clamp(std::max(insert_wait_, sample_wait_), 0.0, 1.0)),
        "% of the time, to keep ", UpdatesPerStep(options_) * options_.sac.batch_size, " samples an insert");
  }
  if (!std::isnan(prefetch_)) {
    const double busy = std::clamp(prefetch_, 0.0, 1.0);
    status.stations.push_back({"prefetch", "learner", busy, 1 - busy, 0});
  }
}

bool RunControl::Waiting() const {
  RunStatus status;
  service_.FillStatus(status);
  const MutexLock lock(mutex_);
  return StateOf(status) == "waiting";
}

}  // namespace millrace
