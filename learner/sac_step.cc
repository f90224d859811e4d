#include "learner/sac_step.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "kernels/core/launch.h"
#include "kernels/net/policy_view.h"
#include "learner/sac_worker.h"

namespace millrace {
namespace {

MlpSpec CriticSpec(const EnvSpec& env, const RunOptions& options, int obs_width) {
  const auto& hidden = options.sac.critic_hidden.empty() ? options.policy.hidden : options.sac.critic_hidden;
  MlpSpec spec;
  spec.inputs = obs_width + (env.action.box() ? env.action.width() : 0);
  spec.hidden.assign(hidden.begin(), hidden.end());
  spec.activation = options.policy.activation;
  spec.layer_norm = options.sac.layer_norm;
  spec.input_gradient_from = env.action.box() ? obs_width : -1;
  for (uint32_t i = 0; i < options.sac.critics; ++i)
    spec.towers.push_back({absl::StrCat("critic", i), env.action.box() ? 1 : env.action.outputs()});
  return spec;
}

// That of the uniform policy, which no other has more than: on the unit box, or over the choices.
double LargestEntropy(const EnvSpec& env) {
  return env.action.box() ? env.action.width() * std::log(2.0)
                          : std::log(static_cast<double>(env.action.outputs()));
}

// Minus the dimensions of a Box (Haarnoja et al. 2018, appendix D), or the share of sac_step.h.
double TargetEntropy(const EnvSpec& env, const SacSection& sac) {
  if (!sac.auto_target_entropy) return sac.target_entropy;
  return env.action.box() ? -env.action.width() : kSacDiscreteTarget * LargestEntropy(env);
}

// Choices have an entropy of 0 or more, densities on the box any.
Status CheckTargetEntropy(const EnvSpec& env, const SacSection& sac) {
  if (!sac.auto_alpha) return absl::OkStatus();
  const double target = TargetEntropy(env, sac), most = LargestEntropy(env);
  if (target <= most && (env.action.box() || target >= 0)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "sac.target_entropy: no policy has the entropy ", target, " over the actions of ", env.id, "; give ",
      env.action.box() ? "" : "0 or more and ", most, " at most, the uniform policy's"));
}

// Whether the policy's gradient need only go through the least critic of a row. With activation checkpoints
// what a row needs of the forward pass is not all there.
bool OnlyLeast(const EnvSpec& env, const SacSection& sac, const Mlp& critics) {
  return env.action.box() && sac.critic_subset >= sac.critics &&
         (sac.activation_checkpoint == 0 || sac.activation_checkpoint >= critics.layers());
}

size_t Floats(int rows, int columns) {
  return static_cast<size_t>(rows) * static_cast<size_t>(columns);
}

// Squashed actions are scaled to the environment's bounds.
Status CheckActions(const EnvSpec& spec) {
  const ActionSpec& action = spec.action;
  if (action.kind == ActionSpec::Kind::kMultiDiscrete) {
    return absl::InvalidArgumentError(absl::StrCat(
        "env.id: the actions of ", spec.id,
        " are several choices at once; algorithm sac takes one (Discrete) or a Box; take algorithm ppo"));
  }
  for (size_t d = 0; action.box() && d < action.low.size(); ++d) {
    const float low = action.low[d], high = action.high[d];
    if (std::isfinite(low) && std::isfinite(high) && low < high) continue;
    return absl::InvalidArgumentError(absl::StrCat("env.id: action ", d, " of ", spec.id,
                                                   " is not between two finite bounds (", low, " to ", high,
                                                   "), as algorithm sac needs; take algorithm ppo"));
  }
  return absl::OkStatus();
}

}  // namespace

