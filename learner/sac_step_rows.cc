// What SacStep does with a block of rows: targets and critics, then the policy; and which tensor it was that
// was not finite.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/core/launch.h"
#include "kernels/ops/sac_discrete.h"
#include "kernels/ops/tanh_gaussian.h"
#include "learner/sac_worker.h"

namespace millrace {
namespace {

size_t At(int row, int columns) {
  return static_cast<size_t>(row) * static_cast<size_t>(columns);
}

// True when one of them is not finite.
bool AnyBad(const float* x, int rows, int columns, int ld) {
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < columns; ++c) {
      if (!IsFinite(x[At(r, ld) + static_cast<size_t>(c)])) return true;
    }
  }
  return false;
}

}  // namespace

// The outputs of all towers for rows `from` of a workspace, to rows `rows` of a [critics, batch, columns]
// array.
void SacStep::CopyOutputs(Mlp::Workspace& w, Mlp::Rows from, float* to, Mlp::Rows rows) const {
  for (size_t t = 0; t < critics_.towers(); ++t) {
    std::memcpy(to + t * q_stride_ + At(rows.first, columns_), w.output(t) + At(from.first, columns_),
                sizeof(float) * At(rows.count, columns_));
  }
}

// logits, action and noise begin at the first of these rows; log-probs go to log_prob_.
void SacStep::SampleActions(const float* logits, Mlp::Rows rows, Purpose purpose, float* action,
                            int action_ld, float* noise) const {
  RunSerial<SampleSquashed>({.rows = rows.count,
                             .out = logits,
                             .ld = 2 * action_dims_,
                             .dims = action_dims_,
                             .seed = options_.run.seed,
                             .purpose = purpose,
                             .first_row = static_cast<uint32_t>(rows.first),
                             .step = step_,
                             .deterministic = false,
                             .action = action,
                             .action_ld = action_ld,
                             .log_prob = log_prob_ + rows.first,
                             .noise = noise});
}

// y of these rows. q_ and log_prob_ are scratch of it.
void SacStep::TargetOf(Mlp::Rows rows, Worker& worker) {
  const Mlp::Rows local{0, rows.count};
  float* next_x = batch_->next_x + At(rows.first, batch_->ld);
  actor_.mlp().Forward(0, policy_.w, policy_.packed, next_x, batch_->ld, local, worker.policy);
  if (action_dims_ > 0) {
    SampleActions(worker.policy.output(0), rows, Purpose::kSacTarget, next_x + obs_width_, batch_->ld,
                  nullptr);
  }
  for (size_t t = 0; t < critics_.towers(); ++t)
    critics_.Forward(t, critic_.target, critic_.target_packed, next_x, batch_->ld, local, worker.target);
  CopyOutputs(worker.target, local, q_, rows);
  const int subset = static_cast<int>(std::min<size_t>(options_.sac.critic_subset, critics_.towers()));
  if (action_dims_ > 0) {
    RunSerial<SacTarget>({.rows = rows.count,
                          .critics = subset,
                          .subset = order_.data(),
                          .q = q_ + rows.first,
                          .stride = q_stride_,
                          .log_prob = log_prob_ + rows.first,
                          .reward = batch_->reward + rows.first,
                          .discount = batch_->discount + rows.first,
                          .log_alpha = temperature_,
                          .y = y_ + rows.first});
    return;
  }
  const size_t at = At(rows.first, columns_);
  RunSerial<DiscreteSacTarget>({.rows = rows.count,
                                .actions = columns_,
                                .logits = worker.policy.output(0),
                                .ld = columns_,
                                .mask = batch_->next_mask != nullptr ? batch_->next_mask + at : nullptr,
                                .critics = subset,
                                .subset = order_.data(),
                                .q = q_ + at,
                                .stride = q_stride_,
                                .reward = batch_->reward + rows.first,
                                .discount = batch_->discount + rows.first,
                                .log_alpha = temperature_,
                                .weight = softmax_ + at,
                                .y = y_ + rows.first});
}

