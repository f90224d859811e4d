// What an update learns towards: the returns and advantages of each segment, by generalised advantage
// estimation or by V-trace, and how old the policies are that acted it.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/core/launch.h"
#include "kernels/core/math.h"
#include "kernels/ops/action_log_prob.h"
#include "kernels/ops/gae.h"
#include "kernels/ops/vtrace.h"
#include "learner/policy_lag.h"
#include "learner/ppo_worker.h"

namespace millrace {
namespace {
// A weight below this is as good as none.
constexpr float kMinLogRho = -20.0f;
}  // namespace

void PpoLearner::PrepareSegment(size_t index, Worker& worker) {
  const SegmentView& segment = segments_[index];
  const size_t at = index * static_cast<size_t>(stride_);
  MILL_CHECK(segment.layout().samples() <= stride_);
  if (vtrace()) ScoreSteps(segment, at, worker);
  const float* value = vtrace() ? value_ + at : segment.value();
  BootstrapValues(segment, value, next_value_ + at, worker);
  const float* reward = reward_scaler_.Scaled(segment, reward_ + at);
  IsolateInvalidSteps(segment, reward, value, next_value_ + at);
  if (vtrace()) {
    RunVtrace(segment, at, reward);
  } else {
    RunGae(segment, at, reward);
  }
  NoteClipped(index);
}

// V of every step, its log-prob and the log of its importance weight, under the weights that the update
// begins with.
void PpoLearner::ScoreSteps(const SegmentView& segment, size_t at, Worker& worker) {
  const int total = segment.layout().samples(), width = encoder_.width();
  const auto components = static_cast<size_t>(spec_.action.width());
  const auto outputs = static_cast<size_t>(spec_.action.outputs());
  ActorCritic::Workspace& w = worker.workspace;
  float* x = worker.block.x.data();
  for (int first = 0; first < total; first += kPpoBlockRows) {
    const int rows = std::min(kPpoBlockRows, total - first);
    const auto from = static_cast<size_t>(first);
    for (int i = 0; i < rows; ++i) {
      encoder_.EncodeRow(segment, 0, first + i, x + static_cast<size_t>(i) * static_cast<size_t>(width));
    }
    net_.Forward(parameters_, packed_, x, width, rows, w);
    RunSerial<ActionLogProb>(
        {.rows = rows,
         .logits = w.logits,
         .ld = w.logits_ld,
         .mask = spec_.action_mask ? segment.mask() + from * outputs : nullptr,
         .heads = spec_.action.width(),
         .nvec = spec_.action.nvec.data(),
         .log_std = net_.log_std(parameters_),
         .action = static_cast<const float*>(segment.action()) + from * components,  // i32 has the same size
         .log_prob = log_prob_ + at + from});
    float* value = value_ + at + from;
    for (int i = 0; i < rows; ++i) value[i] = w.value[static_cast<size_t>(i * w.value_ld)];
  }
  // An invalid step has no weight of its own: whatever it holds, it gets that of a step on policy.
  for (int i = 0; i < total; ++i) {
    const size_t sample = at + static_cast<size_t>(i);
    log_rho_[sample] =
        segment.valid()[i] != 0 ? std::max(kMinLogRho, log_prob_[sample] - segment.log_prob()[i]) : 0.0f;
  }
}

// next_value[t] is V of the true next observation: of the next step in the segment, of the observation behind
// it, or of the final observation of an episode that was truncated.
void PpoLearner::BootstrapValues(const SegmentView& segment, const float* value, float* next_value,
                                 Worker& worker) {
  const int rows = segment.layout().rows(), steps = segment.layout().steps();
  const size_t last = static_cast<size_t>(steps - 1) * static_cast<size_t>(rows);
  std::memcpy(next_value, value + rows, last * sizeof(float));
  const int width = encoder_.width();
  ActorCritic::Workspace& w = worker.workspace;
  const auto evaluate = [&](int count, const auto& encode, const auto& store) {
    for (int first = 0; first < count; first += kPpoBlockRows) {
      const int block = std::min(kPpoBlockRows, count - first);
      for (int i = 0; i < block; ++i)
        encode(first + i, worker.block.x.data() + static_cast<size_t>(i) * static_cast<size_t>(width));
      net_.ForwardValue(parameters_, packed_, worker.block.x.data(), width, block, w);
      for (int i = 0; i < block; ++i) store(first + i, w.value[static_cast<size_t>(i * w.value_ld)]);
    }
  };
  evaluate(
      rows, [&](int i, float* x) { encoder_.EncodeRow(segment, steps, i, x); },
      [&](int i, float v) { next_value[last + static_cast<size_t>(i)] = v; });
  evaluate(
      segment.final_count(), [&](int i, float* x) { encoder_.EncodeFinal(segment, i, x); },
      [&](int i, float v) { next_value[segment.final_index()[i]] = v; });
}

// An invalid step is the end of what stands before it: with this value its own TD error is zero, so the step
// before bootstraps from V of the observation between them, and nothing of what follows reaches back.
void PpoLearner::IsolateInvalidSteps(const SegmentView& segment, const float* reward, const float* value,
                                     float* next_value) const {
  const float gamma = static_cast<float>(options_.ppo.gamma);
  for (int i = 0; i < segment.layout().samples(); ++i) {
    if (segment.valid()[i] == 0 && gamma > 0) next_value[i] = (value[i] - reward[i]) / gamma;
  }
}

void PpoLearner::RunGae(const SegmentView& segment, size_t at, const float* reward) const {
  RunSerial<Gae>({.T = segment.layout().steps(),
                  .N = segment.layout().rows(),
                  .reward = reward,
                  .value = segment.value(),
                  .next_value = next_value_ + at,
                  .terminated = segment.terminated(),
                  .truncated = segment.truncated(),
                  .gamma = static_cast<float>(options_.ppo.gamma),
                  .lambda = static_cast<float>(options_.ppo.gae_lambda),
                  .advantage = advantage_ + at,
                  .ret = ret_ + at});
}

void PpoLearner::RunVtrace(const SegmentView& segment, size_t at, const float* reward) const {
  const auto rho_bar = static_cast<float>(options_.learner.rho_bar);
  RunSerial<Vtrace>({.T = segment.layout().steps(),
                     .N = segment.layout().rows(),
                     .log_rho = log_rho_ + at,
                     .reward = reward,
                     .value = value_ + at,
                     .next_value = next_value_ + at,
                     .terminated = segment.terminated(),
                     .truncated = segment.truncated(),
                     .gamma = static_cast<float>(options_.ppo.gamma),
                     .lambda = static_cast<float>(options_.ppo.gae_lambda),
                     .rho_bar = rho_bar,
                     .c_bar = static_cast<float>(options_.learner.c_bar),
                     .pg_rho_bar = rho_bar,
                     .vs = ret_ + at,
                     .pg_advantage = advantage_ + at});
  const int total = segment.layout().samples();
  for (size_t i = at; i < at + static_cast<size_t>(total); ++i) error_[i] = ret_[i] - value_[i];
}

void PpoLearner::NoteClipped(size_t index) {
  if (!vtrace()) return;
  const SegmentView& segment = segments_[index];
  const float* log_rho = log_rho_ + index * static_cast<size_t>(stride_);
  const float limit = std::log(static_cast<float>(options_.learner.rho_bar));
  int clipped = 0;
  for (int i = 0; i < segment.layout().samples(); ++i)
    clipped += segment.valid()[i] != 0 && log_rho[i] > limit;
  clipped_[index] = clipped;
}

void PpoLearner::ReportAge(LearnerReport& report) const {
  if (options_.mode != RunMode::kAsync) return;
  ReportPolicyLag(segments_, updates_, report);
  if (!vtrace()) return;
  double clipped = 0;
  for (size_t i = 0; i < segments_.size(); ++i) clipped += clipped_[i];
  report.rho_clip_fraction = clipped / std::max<double>(1.0, static_cast<double>(samples_.size()));
}

}  // namespace millrace
