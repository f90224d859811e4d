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

// The outputs of a tower for rows `from` of a workspace, to rows `rows` of a [critics, batch, columns] array.
void SacStep::CopyOutput(size_t tower, Mlp::Workspace& w, Mlp::Rows from, float* to, Mlp::Rows rows) const {
  std::memcpy(to + tower * q_stride_ + At(rows.first, columns_), w.output(tower) + At(from.first, columns_),
              sizeof(float) * At(rows.count, columns_));
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

// The policy at the next observations: its actions and their log-probs, or its logits.
void SacStep::NextPolicy(int block, Worker& worker) {
  const Mlp::Rows rows = RowsOf(block);
  float* next_x = batch_->next_x + At(rows.first, batch_->ld);
  actor_.mlp().Forward(0, policy_.w, policy_.packed, next_x, batch_->ld, {0, rows.count}, worker.policy);
  const float* out = worker.policy.output(0);
  if (action_dims_ > 0) {
    SampleActions(out, rows, Purpose::kSacTarget, next_x + obs_width_, batch_->ld, nullptr);
  } else {
    std::memcpy(next_logits_ + At(rows.first, columns_), out, sizeof(float) * At(rows.count, columns_));
  }
}

// A target's critic at the next observations, where the target looks at it.
void SacStep::TargetValues(size_t tower, int block, Worker& worker) {
  const auto subset = order_.begin() + SubsetSize();
  if (std::find(order_.begin(), subset, static_cast<int32_t>(tower)) == subset) return;
  const Mlp::Rows rows = RowsOf(block), local{0, rows.count};
  critics_.Forward(tower, critic_.target, critic_.target_packed, batch_->next_x + At(rows.first, batch_->ld),
                   batch_->ld, local, worker.target);
  CopyOutput(tower, worker.target, local, next_q_, rows);
}

// y of these rows.
void SacStep::TargetOf(Mlp::Rows rows) {
  if (action_dims_ > 0) {
    RunSerial<SacTarget>({.rows = rows.count,
                          .critics = SubsetSize(),
                          .subset = order_.data(),
                          .q = next_q_ + rows.first,
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
                                .logits = next_logits_ + at,
                                .ld = columns_,
                                .mask = batch_->next_mask != nullptr ? batch_->next_mask + at : nullptr,
                                .critics = SubsetSize(),
                                .subset = order_.data(),
                                .q = next_q_ + at,
                                .stride = q_stride_,
                                .reward = batch_->reward + rows.first,
                                .discount = batch_->discount + rows.first,
                                .log_alpha = temperature_,
                                .weight = softmax_ + at,
                                .y = y_ + rows.first});
}

// The loss of all critics on these rows.
CriticLoss::Params SacStep::CriticLossOf(int block) {
  const Mlp::Rows rows = RowsOf(block);
  const size_t at = At(rows.first, columns_);
  return {.rows = rows.count,
          .critics = towers(),
          .columns = columns_,
          .action = action_dims_ > 0 ? nullptr : batch_->action + rows.first,
          .q = q_ + at,
          .dq = dq_ + at,
          .stride = q_stride_,
          .y = y_ + rows.first,
          .weight = batch_->weight + rows.first,
          .inv_count = 1.0f / static_cast<float>(batch_->rows),
          .td_abs = td_abs_ + rows.first,
          .stats = &critic_stats_[static_cast<size_t>(block)]};
}

// One critic forward, its loss, and back to where its weights' gradients are taken from, while the block's
// activations are in the core's caches. What the loss says of all critics together follows later.
void SacStep::CriticUpdate(size_t tower, int block, Worker& worker) {
  const Mlp::Rows rows = RowsOf(block);
  Mlp::Workspace& w = *critic_workspace_;
  critics_.Forward(tower, critic_.w, critic_.packed, batch_->x, batch_->ld, rows, w);
  CopyOutput(tower, w, rows, q_, rows);
  CriticLoss::Params loss = CriticLossOf(block);
  SacCriticStats of_this;
  loss.critics = 1;
  loss.q += tower * q_stride_;
  loss.dq += tower * q_stride_;
  loss.td_abs = worker.td_abs;
  loss.stats = &of_this;
  RunSerial<CriticLoss>(loss);
  std::memcpy(w.doutput(tower) + At(rows.first, columns_), loss.dq, sizeof(float) * At(rows.count, columns_));
  critics_.BackwardRows(tower, w.segments() - 1, critic_.w, critic_.packed, batch_->x, batch_->ld, rows, w);
}

// The policy at the observations, with actions drawn anew.
void SacStep::PolicyForward(int block) {
  const Mlp::Rows rows = RowsOf(block);
  actor_.mlp().Forward(0, policy_.w, policy_.packed, batch_->x, batch_->ld, rows, *policy_workspace_);
  if (action_dims_ == 0) return;
  float* x = policy_x_ + At(rows.first, critic_inputs());
  for (int r = 0; r < rows.count; ++r) {
    std::memcpy(x + At(r, critic_inputs()), batch_->x + At(rows.first + r, batch_->ld),
                sizeof(float) * static_cast<size_t>(obs_width_));
  }
  SampleActions(policy_workspace_->output(0) + At(rows.first, 2 * action_dims_), rows, Purpose::kSacPolicy,
                x + obs_width_, critic_inputs(), noise_ + At(rows.first, action_dims_));
}

// A critic at the policy's actions, or at all of them.
void SacStep::PolicyValues(size_t tower, int block) {
  const Mlp::Rows rows = RowsOf(block);
  const bool box = action_dims_ > 0;
  critics_.Forward(tower, critic_.w, critic_.packed, box ? policy_x_ : batch_->x,
                   box ? critic_inputs() : batch_->ld, rows, *critic_workspace_);
  CopyOutput(tower, *critic_workspace_, rows, q_, rows);
}

void SacStep::PolicyLosses(int block) {
  const Mlp::Rows rows = RowsOf(block);
  if (action_dims_ == 0) return DiscretePolicy(block, rows);
  for (size_t tower = 0; only_least_ && tower < critics_.towers(); ++tower) {
    std::fill_n(daction_ + tower * At(max_batch_, action_dims_) + At(rows.first, action_dims_),
                At(rows.count, action_dims_), 0.0f);
  }
  RunSerial<PolicyQ>({.rows = rows.count,
                      .critics = static_cast<int>(critics_.towers()),
                      .mean = options_.sac.critic_subset < options_.sac.critics,
                      .q = q_ + rows.first,
                      .dq = dq_ + rows.first,
                      .stride = q_stride_,
                      .log_prob = log_prob_ + rows.first,
                      .log_alpha = temperature_,
                      .inv_count = 1.0f / static_cast<float>(batch_->rows),
                      .stats = &policy_stats_[static_cast<size_t>(block)]});
}

// Which rows have their gradient from which critic.
void SacStep::ListLeast() {
  for (size_t tower = 0; tower < critics_.towers(); ++tower) {
    const float* dq = dq_ + tower * q_stride_;
    int32_t* list = least_.data() + At(static_cast<int>(tower), max_batch_);
    int& count = least_rows_[tower];
    count = 0;
    for (int32_t r = 0; r < batch_->rows; ++r) {
      list[count] = r;
      count += dq[r] != 0.0f ? 1 : 0;
    }
  }
}

// Through a critic to the actions, all rows of the block.
void SacStep::ActionGradients(size_t tower, int block) {
  const Mlp::Rows rows = RowsOf(block);
  Mlp::Workspace& w = *critic_workspace_;
  std::memcpy(w.doutput(tower) + rows.first, dq_ + tower * q_stride_ + rows.first,
              sizeof(float) * static_cast<size_t>(rows.count));
  for (int segment = w.segments(); segment-- > 0;) {
    critics_.BackwardRows(tower, segment, critic_.w, critic_.packed, policy_x_, critic_inputs(), rows, w,
                          daction_ + tower * At(max_batch_, action_dims_), action_dims_);
  }
}

// The same through those rows alone that have a gradient, brought together: with two critics that is half of
// the work. The others' gradients are zero already. A block is as many of the listed rows.
void SacStep::LeastActionGradients(size_t tower, int block, Worker& worker) {
  const int first = block * kSacBlockRows, count = std::min(kSacBlockRows, least_rows_[tower] - first);
  if (count <= 0) return;
  const int32_t* rows = least_.data() + At(static_cast<int>(tower), max_batch_) + first;
  const float* dq = dq_ + tower * q_stride_;
  Mlp::Workspace& w = *worker.least;
  critics_.GatherRows(tower, *critic_workspace_, rows, count, w);
  for (int r = 0; r < count; ++r) w.doutput(tower)[r] = dq[rows[r]];
  critics_.BackwardRows(tower, 0, critic_.w, critic_.packed, policy_x_, critic_inputs(), {0, count}, w,
                        worker.daction.data(), action_dims_);
  float* daction = daction_ + tower * At(max_batch_, action_dims_);
  for (int r = 0; r < count; ++r) {
    std::copy_n(worker.daction.data() + At(r, action_dims_), action_dims_,
                daction + At(rows[r], action_dims_));
  }
}

// From the actions to the policy's outputs, and from these to where its weights' gradients are taken from.
void SacStep::PolicyBackward(int block) {
  const Mlp::Rows rows = RowsOf(block);
  const int dims = action_dims_;
  Mlp::Workspace& w = *policy_workspace_;
  if (dims > 0) {
    RunSerial<SquashedBackward>({.rows = rows.count,
                                 .out = w.output(0) + At(rows.first, 2 * dims),
                                 .ld = 2 * dims,
                                 .dims = dims,
                                 .noise = noise_ + At(rows.first, dims),
                                 .action = policy_x_ + At(rows.first, critic_inputs()) + obs_width_,
                                 .action_ld = critic_inputs(),
                                 .critics = static_cast<int>(critics_.towers()),
                                 .daction = daction_ + At(rows.first, dims),
                                 .daction_stride = At(max_batch_, dims),
                                 .log_alpha = temperature_,
                                 .inv_count = 1.0f / static_cast<float>(batch_->rows),
                                 .dout = w.doutput(0) + At(rows.first, 2 * dims)});
  }
  actor_.mlp().BackwardRows(0, w.segments() - 1, policy_.w, policy_.packed, batch_->x, batch_->ld, rows, w);
}

// Every action's value is there, so no gradient goes through the critics.
void SacStep::DiscretePolicy(int block, Mlp::Rows rows) {
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