SacStep::SacStep(const RunOptions& options, const EnvSpec& spec, int obs_width, int max_batch,
                 ThreadPool& threads)
    : options_(options),
      spec_(spec),
      threads_(threads),
      actor_(NetSpecFor(spec, options)),
      critics_(CriticSpec(spec, options, obs_width)),
      obs_width_(obs_width),
      max_batch_(max_batch),
      action_dims_(spec.action.box() ? spec.action.width() : 0),
      columns_(spec.action.box() ? 1 : spec.action.outputs()),
      q_stride_(Floats(max_batch, columns_)),
      target_entropy_(TargetEntropy(spec, options.sac)),
      only_least_(OnlyLeast(spec, options.sac, critics_)) {}

SacStep::~SacStep() = default;

StatusOr<std::unique_ptr<SacStep>> SacStep::Make(const RunOptions& options, const EnvSpec& spec,
                                                 int obs_width, int max_batch, ThreadPool& threads,
                                                 uint64_t available) {
  MILL_RETURN_IF_ERROR(CheckActions(spec));
  MILL_RETURN_IF_ERROR(CheckTargetEntropy(spec, options.sac));
  auto step = std::unique_ptr<SacStep>(new SacStep(options, spec, obs_width, max_batch, threads));
  MILL_RETURN_IF_ERROR(step->Allocate(available));
  step->Initialize();
  return step;
}

// What is as large as the batch or the networks; the rest is some kilobytes.
uint64_t SacStep::BytesOutsideArena() const {
  const int checkpoint = static_cast<int>(options_.sac.activation_checkpoint);
  const auto whole = [&](const Mlp& net) {
    return Mlp::Workspace::Bytes(net, max_batch_, Mlp::Keep::kGradients, checkpoint);
  };
  const uint64_t least =
      only_least_ ? critics_.towers() * static_cast<size_t>(max_batch_) * sizeof(int32_t) : 0;
  return whole(actor_.mlp()) + whole(critics_) + least +
         static_cast<uint64_t>(threads_.threads()) *
             Worker::Bytes(actor_.mlp(), critics_, action_dims_, only_least_);
}

Status SacStep::Allocate(uint64_t available) {
  const size_t actor = actor_.parameter_floats(), critics = critics_.parameter_floats();
  if (std::max(actor, critics) > static_cast<size_t>(INT32_MAX)) {
    return absl::InvalidArgumentError(absl::StrCat("policy.hidden, sac.critics: networks of ", actor, " and ",
                                                   critics, " parameters; at most 2147483647 each"));
  }
  std::vector<std::pair<float**, Arena::Handle>> placed;
  const auto place = [&](const char* name, float** at, size_t floats) {
    placed.emplace_back(at, arena_.Add(name, floats));
  };
  const auto place_net = [&](const char* name, Flat& flat, size_t floats, size_t packed) {
    for (float** at : {&flat.w, &flat.g, &flat.m, &flat.v}) place(name, at, floats);
    place(name, &flat.packed, packed);
  };
  place_net("policy", policy_, actor, actor_.packed_floats());
  place_net("critics", critic_, critics, critics_.packed_floats());
  place("target", &critic_.target, critics);
  place("target", &critic_.target_packed, critics_.packed_floats());
  place("temperature", &temperature_, 4);
  const size_t towers = critics_.towers(), batch = static_cast<size_t>(max_batch_);
  place("q", &q_, towers * q_stride_);
  place("dq", &dq_, towers * q_stride_);
  place("next_q", &next_q_, towers * q_stride_);
  place("y", &y_, batch);
  place("log_prob", &log_prob_, batch);
  place("noise", &noise_, Floats(max_batch_, action_dims_));
  place("daction", &daction_, towers * Floats(max_batch_, action_dims_));
  place("policy_x", &policy_x_, action_dims_ > 0 ? Floats(max_batch_, critic_inputs()) : 0);
  place("softmax", &softmax_, action_dims_ > 0 ? 0 : q_stride_);
  place("next_logits", &next_logits_, action_dims_ > 0 ? 0 : q_stride_);
  constexpr const char* kRemedy = "a smaller policy.hidden, sac.critics or sac.batch_size needs less";
  MILL_RETURN_IF_ERROR(CheckMemory("networks, optimizers and the activations of a batch take",
                                   arena_.bytes() + BytesOutsideArena(), available, kRemedy));
  if (const Status status = arena_.Commit(); !status.ok()) {
    return absl::ResourceExhaustedError(absl::StrCat(status.message(), "; ", kRemedy));
  }
  for (const auto& [at, handle] : placed) *at = arena_.At(handle);

  const int checkpoint = static_cast<int>(options_.sac.activation_checkpoint);
  policy_workspace_ =
      std::make_unique<Mlp::Workspace>(actor_.mlp(), max_batch_, Mlp::Keep::kGradients, checkpoint);
  critic_workspace_ =
      std::make_unique<Mlp::Workspace>(critics_, max_batch_, Mlp::Keep::kGradients, checkpoint);
  for (int i = 0; i < threads_.threads(); ++i) {
    workers_.push_back(std::make_unique<Worker>(actor_.mlp(), critics_, action_dims_, only_least_));
  }
  least_.resize(only_least_ ? towers * batch : 0);
  least_rows_.resize(towers);
  const size_t blocks = (batch + kSacBlockRows - 1) / kSacBlockRows;
  critic_stats_.resize(blocks);
  policy_stats_.resize(blocks);
  size_t tasks = 0;
  for (const Mlp::Workspace* w : {policy_workspace_.get(), critic_workspace_.get()}) {
    size_t of_net = 0;
    for (int s = 0; s < w->segments(); ++s) of_net += static_cast<size_t>(w->grad_tasks(s));
    tasks = std::max(tasks, of_net);
  }
  squares_.resize(tasks);
  order_.resize(towers);
  all_.resize(towers);
  std::iota(all_.begin(), all_.end(), 0);
  policy_.steps = &counters_[1];
  critic_.steps = &counters_[0];
  SetLearningRates(options_.sac);
  return absl::OkStatus();
}

