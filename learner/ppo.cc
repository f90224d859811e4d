#include "learner/ppo.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/core/launch.h"
#include "kernels/ops/grad_reduce.h"
#include "kernels/ops/moments.h"
#include "kernels/ops/philox.h"
#include "kernels/ops/schedule.h"
#include "kernels/ops/shuffle.h"
#include "learner/ppo_worker.h"

namespace millrace {
namespace {
constexpr int kMaxShards = 32;
constexpr const char* kRewardTensor = "statistics/reward";

// What is summed over minibatches.
std::array<double*, 7> Means(LearnerReport& report) {
  return {&report.policy_loss, &report.value_loss,    &report.entropy,  &report.approx_kl_k1,
          &report.approx_kl,   &report.clip_fraction, &report.grad_norm};
}

int ShardsOf(int samples) {
  return std::clamp((samples + kPpoBlockRows - 1) / kPpoBlockRows, 1, kMaxShards);
}
}  // namespace

PpoLearner::PpoLearner(const RunOptions& options, const EnvSpec& spec, const std::vector<int>& group_rows,
                       ThreadPool& threads)
    : options_(options),
      spec_(spec),
      threads_(threads),
      net_(NetSpecFor(spec, options.policy)),
      encoder_(spec, options.env.normalize_obs, static_cast<float>(options.env.clip_obs)),
      assembler_(
          spec, encoder_,
          static_cast<int>(options.ppo.horizon) * *std::max_element(group_rows.begin(), group_rows.end())),
      obs_statistics_(options.env.normalize_obs, spec.observation_elements(), group_rows.size(),
                      threads.threads()),
      reward_scaler_(options.env, options.ppo.gamma, group_rows),
      groups_(group_rows.size()) {
  stride_ = static_cast<int>(options.ppo.horizon) * *std::max_element(group_rows.begin(), group_rows.end());
}

PpoLearner::~PpoLearner() = default;

StatusOr<std::unique_ptr<PpoLearner>> PpoLearner::Make(const RunOptions& options, const EnvSpec& spec,
                                                       const std::vector<int>& group_rows,
                                                       ThreadPool& threads, uint64_t available) {
  auto learner = std::unique_ptr<PpoLearner>(new PpoLearner(options, spec, group_rows, threads));
  MILL_RETURN_IF_ERROR(learner->Allocate(available));
  learner->net_.Initialize(options.run.seed, options.policy, learner->parameters_);
  learner->net_.PackAll(learner->parameters_, learner->packed_, true);
  return learner;
}

Status PpoLearner::Allocate(uint64_t available) {
  const size_t n = net_.parameter_floats();
  if (n > static_cast<size_t>(INT32_MAX)) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy.hidden: a network of ", n, " parameters; at most 2147483647 are supported"));
  }
  const size_t capacity = groups_ * static_cast<size_t>(stride_);
  const auto parameters = arena_.Add("parameters", n), gradients = arena_.Add("gradients", n);
  const auto m = arena_.Add("adam/m", n), v = arena_.Add("adam/v", n);
  const auto packed = arena_.Add("packed", net_.packed_floats());
  const auto shards = arena_.Add(
      "shard_gradients", n * static_cast<size_t>(ShardsOf(static_cast<int>(options_.ppo.minibatch_size))));
  const auto advantage = arena_.Add("advantage", capacity), ret = arena_.Add("return", capacity);
  const auto next_value = arena_.Add("next_value", capacity), reward = arena_.Add("reward", capacity);
  const size_t corrected = vtrace() ? capacity : 0;
  const auto error = arena_.Add("error", corrected), value = arena_.Add("value", corrected);
  const auto log_rho = arena_.Add("log_rho", corrected), log_prob = arena_.Add("log_prob", corrected);
  constexpr const char* kRemedy = "a smaller policy.hidden, env.rows or ppo.horizon needs less";
  const uint64_t workers = static_cast<uint64_t>(threads_.threads()) * Worker::Bytes(net_, spec_);
  MILL_RETURN_IF_ERROR(CheckMemory("networks, optimizer and the columns of a batch take",
                                   arena_.bytes() + workers + 2 * capacity * sizeof(int32_t), available,
                                   kRemedy));
  if (const Status status = arena_.Commit(); !status.ok()) {
    return absl::ResourceExhaustedError(absl::StrCat(status.message(), "; ", kRemedy));
  }
  parameters_ = arena_.At(parameters);
  gradients_ = arena_.At(gradients);
  adam_m_ = arena_.At(m);
  adam_v_ = arena_.At(v);
  packed_ = arena_.At(packed);
  shard_gradients_ = arena_.At(shards);
  advantage_ = arena_.At(advantage);
  ret_ = arena_.At(ret);
  next_value_ = arena_.At(next_value);
  reward_ = arena_.At(reward);
  error_ = vtrace() ? arena_.At(error) : advantage_;
  value_ = vtrace() ? arena_.At(value) : nullptr;
  log_rho_ = vtrace() ? arena_.At(log_rho) : nullptr;
  log_prob_ = vtrace() ? arena_.At(log_prob) : nullptr;
  samples_.reserve(capacity);
  order_.reserve(capacity);
  advantage_scale_.resize(capacity / std::max<size_t>(1, options_.ppo.minibatch_size) + 2);
  clipped_.resize(groups_);
  shard_stats_.resize(kMaxShards);
  chunk_squares_.resize(static_cast<size_t>(GradReduce::Chunks(static_cast<int>(n))));
  for (int i = 0; i < threads_.threads(); ++i) workers_.push_back(std::make_unique<Worker>(net_, spec_));
  return absl::OkStatus();
}

