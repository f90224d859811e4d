#include "cli/bench_sac.h"

#include <cstring>
#include <memory>

#include "cli/bench_timing.h"
#include "common/resource_usage.h"
#include "kernels/core/cpu_kernel_set.h"
#include "kernels/ops/philox.h"
#include "learner/sac.h"

namespace millrace {
namespace {

using bench::Clock;
using bench::Since;

constexpr int kRows = 1000;  // transitions that one Update adds
constexpr uint64_t kCapacity = 1'000'000;
constexpr double kStepsPerUpdate = 100;

struct Work {
  const char *name, *summary;
  int obs, actions, batch;
  std::vector<uint32_t> hidden;
  uint32_t checkpoint = 0;  // sac.activation_checkpoint
};

const std::vector<Work>& Works() {
  static const std::vector<Work> works = {
      {"sac", "SAC, 17 obs, 6 acts, 2x256 ReLU, batch 256, gradient steps", 17, 6, 256, {256, 256}},
      {"sac-deep", "the same with 3x256", 17, 6, 256, {256, 256, 256}},
      {"sac-tall", "the same with 8x256", 17, 6, 256, std::vector<uint32_t>(8, 256)},
      {"sac-tall-checkpoint", "that with sac.activation_checkpoint=3: less memory, more time", 17, 6, 256,
       std::vector<uint32_t>(8, 256), 3},
      {"sac-light", "SAC, 3 obs, 1 act, 2x64 ReLU, batch 100, gradient steps", 3, 1, 100, {64, 64}},
  };
  return works;
}

EnvSpec SpecOf(const Work& work) {
  EnvSpec spec;
  spec.id = "Made up";
  spec.observations = {ArraySpec{"state", DType::kF32, {work.obs}}};
  spec.action.kind = ActionSpec::Kind::kBox;
  spec.action.low.assign(static_cast<size_t>(work.actions), -1);
  spec.action.high.assign(static_cast<size_t>(work.actions), 1);
  return spec;
}

RunOptions OptionsOf(const Work& work) {
  RunOptions options;
  options.algorithm = "sac";
  options.env.rows = kRows;
  options.policy.hidden = work.hidden;
  options.policy.activation = Activation::kRelu;
  options.sac.batch_size = static_cast<uint32_t>(work.batch);
  options.sac.activation_checkpoint = work.checkpoint;
  options.sac.updates_per_step = kStepsPerUpdate / kRows;
  options.replay.capacity = kCapacity;
  options.replay.min_size = kCapacity * 9 / 10;
  return options;
}

// A segment of one step whose rows end where they began, so that it follows itself.
class Segment {
 public:
  explicit Segment(const EnvSpec& spec) : layout_(spec, 1, kRows, kRows), memory_(layout_.bytes() / 8 + 1) {
    const SegmentView view = View();
    const int obs = kRows * spec.observation_elements(), actions = kRows * spec.action.width();
    uint64_t counter = 0;
    const auto uniform = [&] { return UniformFloat(PhiloxAt(1, Purpose::kTest, 0, counter++).v[0]) * 2 - 1; };
    for (int i = 0; i < obs; ++i) reinterpret_cast<float*>(view.obs(0, 0))[i] = uniform();
    std::memcpy(view.obs(0, 1), view.obs(0, 0), sizeof(float) * static_cast<size_t>(obs));
    for (int i = 0; i < actions; ++i) static_cast<float*>(view.action())[i] = uniform();
    for (int i = 0; i < kRows; ++i) view.reward()[i] = uniform();
    std::memset(view.valid(), 1, kRows);
  }
  SegmentView View() { return SegmentView(&layout_, reinterpret_cast<std::byte*>(memory_.data())); }

 private:
  SegmentLayout layout_;
  std::vector<uint64_t> memory_;
};

StatusOr<BenchResult> RunWork(const Work& work, const BenchOptions& bench, ThreadPool& threads,
                              double (*peak)(ThreadPool&)) {
  const EnvSpec spec = SpecOf(work);
  MILL_ASSIGN_OR_RETURN(const auto learner, SacLearner::Make(OptionsOf(work), spec, {kRows}, threads));
  Segment segment(spec);
  const std::vector<SegmentView> segments = {segment.View()};
  while (learner->optimizer_steps() == 0) MILL_RETURN_IF_ERROR(learner->Update(segments, 0).status());
  std::vector<double> rates, peaks, gathers;
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < 4 || Since(begin) < bench.seconds; ++i) {
    if (i > 0) peaks.push_back(peak(threads));
    const uint64_t before = learner->optimizer_steps();
    const double gathered = learner->gather_seconds();
    const Clock::time_point start = Clock::now();
    MILL_RETURN_IF_ERROR(learner->Update(segments, 0).status());
    const double seconds = Since(start), steps = static_cast<double>(learner->optimizer_steps() - before);
    if (i == 0) continue;
    rates.push_back(steps / seconds);
    gathers.push_back((learner->gather_seconds() - gathered) / seconds);
  }
  const double all_steps = static_cast<double>(learner->optimizer_steps());
  BenchResult result{work.name, "updates/s", CpuKernelSet(), 0, 0, 0, 0, 0, {}};
  bench::Summarize(rates, result);
  const double flops = 2 * learner->step().MacsPerRow() * work.batch;
  const double gflops = bench::Median(peaks);
  result.floor = gflops * 1e9 / flops;
  result.fraction = result.rate / result.floor;
  result.details = {{"flops_per_update", flops},
                    {"fma_peak_gflops", gflops},
                    {"milliseconds_per_update", 1e3 / result.rate},
                    {"gather_share", bench::Median(gathers)},
                    {"activation_bytes", static_cast<double>(learner->step().activation_bytes())},
                    {"replay_bytes", static_cast<double>(learner->replay().bytes())},
                    {"threads", static_cast<double>(threads.threads())},
                    {"repetitions", static_cast<double>(rates.size())},
                    {"peak_resident_bytes", static_cast<double>(ReadResourceUsage().peak_resident_bytes)}};
  // Rows: forward, losses and backward; the critics' have the targets too. Adam: with target and packing.
  const char* const parts[] = {"ms_critic_rows", "ms_critic_weights", "ms_critic_adam",
                               "ms_policy_rows", "ms_policy_weights", "ms_policy_adam"};
  for (size_t i = 0; i < SacStep::kParts; ++i)
    result.details.emplace_back(parts[i], 1e3 * learner->step().seconds()[i] / all_steps);
  return result;
}

}  // namespace

std::vector<BenchWork> SacWorks() {
  std::vector<BenchWork> works;
  for (const Work& work : Works()) works.push_back({work.name, work.summary});
  return works;
}

bool IsSacWork(const std::string& work) {
  for (const Work& known : Works()) {
    if (work == known.name) return true;
  }
  return false;
}

StatusOr<BenchResult> RunSac(const std::string& work, const BenchOptions& options, ThreadPool& threads,
                             double (*peak)(ThreadPool&)) {
  for (const Work& known : Works()) {
    if (work == known.name) return RunWork(known, options, threads, peak);
  }
  return absl::InternalError("a work of SAC is listed but has no body");
}

}  // namespace millrace