// The critics' towers draw from streams of their own, or the first would begin as the policy does.
void SacStep::Initialize() {
  actor_.Initialize(options_.run.seed, options_.policy, policy_.w);
  critics_.Clear(critic_.w);
  uint32_t stream = 1000;
  for (size_t tower = 0; tower < critics_.towers(); ++tower) {
    for (size_t layer = 0; layer < critics_.layers(); ++layer) {
      const bool head = layer + 1 == critics_.layers();
      critics_.Orthogonal(tower, layer, 0, head ? columns_ : critics_.spec().hidden[layer], options_.run.seed,
                          stream++, head ? options_.policy.gain_value : options_.policy.gain_hidden,
                          critic_.w);
    }
  }
  std::copy_n(critic_.w, critics_.parameter_floats(), critic_.target);
  temperature_[0] = StartingLogAlpha();
  Loaded();
}

float SacStep::StartingLogAlpha() const {
  return static_cast<float>(std::log(options_.sac.alpha));
}

// A fixed alpha is what is set, whatever was saved. One of 0, which only a fixed one can have been, cannot be
// tuned.
void SacStep::Loaded() {
  if (!options_.sac.auto_alpha || std::isinf(temperature_[0])) temperature_[0] = StartingLogAlpha();
  const Mlp& actor = actor_.mlp();
  for (int task = 0; task < actor.pack_tasks(true); ++task) actor.Pack(task, policy_.w, policy_.packed);
  for (int task = 0; task < critics_.pack_tasks(true); ++task) critics_.Pack(task, critic_.w, critic_.packed);
  for (int task = 0; task < critics_.pack_tasks(false); ++task)
    critics_.Pack(task, critic_.target, critic_.target_packed);
}

void SacStep::SetLearningRates(const SacSection& sac) {
  policy_.learning_rate = sac.actor_learning_rate;
  critic_.learning_rate = sac.critic_learning_rate;
  temperature_adam_.lr = static_cast<float>(sac.alpha_learning_rate);
}

double SacStep::alpha() const {
  return std::exp(static_cast<double>(temperature_[0]));
}
void SacStep::LimitAlpha(double most) {
  const auto limit = static_cast<float>(std::log(most));
  if (!(temperature_[0] <= limit)) temperature_[0] = limit;  // what is no number as well
  for (float* moment : {temperature_ + 2, temperature_ + 3}) {
    if (!std::isfinite(*moment)) *moment = 0;
  }
}