PolicyView PpoLearner::policy() const {
  return PolicyView{&net_, &encoder_, parameters_, packed_, updates_};
}

void PpoLearner::ListSamples() {
  samples_.clear();
  for (size_t g = 0; g < segments_.size(); ++g) {
    const int count = segments_[g].layout().samples();
    const uint8_t* valid = segments_[g].valid();
    for (int i = 0; i < count; ++i) {
      if (valid[i] != 0) samples_.push_back(static_cast<int32_t>(g) * stride_ + i);
    }
  }
  order_.resize(samples_.size());
}

// 1 - Var(return - value) / Var(return).
void PpoLearner::ExplainedVariance(LearnerReport& report) const {
  MomentsResult error, ret;
  const int n = static_cast<int>(samples_.size());
  RunSerial<Moments>({.n = n, .x = error_, .index = samples_.data(), .out = &error});
  RunSerial<Moments>({.n = n, .x = ret_, .index = samples_.data(), .out = &ret});
  report.explained_variance = ret.variance > 0 ? 1 - error.variance / ret.variance : 0;
}

int PpoLearner::Minibatches() const {
  const size_t size = options_.ppo.minibatch_size;
  return static_cast<int>((samples_.size() + size - 1) / size);
}

// The order of an epoch is a keyed permutation, so each thread can write its part; then each minibatch's
// advantages get their normalisation.
void PpoLearner::BeginEpoch(uint32_t epoch) {
  const auto n = static_cast<uint32_t>(samples_.size());
  const Permutation permutation =
      MakePermutation(n, PhiloxAt(options_.run.seed, Purpose::kShuffle, epoch, updates_));
  constexpr uint32_t kPiece = 4096;
  threads_.ParallelFor(static_cast<int>((n + kPiece - 1) / kPiece), [&](int piece, int) {
    const uint32_t begin = static_cast<uint32_t>(piece) * kPiece, end = std::min(n, begin + kPiece);
    RunSerial<FillPermutation>({.permutation = permutation,
                                .first = begin,
                                .count = static_cast<int>(end - begin),
                                .out = order_.data() + begin});
    for (uint32_t i = begin; i < end; ++i) order_[i] = samples_[static_cast<size_t>(order_[i])];
  });
  if (options_.ppo.advantage_norm == AdvantageNorm::kOff) {
    std::fill(advantage_scale_.begin(), advantage_scale_.end(), ShiftScale{});
    return;
  }
  const bool whole = options_.ppo.advantage_norm == AdvantageNorm::kBatch;
  if (whole && epoch > 0) return;
  const int size = static_cast<int>(options_.ppo.minibatch_size), total = static_cast<int>(n);
  threads_.ParallelFor(whole ? 1 : Minibatches(), [&](int b, int) {
    const int first = whole ? 0 : b * size;
    const int count = whole ? total : std::min(size, total - first);
    MomentsResult moments;
    RunSerial<Moments>({.n = count, .x = advantage_, .index = order_.data() + first, .out = &moments});
    advantage_scale_[static_cast<size_t>(b)] = AdvantageScale(moments.mean, moments.variance, moments.count);
  });
  if (whole) std::fill(advantage_scale_.begin(), advantage_scale_.end(), advantage_scale_[0]);
}