void SacStep::CriticRows(int block, Worker& worker) {
  const Mlp::Rows rows = RowsOf(block);
  TargetOf(rows, worker);
  Mlp::Workspace& w = *critic_workspace_;
  for (size_t t = 0; t < critics_.towers(); ++t)
    critics_.Forward(t, critic_.w, critic_.packed, batch_->x, batch_->ld, rows, w);
  CopyOutputs(w, rows, q_, rows);
  const size_t at = At(rows.first, columns_);
  RunSerial<CriticLoss>({.rows = rows.count,
                         .critics = static_cast<int>(critics_.towers()),
                         .columns = columns_,
                         .action = action_dims_ > 0 ? nullptr : batch_->action + rows.first,
                         .q = q_ + at,
                         .dq = dq_ + at,
                         .stride = q_stride_,
                         .y = y_ + rows.first,
                         .weight = batch_->weight + rows.first,
                         .inv_count = 1.0f / static_cast<float>(batch_->rows),
                         .td_abs = td_abs_ + rows.first,
                         .stats = &critic_stats_[static_cast<size_t>(block)]});
  for (size_t t = 0; t < critics_.towers(); ++t) {
    std::memcpy(w.doutput(t) + at, dq_ + t * q_stride_ + at, sizeof(float) * At(rows.count, columns_));
    critics_.BackwardRows(t, w.segments() - 1, critic_.w, critic_.packed, batch_->x, batch_->ld, rows, w);
  }
}

void SacStep::PolicyRows(int block) {
  const Mlp::Rows rows = RowsOf(block);
  const Mlp& actor = actor_.mlp();
  Mlp::Workspace& w = *policy_workspace_;
  actor.Forward(0, policy_.w, policy_.packed, batch_->x, batch_->ld, rows, w);
  if (action_dims_ > 0) {
    SquashedPolicy(block, rows);
  } else {
    DiscretePolicy(block, rows);
  }
  actor.BackwardRows(0, w.segments() - 1, policy_.w, policy_.packed, batch_->x, batch_->ld, rows, w);
}

// Through the critics to the actions, and from these to the policy's outputs.
void SacStep::SquashedPolicy(int block, Mlp::Rows rows) {
  const int ld = batch_->ld, dims = action_dims_;
  const float* logits = policy_workspace_->output(0) + At(rows.first, 2 * dims);
  float* x = policy_x_ + At(rows.first, critic_inputs());
  for (int r = 0; r < rows.count; ++r) {
    std::memcpy(x + At(r, critic_inputs()), batch_->x + At(rows.first + r, ld),
                sizeof(float) * static_cast<size_t>(obs_width_));
  }
  float* noise = noise_ + At(rows.first, dims);
  SampleActions(logits, rows, Purpose::kSacPolicy, x + obs_width_, critic_inputs(), noise);
  Mlp::Workspace& w = *critic_workspace_;
  for (size_t t = 0; t < critics_.towers(); ++t)
    critics_.Forward(t, critic_.w, critic_.packed, policy_x_, critic_inputs(), rows, w);
  CopyOutputs(w, rows, q_, rows);
  const int critics = static_cast<int>(critics_.towers());
  const float inv_count = 1.0f / static_cast<float>(batch_->rows);
  RunSerial<PolicyQ>({.rows = rows.count,
                      .critics = critics,
                      .mean = options_.sac.critic_subset < options_.sac.critics,
                      .q = q_ + rows.first,
                      .dq = dq_ + rows.first,
                      .stride = q_stride_,
                      .log_prob = log_prob_ + rows.first,
                      .log_alpha = temperature_,
                      .inv_count = inv_count,
                      .stats = &policy_stats_[static_cast<size_t>(block)]});
  const size_t stride = At(max_batch_, dims);
  for (size_t t = 0; t < critics_.towers(); ++t) {
    std::memcpy(w.doutput(t) + rows.first, dq_ + t * q_stride_ + rows.first,
                sizeof(float) * static_cast<size_t>(rows.count));
    for (int segment = w.segments(); segment-- > 0;) {
      critics_.BackwardRows(t, segment, critic_.w, critic_.packed, policy_x_, critic_inputs(), rows, w,
                            daction_ + t * stride, dims);
    }
  }
  RunSerial<SquashedBackward>({.rows = rows.count,
                               .out = logits,
                               .ld = 2 * dims,
                               .dims = dims,
                               .noise = noise,
                               .action = x + obs_width_,
                               .action_ld = critic_inputs(),
                               .critics = critics,
                               .daction = daction_ + At(rows.first, dims),
                               .daction_stride = stride,
                               .log_alpha = temperature_,
                               .inv_count = inv_count,
                               .dout = policy_workspace_->doutput(0) + At(rows.first, 2 * dims)});
}