double SacStep::MacsPerRow() const {
  const double actor = actor_.ForwardMacs(), critics = critics_.ForwardMacs();
  double first = 0, actions = 0;  // of the critics' first layers: all, and what leads to the actions
  for (size_t t = 0; t < critics_.towers(); ++t) {
    const double width = critics_.spec().hidden.empty() ? columns_ : critics_.spec().hidden[0];
    first += critic_inputs() * width;
    actions += action_dims_ * width;
  }
  const double critic_half = actor + critics + critics_.TrainMacs();
  // Of the critics' gradient by the actions, each row needs that of its least critic alone.
  const double through = only_least_ ? (critics - first + actions) / towers() : critics - first + actions;
  const double policy_half = critics + (action_dims_ > 0 ? through : 0) + actor_.TrainMacs();
  return critic_half + policy_half / std::max(1u, options_.sac.policy_delay);
}

size_t SacStep::activation_bytes() const {
  return policy_workspace_->bytes() + critic_workspace_->bytes();
}

std::vector<SacStep::Tensor> SacStep::State() {
  std::vector<Tensor> state;
  const auto add = [&state](const char* group, const ParameterTensor& t, float* buffer, bool warm) {
    state.push_back({group + t.name, t.rows, t.cols, buffer + t.offset, warm});
  };
  for (const ParameterTensor& t : actor_.tensors()) {
    add("weights/", t, policy_.w, true);
    add("adam_m/", t, policy_.m, false);
    add("adam_v/", t, policy_.v, false);
  }
  for (const ParameterTensor& t : critics_.tensors()) {
    add("weights/", t, critic_.w, true);
    add("target/", t, critic_.target, true);
    add("adam_m/", t, critic_.m, false);
    add("adam_v/", t, critic_.v, false);
  }
  state.push_back({"log_alpha", 1, 1, temperature_, true});
  state.push_back({"adam_m/log_alpha", 1, 1, temperature_ + 2, false});
  state.push_back({"adam_v/log_alpha", 1, 1, temperature_ + 3, false});
  return state;
}

Mlp::Rows SacStep::RowsOf(int block) const {
  const int each = (batch_->rows + blocks_ - 1) / blocks_;
  const int first = std::min(batch_->rows, block * each);
  return {first, std::min(each, batch_->rows - first)};
}

// The target's critics of this step: the first of an order drawn anew (Fisher and Yates).
void SacStep::DrawSubset() {
  std::iota(order_.begin(), order_.end(), 0);
  const auto n = static_cast<uint32_t>(order_.size());
  if (options_.sac.critic_subset >= n) return;
  for (uint32_t i = 0; i < options_.sac.critic_subset; ++i) {
    const Philox4 word = PhiloxAt(options_.run.seed, Purpose::kSacCritics, i, step_);
    const uint64_t left = n - i;
    std::swap(order_[i], order_[i + static_cast<uint32_t>(word.v[0] * left >> 32)]);
  }
}

// f(tower, block, worker), tower by tower.
template <class F>
void SacStep::EachTowersBlock(const F& f) {
  threads_.ParallelFor(towers() * blocks_, [&](int task, int worker) {
    f(static_cast<size_t>(task / blocks_), task % blocks_, *workers_[static_cast<size_t>(worker)]);
  });
}

// f(block). `small`: some microseconds a block, so that few of them are done before the threads would have
// met.
template <class F>
void SacStep::EachBlock(bool small, const F& f) {
  constexpr int kFew = 8;
  const bool alone = small && blocks_ <= kFew;
  for (int block = 0; alone && block < blocks_; ++block) f(block);
  if (!alone) threads_.ParallelFor(blocks_, [&](int block, int) { f(block); });
}