StatusOr<LearnerReport> PpoLearner::Update(std::span<const SegmentView> segments, double progress,
                                           std::span<const uint32_t> groups) {
  MILL_CHECK(segments.size() <= groups_ && (groups.empty() || groups.size() == segments.size()));
  segments_ = segments;
  LearnerReport report;
  report.learning_rate = Scheduled(options_.ppo.lr_schedule, options_.ppo.learning_rate, progress);
  report.clip_range = Scheduled(options_.ppo.clip_schedule, options_.ppo.clip_range, progress);
  for (double* mean : Means(report)) *mean = 0;
  reward_scaler_.Observe(segments, groups, threads_);
  threads_.ParallelFor(static_cast<int>(segments.size()), [&](int index, int worker) {
    PrepareSegment(static_cast<size_t>(index), *workers_[static_cast<size_t>(worker)]);
  });
  ListSamples();
  ExplainedVariance(report);
  ReportAge(report);
  bool stop = samples_.empty();
  stop_ = 0;
  for (uint32_t epoch = 0; epoch < options_.ppo.epochs && !stop; ++epoch) {
    BeginEpoch(epoch);
    for (int b = 0; b < Minibatches() && !stop; ++b) MILL_RETURN_IF_ERROR(RunMinibatch(b, report, stop));
  }
  const double n = std::max(1, report.minibatches - report.skipped);
  for (double* mean : Means(report)) *mean /= n;
  ++updates_;
  // After training, so that the update saw the statistics that the rollout acted by.
  if (encoder_.normalizes()) {
    obs_statistics_.Observe(segments, encoder_, threads_);
    encoder_.SetStatistics(obs_statistics_.mean(), obs_statistics_.variance());
  }
  return report;
}

Status PpoLearner::RunMinibatch(int minibatch, LearnerReport& report, bool& stop) {
  const int size = static_cast<int>(options_.ppo.minibatch_size), total = static_cast<int>(samples_.size());
  const int first = minibatch * size, count = std::min(size, total - first);
  const ShiftScale scale = advantage_scale_[static_cast<size_t>(minibatch)];
  coefs_ = PpoCoefs{.clip_range = static_cast<float>(report.clip_range),
                    .value_clip = static_cast<float>(options_.ppo.value_clip),
                    .entropy_coef = static_cast<float>(options_.ppo.entropy_coef),
                    .value_coef = static_cast<float>(options_.ppo.value_coef),
                    .inv_count = 1.0f / static_cast<float>(count),
                    .adv_shift = scale.shift,
                    .adv_scale = scale.scale};
  const int shards = ShardsOf(count), rows = (count + shards - 1) / shards;
  threads_.ParallelFor(shards, [&](int shard, int worker) {
    const int begin = std::min(count, shard * rows), end = std::min(count, begin + rows);
    TrainShard(shard, first + begin, end - begin, *workers_[static_cast<size_t>(worker)]);
  });
  PpoStats sums{};
  for (int shard = 0; shard < shards; ++shard) sums.Add(shard_stats_[static_cast<size_t>(shard)]);
  const double norm = ReduceGradients(shards, sums.kl_k3, 1.5 * options_.ppo.target_kl * count);
  ++report.minibatches;
  if (sums.nonfinite > 0 || !std::isfinite(norm)) {
    if (options_.run.on_nonfinite == OnNonfinite::kSkip) {
      ++report.skipped;
      return absl::OkStatus();
    }
    return absl::DataLossError(absl::StrCat(
        "update ", updates_ + 1, ", minibatch ", report.minibatches, ": ",
        sums.nonfinite > 0 ? "a loss is not finite (op ppo_loss)"
                           : "the gradient's norm is not finite (op grad_reduce)",
        options_.ppo.max_grad_norm > 0 ? "; a smaller ppo.learning_rate or ppo.max_grad_norm may help, "
                                       : "; ppo.max_grad_norm is off (0.5 is usual), a smaller "
                                         "ppo.learning_rate may help too, ",
        "run.on_nonfinite=skip drops such updates"));
  }
  report.policy_loss += sums.policy_loss / count;
  report.value_loss += sums.value_loss / count;
  report.entropy += sums.entropy / count;
  report.approx_kl_k1 += sums.kl_k1 / count;
  report.approx_kl += sums.kl_k3 / count;
  report.clip_fraction += sums.clip_fraction / count;
  report.grad_norm += norm;
  stop = stop_ != 0;  // the minibatch that shows that the policy has moved too far is not stepped on
  if (stop) return absl::OkStatus();
  adam_step_.lr = static_cast<float>(report.learning_rate);
  Step();
  return absl::OkStatus();
}

