#include "learner/sac.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/resource_usage.h"
#include "common/row_groups.h"
#include "learner/policy_lag.h"

namespace millrace {
namespace {

constexpr int kGatherRows = 64;  // rows of one task of a batch's assembly
// Gradient steps of one Update that settings alone can make due (a wide replay.error_band, a smaller
// replay.min_size on resume): a run can be stopped between two Updates only.
constexpr uint64_t kMostOwed = 1000;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int LargestBatch(const SacSection& sac) {
  return static_cast<int>(std::max(sac.batch_size, sac.batch_max));
}

uint64_t Sum(const std::vector<int>& rows) {
  uint64_t sum = 0;
  for (int n : rows) sum += static_cast<uint64_t>(n);
  return sum;
}

// Transitions that one Update adds, where it is of as many segments as there can be; a few more where row
// groups differ in size.
uint64_t InsertBlock(const RunOptions& options, const std::vector<int>& group_rows) {
  const uint64_t segments = MostSegments(options), usual = group_rows.size();
  return (Sum(group_rows) * options.sac.horizon * segments + usual - 1) / usual;
}

// Twice what an Update's own transitions make due, and one, is what the limiter's own band asks for.
uint64_t MostSteps(const RunOptions& options, uint64_t inserts) {
  const SacSection& sac = options.sac;
  const double samples = static_cast<double>(inserts) * UpdatesPerStep(options) * sac.batch_size;
  const uint32_t of_step = sac.batch_max > 0 ? sac.batch_max : sac.batch_size;
  return std::max(kMostOwed, 1 + 2 * static_cast<uint64_t>(std::ceil(samples / of_step)));
}

StatusOr<RateLimiter> MakeLimiter(const RunOptions& options, uint64_t inserts) {
  RateLimiterOptions limiter;
  limiter.samples_per_insert = UpdatesPerStep(options) * options.sac.batch_size;
  limiter.min_size = options.replay.min_size;
  limiter.error_band = options.replay.error_band;
  limiter.insert_block = inserts;
  limiter.sample_block = static_cast<uint64_t>(LargestBatch(options.sac));
  limiter.capacity = options.replay.capacity;
  return RateLimiter::Make(limiter);
}

StatusOr<std::unique_ptr<Replay>> MakeReplay(const RunOptions& options, const EnvSpec& spec,
                                             const ObsEncoder& encoder) {
  ReplayOptions replay;
  replay.capacity = options.replay.capacity;
  replay.rows = static_cast<int>(KnownRows(options));
  replay.frame_stack = static_cast<int>(options.env.frame_stack);
  replay.n_step = static_cast<int>(options.replay.n_step);
  replay.gamma = options.sac.gamma;
  replay.batch_size = LargestBatch(options.sac);
  replay.seed = options.run.seed;
  replay.prioritized = options.replay.prioritized;
  replay.alpha = options.replay.alpha;
  replay.priority_eps = options.replay.priority_eps;
  replay.file = options.replay.file;
  replay.shadow = options.checkpoint.replay;
  return Replay::Make(replay, spec, encoder);
}

}  // namespace

// The assembly of one batch, by rows; as work of its own or beside a step.
class SacLearner::Gather : public SideWork {
 public:
  Gather(const Replay& replay, int threads) : replay_(replay), seconds_(static_cast<size_t>(threads)) {}
  void Set(uint64_t draw, float beta, const ReplayBatch& batch) {
    draw_ = draw;
    beta_ = beta;
    batch_ = &batch;
  }
  int tasks() const override { return (batch_->rows + kGatherRows - 1) / kGatherRows; }
  void Run(int task, int worker) override {
    const double begin = Now();
    const int first = task * kGatherRows;
    replay_.SampleRows(draw_, beta_, *batch_, first, std::min(kGatherRows, batch_->rows - first));
    seconds_[static_cast<size_t>(worker)].value += Now() - begin;
  }
  double seconds() const {
    double sum = 0;
    for (const Seconds& s : seconds_) sum += s.value;
    return sum;
  }