void SacStep::RunCriticRows(SideWork* side) {
  const auto own = [&](int worker) -> Worker& { return *workers_[static_cast<size_t>(worker)]; };
  threads_.ParallelFor(blocks_, [&](int block, int worker) { NextPolicy(block, own(worker)); });
  EachTowersBlock([&](size_t tower, int block, Worker& worker) { TargetValues(tower, block, worker); });
  EachBlock(action_dims_ > 0, [&](int block) { TargetOf(RowsOf(block)); });
  const int updates = towers() * blocks_, beside = side != nullptr ? side->tasks() : 0;
  // The gathers spread among the updates, so that each thread's share has some of both.
  const int64_t most = std::max(updates, beside);
  threads_.ParallelFor(static_cast<int>(most), [&](int task, int worker) {
    if (task < updates) CriticUpdate(static_cast<size_t>(task / blocks_), task % blocks_, own(worker));
    const auto end = static_cast<int>((task + 1) * beside / most);
    for (auto i = static_cast<int>(task * beside / most); i < end; ++i) side->Run(i, worker);
  });
  EachBlock(true, [&](int block) { RunSerial<CriticLoss>(CriticLossOf(block)); });
}

void SacStep::RunPolicyRows() {
  EachBlock(false, [&](int block) { PolicyForward(block); });
  EachTowersBlock([&](size_t tower, int block, Worker&) { PolicyValues(tower, block); });
  EachBlock(action_dims_ > 0, [&](int block) { PolicyLosses(block); });
  if (only_least_) {
    ListLeast();
    EachTowersBlock(
        [&](size_t tower, int block, Worker& worker) { LeastActionGradients(tower, block, worker); });
  } else if (action_dims_ > 0) {
    EachTowersBlock([&](size_t tower, int block, Worker&) { ActionGradients(tower, block); });
  }
  EachBlock(false, [&](int block) { PolicyBackward(block); });
}

SacStepResult SacStep::Run(uint64_t step, const ReplayBatch& batch, float* td_abs, SideWork* side) {
  MILL_CHECK(batch.rows > 0 && batch.rows <= max_batch_ && batch.ld >= critic_inputs());
  batch_ = &batch;
  td_abs_ = td_abs;
  step_ = step;
  blocks_ = (batch.rows + kSacBlockRows - 1) / kSacBlockRows;
  part_began_ = std::chrono::steady_clock::now();
  DrawSubset();
  RunCriticRows(side);
  EndPart(kCriticRows);
  SacCriticStats sums;
  for (int i = 0; i < blocks_; ++i) sums.Add(critic_stats_[static_cast<size_t>(i)]);
  const double rows = batch.rows;
  SacStepResult result;
  result.critic_loss = sums.loss / rows;
  result.q = sums.q / rows;
  result.target = sums.target / rows;
  result.q_abs_max = sums.q_abs_max;
  result.alpha = alpha();
  if (sums.nonfinite > 0) {
    result.bad = BadCriticHalf();
    return result;
  }
  result.critic_norm = Gradients(critics_, critic_, *critic_workspace_, batch.x, batch.ld);
  EndPart(kCriticWeights);
  if (critic_.adam.skip != 0) {
    result.bad = BadGradient("critics", critics_.tensors(), critic_.g);
    return result;
  }
  Descend(critics_, critic_,
          (step + 1) % options_.sac.target_interval == 0 ? static_cast<float>(options_.sac.tau) : 0.0f);
  EndPart(kCriticAdam);
  if ((step + 1) % options_.sac.policy_delay == 0) RunPolicyHalf(result);
  return result;
}

void SacStep::EndPart(Part part) {
  const auto now = std::chrono::steady_clock::now();
  seconds_[part] += std::chrono::duration<double>(now - part_began_).count();
  part_began_ = now;
}