void PpoLearner::TrainShard(int shard, int first, int count, Worker& worker) {
  float* gradients = shard_gradients_ + static_cast<size_t>(shard) * net_.parameter_floats();
  PpoStats& stats = shard_stats_[static_cast<size_t>(shard)];
  stats = PpoStats{};
  for (int begin = 0; begin < count; begin += kPpoBlockRows) {
    const int rows = std::min(kPpoBlockRows, count - begin);
    assembler_.Gather(segments_, order_.data() + first + begin, rows,
                      {.advantage = advantage_, .ret = ret_, .value = value_, .log_prob = log_prob_},
                      worker.block);
    LossAndGradients(rows, worker, stats, gradients);
  }
}

void PpoLearner::LossAndGradients(int rows, Worker& worker, PpoStats& stats, float* gradients) {
  ActorCritic::Workspace& w = worker.workspace;
  const SampleBlock& block = worker.block;
  const float* x = block.x.data();
  net_.Forward(parameters_, packed_, x, encoder_.width(), rows, w);
  RunSerial<PpoLoss>({.rows = rows,
                      .logits = w.logits,
                      .ld = w.logits_ld,
                      .mask = block.mask.empty() ? nullptr : block.mask.data(),
                      .heads = spec_.action.width(),
                      .nvec = spec_.action.nvec.data(),
                      .log_std = net_.log_std(parameters_),
                      .action = block.action.data(),
                      .old_log_prob = block.log_prob.data(),
                      .advantage = block.advantage.data(),
                      .old_value = block.value.data(),
                      .ret = block.ret.data(),
                      .value = w.value,
                      .value_ld = w.value_ld,
                      .coefs = &coefs_,
                      .dlogits = w.dlogits,
                      .dvalue = w.dvalue,
                      .dlog_std = net_.log_std(gradients),
                      .stats = &stats});
  net_.Backward(packed_, x, encoder_.width(), rows, w, gradients);
}

// Adds the shards' gradients in order, and decides on the step: its clip, and whether it is to be taken.
// Returns the norm of the sum.
double PpoLearner::ReduceGradients(int shards, double kl_sum, double kl_limit) {
  const GradReduce::Params reduce{.n = static_cast<int>(net_.parameter_floats()),
                                  .shards = shards,
                                  .shard_gradients = shard_gradients_,
                                  .shard_stride = net_.parameter_floats(),
                                  .gradients = gradients_,
                                  .chunk_squares = chunk_squares_.data()};
  threads_.ParallelFor(GradReduce::Tiles(reduce),
                       [&](int chunk, int) { RunTile<GradReduce>(chunk, reduce); });
  float norm = 0;
  RunSerial<ClipGlobalNorm>({.chunks = GradReduce::Tiles(reduce),
                             .chunk_squares = chunk_squares_.data(),
                             .max_norm = static_cast<float>(options_.ppo.max_grad_norm),
                             .step = &adam_step_,
                             .norm = &norm,
                             .kl = options_.ppo.target_kl > 0 ? &kl_sum : nullptr,
                             .kl_limit = kl_limit,
                             .stop = &stop_});
  return static_cast<double>(norm);
}