// Every action's value is there, so no gradient goes through the critics.
void SacStep::DiscretePolicy(int block, Mlp::Rows rows) {
  Mlp::Workspace& w = *critic_workspace_;
  for (size_t t = 0; t < critics_.towers(); ++t)
    critics_.Forward(t, critic_.w, critic_.packed, batch_->x, batch_->ld, rows, w);
  CopyOutputs(w, rows, q_, rows);
  const size_t at = At(rows.first, columns_);
  RunSerial<DiscretePolicyLoss>({.rows = rows.count,
                                 .actions = columns_,
                                 .logits = policy_workspace_->output(0) + at,
                                 .ld = columns_,
                                 .mask = batch_->mask != nullptr ? batch_->mask + at : nullptr,
                                 .critics = static_cast<int>(critics_.towers()),
                                 .mean = options_.sac.critic_subset < options_.sac.critics,
                                 .q = q_ + at,
                                 .stride = q_stride_,
                                 .all = all_.data(),
                                 .log_alpha = temperature_,
                                 .inv_count = 1.0f / static_cast<float>(batch_->rows),
                                 .weight = softmax_ + at,
                                 .dlogits = policy_workspace_->doutput(0) + at,
                                 .stats = &policy_stats_[static_cast<size_t>(block)]});
}

// What came in with the batch; empty: all of it is finite.
std::string SacStep::BadBatch() const {
  const ReplayBatch& b = *batch_;
  if (AnyBad(b.x, b.rows, critic_inputs(), b.ld)) return "batch/x (a stored observation or action)";
  if (AnyBad(b.next_x, b.rows, obs_width_, b.ld)) return "batch/next_x (a stored observation)";
  if (AnyBad(b.reward, 1, b.rows, b.rows)) return "batch/reward";
  if (AnyBad(b.weight, 1, b.rows, b.rows)) return "batch/weight (of a priority)";
  return "";
}

// In the order in which one makes the next bad. The targets' critics have left no more than y.
std::string SacStep::BadCriticHalf() const {
  const int rows = batch_->rows;
  if (std::string bad = BadBatch(); !bad.empty()) return bad;
  if (action_dims_ > 0 && AnyBad(log_prob_, 1, rows, rows)) return "next_log_prob (of the policy)";
  if (AnyBad(y_, 1, rows, rows)) return "target_q";
  return "q (of the critics)";
}

std::string SacStep::BadPolicy() const {
  if (action_dims_ > 0 && AnyBad(log_prob_, 1, batch_->rows, batch_->rows)) return "log_prob (of the policy)";
  return "q (of the critics, at the policy's actions)";
}

std::string SacStep::BadGradient(const char* of, const std::vector<ParameterTensor>& tensors,
                                 const float* gradients) const {
  if (std::string bad = BadBatch(); !bad.empty()) return bad;
  for (const ParameterTensor& t : tensors) {
    if (AnyBad(gradients + t.offset, t.rows, t.cols, t.cols)) return absl::StrCat("gradient/", t.name);
  }
  return absl::StrCat("the norm of the gradient of the ", of);
}

}  // namespace millrace