 private:
  struct alignas(64) Seconds {  // a cache line a thread
    double value = 0;
  };
  const Replay& replay_;
  std::vector<Seconds> seconds_;
  uint64_t draw_ = 0;
  float beta_ = 0;
  const ReplayBatch* batch_ = nullptr;
};

// Over the gradient steps of one Update.
struct SacLearner::Sums {
  double critic_loss = 0, q = 0, critic_norm = 0, actor_loss = 0, log_prob = 0;
  int tried = 0, skipped = 0, critic_steps = 0, policy_steps = 0;
  int least_rows = 0, most_rows = 0;  // of a batch
  int64_t rows = 0;                   // of all batches
};

SacLearner::SacLearner(const RunOptions& options, const EnvSpec& spec, const std::vector<int>& group_rows,
                       ThreadPool& threads)
    : options_(options),
      spec_(spec),
      threads_(threads),
      encoder_(spec, options.env.normalize_obs, static_cast<float>(options.env.clip_obs)),
      obs_statistics_(options.env.normalize_obs, spec.observation_elements(), group_rows.size(),
                      threads.threads()) {}

SacLearner::~SacLearner() = default;

StatusOr<std::unique_ptr<SacLearner>> SacLearner::Make(const RunOptions& options, const EnvSpec& spec,
                                                       const std::vector<int>& group_rows,
                                                       ThreadPool& threads) {
  auto learner = std::unique_ptr<SacLearner>(new SacLearner(options, spec, group_rows, threads));
  const int most = LargestBatch(options.sac);
  MILL_ASSIGN_OR_RETURN(learner->step_,
                        SacStep::Make(options, spec, learner->encoder_.width(), most, threads));
  const uint64_t inserts = InsertBlock(options, group_rows);
  learner->most_steps_ = MostSteps(options, inserts);
  MILL_ASSIGN_OR_RETURN(learner->limiter_, MakeLimiter(options, inserts));
  MILL_ASSIGN_OR_RETURN(learner->replay_, MakeReplay(options, spec, learner->encoder_));
  if (options.checkpoint.replay) {
    MILL_ASSIGN_OR_RETURN(learner->shadow_, learner->replay_->MakeShadow());
  }
  const int inputs = learner->step_->critic_inputs(), actions = spec.action.box() ? 0 : spec.action.width(),
            outputs = spec.action_mask ? spec.action.outputs() : 0;
  MILL_RETURN_IF_ERROR(CheckMemory("two batches of transitions take",
                                   2 * ReplayBatchMemory::Bytes(most, inputs, actions, outputs),
                                   AvailableMemory(), "a smaller sac.batch_size (or batch_max) needs less"));
  for (auto& batch : learner->batches_) {
    batch = std::make_unique<ReplayBatchMemory>(most, inputs, actions, outputs);
  }
  learner->gather_ = std::make_unique<Gather>(*learner->replay_, threads.threads());
  learner->td_abs_.resize(static_cast<size_t>(most));
  learner->last_end_ = Now();
  return learner;
}

PolicyView SacLearner::policy() const {
  return PolicyView{&step_->actor(), &encoder_, step_->actor_parameters(), step_->actor_packed(), updates_};
}

uint64_t SacLearner::optimizer_steps() const {
  return static_cast<uint64_t>(step_->counters()[0]);
}
double SacLearner::gather_seconds() const {
  return gather_->seconds();
}

Status SacLearner::AddSegments(std::span<const SegmentView> segments, std::span<const uint32_t> groups) {
  const uint64_t before = replay_->added();
  for (size_t i = 0; i < segments.size(); ++i) {
    const uint32_t group = groups.empty() ? static_cast<uint32_t>(i) : groups[i];
    MILL_RETURN_IF_ERROR(replay_->Add(segments[i], group));
  }
  limiter_.Insert(replay_->added() - before);
  if (encoder_.normalizes()) {
    obs_statistics_.Observe(segments, encoder_, threads_);
    encoder_.SetStatistics(obs_statistics_.mean(), obs_statistics_.variance());
  }
  return absl::OkStatus();
}

// Rows of the batch that may be drawn now; 0: none. With batch_max that is all that the limiter allows, as
// far as one batch goes; what is then below batch_min waits for the next Update.
int SacLearner::NextBatch() const {
  const SacSection& sac = options_.sac;
  if (!replay_->can_sample()) return 0;
  if (sac.batch_max == 0) return limiter_.CanSample(sac.batch_size) ? static_cast<int>(sac.batch_size) : 0;
  const uint64_t ready = std::min<uint64_t>(limiter_.SamplesAllowed(), sac.batch_max);
  return ready >= sac.batch_min ? static_cast<int>(ready) : 0;
}

StatusOr<LearnerReport> SacLearner::Update(std::span<const SegmentView> segments, double progress,
                                           std::span<const uint32_t> groups) {
  MILL_CHECK(groups.empty() || groups.size() == segments.size());
  const double begin = Now();
  MILL_RETURN_IF_ERROR(AddSegments(segments, groups));
  const ReplaySection& replay = options_.replay;
  const double done = std::clamp(progress, 0.0, 1.0);
  beta_ = static_cast<float>(replay.beta + (replay.beta_end - replay.beta) * done);
  const double first_step = Now();
  Sums sums;
  gathered_ = 0;
  uint64_t steps = 0;
  for (int rows = NextBatch(); rows > 0;) {
    limiter_.Sample(static_cast<uint64_t>(rows));
    const int next = ++steps < most_steps_ ? NextBatch() : 0;  // the rest stays due
    MILL_RETURN_IF_ERROR(TakeStep(rows, next, sums));
    rows = next;
  }
  LearnerReport report;
  if (options_.mode == RunMode::kAsync) ReportPolicyLag(segments, updates_, report);
  ++updates_;
  Fill(sums, begin, Now() - first_step, report);
  return report;
}

// One gradient step on `rows` rows; the batch of the next one, of `next` rows, is gathered beside it.
Status SacLearner::TakeStep(int rows, int next, Sums& sums) {
  const auto tried = static_cast<uint64_t>(counters_[kTried]++);
  ReplayBatch& batch = batches_[static_cast<size_t>(at_)]->view;
  if (gathered_ == 0) {
    batch.rows = rows;
    gather_->Set(tried, beta_, batch);
    threads_.ParallelFor(gather_->tasks(), [&](int task, int worker) { gather_->Run(task, worker); });
  }
  at_ = 1 - at_;
  gathered_ = next;
  if (next > 0) {
    ReplayBatch& following = batches_[static_cast<size_t>(at_)]->view;
    following.rows = next;
    gather_->Set(tried + 1, beta_, following);
  }
  const SacStepResult result = step_->Run(tried, batch, td_abs_.data(), next > 0 ? gather_.get() : nullptr);
  sums.least_rows = sums.tried == 0 ? rows : std::min(sums.least_rows, rows);
  sums.most_rows = std::max(sums.most_rows, rows);
  sums.rows += rows;
  ++sums.tried;
  for (int i = 0; i < rows; ++i)
    largest_ = std::max(largest_, static_cast<double>(std::abs(batch.reward[i])));
  MILL_RETURN_IF_ERROR(Judge(result, sums));
  return result.bad.empty() ? replay_->UpdatePriorities(batch.index, td_abs_.data(), rows) : absl::OkStatus();
}

std::string SacLearner::Name() const {
  return absl::StrCat("gradient step ", counters_[kTried], " (update ", updates_ + 1, ")");
}

Status SacLearner::Judge(const SacStepResult& result, Sums& sums) {
  if (!result.bad.empty()) {
    if (options_.run.on_nonfinite == OnNonfinite::kStop) {
      return absl::DataLossError(absl::StrCat(
          Name(), ": ", result.bad, " is not finite; smaller learning rates of sac or ",
          options_.sac.max_grad_norm > 0 ? "a smaller sac.max_grad_norm" : "sac.max_grad_norm, which is off,",
          " may help, run.on_nonfinite=skip drops such steps"));
    }
    ++sums.skipped;
    return absl::OkStatus();
  }
  ++sums.critic_steps;
  sums.critic_loss += result.critic_loss;
  sums.q += result.q;
  sums.critic_norm += result.critic_norm;
  if (result.policy_stepped) {
    ++sums.policy_steps;
    sums.actor_loss += result.actor_loss;
    sums.log_prob += result.log_prob;
    largest_ = std::max(largest_, result.alpha * std::abs(result.log_prob));
  }
  return Watch(result);
}

// Finite, but out of hand: |Q| against the largest return that rewards and entropy seen so far could add up
// to, and alpha against its limit.
Status SacLearner::Watch(const SacStepResult& result) {
  const SacSection& sac = options_.sac;
  const double bound = 2 * largest_ / std::max(1e-9, 1 - sac.gamma);
  if (sac.max_q_ratio > 0 && result.q_abs_max > sac.max_q_ratio * bound && bound > 0) {
    ++counters_[kExploded];
    if (options_.run.on_nonfinite == OnNonfinite::kStop) {
      return absl::DataLossError(absl::StrCat(
          Name(), ": q (of the critics) explodes: |Q| of ", result.q_abs_max, " is beyond ", sac.max_q_ratio,
          " (sac.max_q_ratio) times ", bound,
          ", the largest return that the rewards and entropies so far allow; a smaller "
          "sac.critic_learning_rate, a smaller sac.tau, sac.layer_norm=true or fewer sac.updates_per_step "
          "may help; run.on_nonfinite=skip only counts this"));
    }
  }
  const double alpha = step_->alpha();
  if (!options_.sac.auto_alpha || alpha <= sac.max_alpha) return absl::OkStatus();
  ++counters_[kAlphaLimited];
  if (options_.run.on_nonfinite == OnNonfinite::kStop) {
    return absl::DataLossError(
        absl::StrCat(Name(), ": alpha runs away: ", alpha, " is beyond sac.max_alpha, ", sac.max_alpha,
                     "; the policy can't reach sac.target_entropy, ", step_->target_entropy(),
                     "; lower that or sac.alpha_learning_rate, or fix alpha by sac.auto_alpha=false; "
                     "run.on_nonfinite=skip holds alpha at its bound"));
  }
  step_->LimitAlpha(sac.max_alpha);
  return absl::OkStatus();
}

void SacLearner::Fill(const Sums& sums, double begin, double gradient_seconds, LearnerReport& report) {
  report.algorithm = MetricsOf::kSac;
  report.minibatches = sums.tried;
  report.skipped = sums.skipped;
  report.alpha = step_->alpha();
  report.gradient_steps = optimizer_steps();
  report.q_exploded = static_cast<uint64_t>(exploded());
  report.alpha_limited = static_cast<uint64_t>(alpha_limited());
  report.replay_size = replay_->size();
  if (limiter_.inserted() > 0) {
    report.samples_per_insert =
        static_cast<double>(limiter_.sampled()) / static_cast<double>(limiter_.inserted());
  }
  if (sums.tried > 0) {
    report.batch_mean = static_cast<double>(sums.rows) / sums.tried;
    report.batch_min = sums.least_rows;
    report.batch_max = sums.most_rows;
  }
  if (sums.critic_steps > 0) {
    report.critic_loss = sums.critic_loss / sums.critic_steps;
    report.q_mean = sums.q / sums.critic_steps;
    report.grad_norm = sums.critic_norm / sums.critic_steps;
  }
  if (sums.policy_steps > 0) {
    report.actor_loss = sums.actor_loss / sums.policy_steps;
    report.entropy = -sums.log_prob / sums.policy_steps;
  }
  const double end = Now(), whole = std::max(1e-9, end - last_end_);
  report.insert_wait_share = gradient_seconds / whole;
  report.sample_wait_share = (begin - last_end_) / whole;
  report.prefetch_share = (gather_->seconds() - gathered_before_) / whole;
  gathered_before_ = gather_->seconds();
  last_end_ = end;
}

void SacLearner::SkipUpdate(std::span<const SegmentView>, std::span<const uint32_t>) {
  ++updates_;
}

Status SacLearner::Apply(const RunOptions& changed) {
  SacSection sac = options_.sac;
  sac.actor_learning_rate = changed.sac.actor_learning_rate;
  sac.critic_learning_rate = changed.sac.critic_learning_rate;
  sac.alpha_learning_rate = changed.sac.alpha_learning_rate;
  if (sac != changed.sac || options_.replay != changed.replay) {
    return absl::InvalidArgumentError(
        "sac, replay: while a run goes on, only sac.actor_learning_rate, sac.critic_learning_rate and "
        "sac.alpha_learning_rate can be changed; stop the run and resume it with the others");
  }
  options_.sac = sac;
  step_->SetLearningRates(sac);
  return absl::OkStatus();
}

std::vector<StateTensor> SacLearner::StateButReplay() {
  std::vector<StateTensor> state;
  for (const SacStep::Tensor& t : step_->State()) {
    const auto rows = static_cast<uint64_t>(t.rows), cols = static_cast<uint64_t>(t.cols);
    const std::vector<uint64_t> shape =
        rows == 1 ? std::vector<uint64_t>{cols} : std::vector<uint64_t>{rows, cols};
    state.push_back({.name = t.name, .shape = shape, .f32 = t.data, .warm = t.warm});
  }
  if (encoder_.normalizes()) {
    const std::span<double> values = obs_statistics_.State();
    state.push_back(
        {.name = "statistics/observation", .shape = {values.size()}, .f64 = values.data(), .warm = true});
  }
  const RateLimiter::State limiter = limiter_.state();
  counters_[kCriticSteps] = step_->counters()[0];
  counters_[kPolicySteps] = step_->counters()[1];
  counters_[kInserted] = static_cast<int64_t>(limiter.inserted);
  counters_[kSampled] = static_cast<int64_t>(limiter.sampled);
  counters_[kBalance] = limiter.balance;
  counters_[kUp] = limiter.up;
  counters_[kDown] = limiter.down;
  state.push_back({.name = "sac/counters", .shape = {counters_.size()}, .i64 = counters_.data()});
  state.push_back({.name = "sac/largest", .shape = {1}, .f64 = &largest_});
  return state;
}

std::vector<StateTensor> SacLearner::State() {
  std::vector<StateTensor> state = StateButReplay();
  if (options_.checkpoint.replay) {
    for (StateTensor& tensor : replay_->State()) state.push_back(std::move(tensor));
  }
  return state;
}

std::vector<StateTensor> SacLearner::Snapshot() {
  std::vector<StateTensor> state = StateButReplay();
  if (shadow_ == nullptr) return state;
  replay_->UpdateShadow(*shadow_);
  for (const StateTensor& tensor : shadow_->state()) {
    state.push_back(tensor);
    state.back().copy = true;
  }
  return state;
}

Status SacLearner::ResizeState(std::string_view name, uint64_t first) {
  if (!options_.checkpoint.replay || !name.starts_with("replay/")) return absl::OkStatus();
  loads_replay_ = true;
  return replay_->ResizeState(name, first);
}

// A limiter that is made of impossible counts would owe steps without end.
Status SacLearner::CheckLoaded() const {
  const auto broken = [](const char* what) {
    return absl::DataLossError(absl::StrCat(
        what, "; take an earlier checkpoint, or begin a new run with these weights by run.warm_start"));
  };
  for (const Counter c : {kTried, kPolicySteps, kExploded, kAlphaLimited, kInserted, kSampled}) {
    if (counters_[c] < 0) return broken("tensor sac/counters: a count is below zero");
  }
  if (!(largest_ >= 0)) return broken("tensor sac/largest is no size");
  return absl::OkStatus();
}

// Without the replay's content the limiter begins anew too, or what was inserted would be owed steps that
// nothing is left for.
Status SacLearner::Loaded(uint64_t updates, uint64_t optimizer_steps) {
  MILL_RETURN_IF_ERROR(CheckLoaded());
  if (loads_replay_) MILL_RETURN_IF_ERROR(replay_->Loaded());
  loads_replay_ = false;
  updates_ = updates;
  step_->counters()[0] = static_cast<int64_t>(optimizer_steps);
  step_->counters()[1] = counters_[kPolicySteps];
  if (replay_->size() > 0) {
    limiter_.Load({static_cast<uint64_t>(counters_[kInserted]), static_cast<uint64_t>(counters_[kSampled]),
                   counters_[kBalance], counters_[kUp], counters_[kDown]});
  }
  if (encoder_.normalizes()) encoder_.SetStatistics(obs_statistics_.mean(), obs_statistics_.variance());
  step_->Loaded();
  return absl::OkStatus();
}

}  // namespace millrace