void PpoLearner::Step() {
  const PpoSection& ppo = options_.ppo;
  ++optimizer_steps_;
  adam_step_.Set(ppo.adam_beta1, ppo.adam_beta2, ppo.adam_eps, ppo.weight_decay,
                 static_cast<int64_t>(optimizer_steps_));
  const Adam::Params adam{.w = parameters_,
                          .g = gradients_,
                          .m = adam_m_,
                          .v = adam_v_,
                          .n = static_cast<int>(net_.parameter_floats()),
                          .step = &adam_step_,
                          .zero_grad = false};  // GradReduce writes all of them anew
  threads_.ParallelFor(Adam::Tiles(adam), [&](int chunk, int) { RunTile<Adam>(chunk, adam); });
  threads_.ParallelFor(net_.pack_tasks(true), [&](int task, int) { net_.Pack(task, parameters_, packed_); });
}

void PpoLearner::SkipUpdate(std::span<const SegmentView> segments, std::span<const uint32_t> groups) {
  reward_scaler_.Observe(segments, groups, threads_);
  ++updates_;
}

Status PpoLearner::Apply(const RunOptions& changed) {
  PpoSection ppo = options_.ppo;
  ppo.learning_rate = changed.ppo.learning_rate;
  ppo.entropy_coef = changed.ppo.entropy_coef;
  ppo.clip_range = changed.ppo.clip_range;
  ppo.target_kl = changed.ppo.target_kl;
  ppo.max_grad_norm = changed.ppo.max_grad_norm;
  if (ppo != changed.ppo) {
    return absl::InvalidArgumentError(
        "ppo: while a run goes on, only learning_rate, entropy_coef, clip_range, target_kl and max_grad_norm "
        "can be changed; stop the run and resume it with the others");
  }
  options_.ppo = ppo;
  return absl::OkStatus();
}

std::vector<StateTensor> PpoLearner::State() {
  std::vector<StateTensor> state;
  for (const ParameterTensor& tensor : net_.tensors()) {
    const auto rows = static_cast<uint64_t>(tensor.rows), cols = static_cast<uint64_t>(tensor.cols);
    const std::vector<uint64_t> shape =
        rows == 1 ? std::vector<uint64_t>{cols} : std::vector<uint64_t>{rows, cols};
    const auto add = [&](const char* group, float* buffer, bool warm) {
      state.push_back(
          {.name = group + tensor.name, .shape = shape, .f32 = buffer + tensor.offset, .warm = warm});
    };
    add("weights/", parameters_, true);
    add("adam_m/", adam_m_, false);
    add("adam_v/", adam_v_, false);
  }
  const auto add = [&state](const char* name, std::span<double> values, bool warm) {
    state.push_back({.name = name, .shape = {values.size()}, .f64 = values.data(), .warm = warm});
  };
  if (encoder_.normalizes()) add("statistics/observation", obs_statistics_.State(), true);
  if (options_.env.scale_reward) add(kRewardTensor, reward_scaler_.State(), false);
  return state;
}

Status PpoLearner::ResizeState(std::string_view name, uint64_t first) {
  if (options_.mode == RunMode::kAsync && name == kRewardTensor) reward_scaler_.Resize(first);
  return absl::OkStatus();
}

Status PpoLearner::Loaded(uint64_t updates, uint64_t optimizer_steps) {
  updates_ = updates;
  optimizer_steps_ = optimizer_steps;
  if (encoder_.normalizes()) encoder_.SetStatistics(obs_statistics_.mean(), obs_statistics_.variance());
  net_.PackAll(parameters_, packed_, true);
  return absl::OkStatus();
}

}  // namespace millrace