void SacStep::RunPolicyHalf(SacStepResult& result) {
  RunPolicyRows();
  EndPart(kPolicyRows);
  SacPolicyStats sums;
  for (int i = 0; i < blocks_; ++i) sums.Add(policy_stats_[static_cast<size_t>(i)]);
  const double rows = batch_->rows;
  result.actor_loss = sums.loss / rows;
  result.log_prob = sums.log_prob / rows;
  if (sums.nonfinite > 0) {
    result.bad = BadPolicy();
    return;
  }
  result.actor_norm = Gradients(actor_.mlp(), policy_, *policy_workspace_, batch_->x, batch_->ld);
  EndPart(kPolicyWeights);
  if (policy_.adam.skip != 0) {
    result.bad = BadGradient("policy", actor_.tensors(), policy_.g);
    return;
  }
  Descend(actor_.mlp(), policy_, 0.0f);
  if (options_.sac.auto_alpha) StepTemperature();
  EndPart(kPolicyAdam);
  result.policy_stepped = true;
}

void SacStep::StepTemperature() {
  const SacSection& sac = options_.sac;
  RunSerial<TemperatureGradient>({.parts = blocks_,
                                  .stats = policy_stats_.data(),
                                  .count = static_cast<double>(batch_->rows),
                                  .target_entropy = target_entropy_,
                                  .gradient = temperature_ + 1});
  temperature_adam_.Set(sac.adam_beta1, sac.adam_beta2, sac.adam_eps, 0, *policy_.steps);
  RunSerial<Adam>({.w = temperature_,
                   .g = temperature_ + 1,
                   .m = temperature_ + 2,
                   .v = temperature_ + 3,
                   .n = 1,
                   .step = &temperature_adam_,
                   .zero_grad = false});
}

// The weights' gradients, after the rows of the last segment are done; then the clip, and whether the step is
// to be taken. Returns the norm.
double SacStep::Gradients(const Mlp& net, Flat& flat, Mlp::Workspace& w, const float* x, int ldx) {
  const int towers = static_cast<int>(net.towers());
  int done = 0;
  for (int segment = w.segments(); segment-- > 0;) {
    if (segment + 1 < w.segments()) {
      threads_.ParallelFor(blocks_ * towers, [&](int task, int) {
        net.BackwardRows(static_cast<size_t>(task / blocks_), segment, flat.w, flat.packed, x, ldx,
                         RowsOf(task % blocks_), w);
      });
    }
    threads_.ParallelFor(w.grad_tasks(segment), [&](int task, int) {
      squares_[static_cast<size_t>(done + task)] =
          net.GradWeights(task, segment, x, ldx, batch_->rows, w, flat.g);
    });
    done += w.grad_tasks(segment);
  }
  float norm = 0;
  RunSerial<ClipGlobalNorm>({.chunks = done,
                             .chunk_squares = squares_.data(),
                             .max_norm = static_cast<float>(options_.sac.max_grad_norm),
                             .step = &flat.adam,
                             .norm = &norm});
  return static_cast<double>(norm);
}

// tau 0: the target stays, or there is none.
void SacStep::Descend(const Mlp& net, Flat& flat, float tau) {
  const SacSection& sac = options_.sac;
  flat.adam.Set(sac.adam_beta1, sac.adam_beta2, sac.adam_eps, 0, ++*flat.steps);
  flat.adam.lr = static_cast<float>(flat.learning_rate);
  const Adam::Params adam{.w = flat.w,
                          .g = flat.g,
                          .m = flat.m,
                          .v = flat.v,
                          .n = static_cast<int>(net.parameter_floats()),
                          .step = &flat.adam,
                          .zero_grad = false,  // GradWeights writes all of them anew
                          .target = tau > 0 ? flat.target : nullptr,
                          .tau = tau};
  threads_.ParallelFor(Adam::Tiles(adam), [&](int chunk, int) { RunTile<Adam>(chunk, adam); });
  const int own = net.pack_tasks(true), target = tau > 0 ? net.pack_tasks(false) : 0;
  threads_.ParallelFor(own + target, [&](int task, int) {
    if (task < own) {
      net.Pack(task, flat.w, flat.packed);
    } else {
      net.Pack(task - own, flat.target, flat.target_packed);
    }
  });
}

}  // namespace millrace
