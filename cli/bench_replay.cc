#include "cli/bench_replay.h"

#include <cstring>
#include <memory>

#include "cli/bench_timing.h"
#include "kernels/core/cpu_kernel_set.h"
#include "kernels/ops/philox.h"
#include "learner/replay/batch_memory.h"
#include "learner/replay/replay.h"

namespace millrace {
namespace {

using bench::Clock;
using bench::Since;

constexpr int kObs = 17, kActions = 6, kBatch = 256, kBlock = 1000;
constexpr uint64_t kCapacity = 1'000'000;
constexpr int kLd = kObs + kActions;

EnvSpec CheetahSpec() {
  EnvSpec spec;
  spec.id = "Replay";
  spec.observations = {ArraySpec{"state", DType::kF32, {kObs}}};
  spec.action.kind = ActionSpec::Kind::kBox;
  spec.action.low.assign(kActions, -1);
  spec.action.high.assign(kActions, 1);
  return spec;
}

// Segments of kBlock transitions that follow each other, two in turn: the first observations of one are the
// last of the other.
class Stream {
 public:
  Stream(const EnvSpec& spec, int rows)
      : layout_(spec, kBlock / rows, rows, rows),
        memory_{std::vector<uint64_t>(layout_.bytes() / 8 + 1),
                std::vector<uint64_t>(layout_.bytes() / 8 + 1)} {
    for (int i = 0; i < 2; ++i) Fill(i);
    const size_t bytes = static_cast<size_t>(rows) * kObs * sizeof(float);
    std::memcpy(View(1).obs(0, 0), View(0).obs(0, layout_.steps()), bytes);
    std::memcpy(View(0).obs(0, 0), View(1).obs(0, layout_.steps()), bytes);
  }
  SegmentView Next() { return View(turn_ ^= 1); }

 private:
  SegmentView View(int i) {
    return SegmentView(&layout_, reinterpret_cast<std::byte*>(memory_[static_cast<size_t>(i)].data()));
  }
  void Fill(int i) {
    const SegmentView view = View(i);
    uint64_t counter = static_cast<uint64_t>(i) << 32;
    const auto uniform = [&] { return UniformFloat(PhiloxAt(1, Purpose::kTest, 0, counter++).v[0]) * 2 - 1; };
    const int observed = (layout_.steps() + 1) * layout_.rows() * kObs;
    for (int k = 0; k < observed; ++k) reinterpret_cast<float*>(view.obs(0, 0))[k] = uniform();
    for (int k = 0; k < kBlock * kActions; ++k) static_cast<float*>(view.action())[k] = uniform();
    for (int k = 0; k < kBlock; ++k) view.reward()[k] = uniform();
    std::memset(view.valid(), 1, kBlock);
  }

  SegmentLayout layout_;
  std::vector<uint64_t> memory_[2];
  int turn_ = 1;
};

// Bytes a second that one thread can copy, reads and writes counted, from buffers past the caches.
double CopyBandwidth() {
  constexpr size_t kBytes = 64u << 20;
  std::vector<char> from(kBytes, 1), to(kBytes, 2);
  const Clock::time_point begin = Clock::now();
  std::memcpy(to.data(), from.data(), kBytes);
  return 2.0 * static_cast<double>(kBytes) / Since(begin);
}

struct Work {
  const char *name, *summary;
  bool prioritized;
  int rows;
  double bytes;  // that one transition moves at the least
};

// A transition is read as its slot and the next one's observation, and written as x, next_x, reward,
// discount, weight and index. A priority is read for the draw, and written.
constexpr double kSlot = (kLd + 1) * 4 + 1, kGather = kSlot + kObs * 4 + (kLd + kObs + 4) * 4;
const std::vector<Work>& Works() {
  static const std::vector<Work> works = {
      {"replay:add", "transitions added, segments of 1 step of 1000 rows, 17 obs, 6 acts, capacity 1e6",
       false, kBlock, kLd * 4 + 4 + 3 + kSlot},
      {"replay:gather", "transitions of uniform batches of 256 from a full replay of 1e6 of 8 rows", false, 8,
       kGather},
      {"replay:prioritized", "the same, prioritised, each batch's priorities updated", true, 8, kGather + 8},
  };
  return works;
}

// One repetition of some 10 ms; the number of transitions.
StatusOr<double> Repeat(const Work& work, Replay& replay, Stream& stream, ReplayBatchMemory& batch,
                        uint64_t& draw) {
  const bool add = std::strcmp(work.name, "replay:add") == 0;
  constexpr int kTimes = 200;
  for (int i = 0; i < kTimes; ++i) {
    if (add) {
      MILL_RETURN_IF_ERROR(replay.Add(stream.Next(), 0));
      continue;
    }
    replay.Sample(draw++, 0.4f, batch.view);
    // Rewards are as good as errors: numbers of all sizes.
    if (!work.prioritized) continue;
    for (float& r : batch.reward) r = r < 0 ? -r : r;
    MILL_RETURN_IF_ERROR(replay.UpdatePriorities(batch.index.data(), batch.reward.data(), kBatch));
  }
  return static_cast<double>(kTimes) * (add ? kBlock : kBatch);
}

StatusOr<BenchResult> RunWork(const Work& work, const BenchOptions& bench) {
  const EnvSpec spec = CheetahSpec();
  const ObsEncoder encoder(spec, false, 0);
  ReplayOptions options;
  options.capacity = kCapacity;
  options.rows = work.rows;
  options.batch_size = kBatch;
  options.prioritized = work.prioritized;
  MILL_ASSIGN_OR_RETURN(const auto replay, Replay::Make(options, spec, encoder));
  Stream stream(spec, work.rows);
  while (replay->added() < kCapacity + kCapacity / 8) MILL_RETURN_IF_ERROR(replay->Add(stream.Next(), 0));
  ReplayBatchMemory batch(kBatch, kLd);
  uint64_t draw = 0;
  std::vector<double> rates, bandwidths;
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < 4 || Since(begin) < bench.seconds; ++i) {
    const Clock::time_point start = Clock::now();
    MILL_ASSIGN_OR_RETURN(const double transitions, Repeat(work, *replay, stream, batch, draw));
    if (i > 0) rates.push_back(transitions / Since(start));
  }
  for (int i = 0; i < 5; ++i) bandwidths.push_back(CopyBandwidth());
  BenchResult result{work.name, "transitions/s", CpuKernelSet(), 0, 0, 0, 0, 0, {}};
  bench::Summarize(rates, result);
  const double bandwidth = bench::Median(bandwidths);
  result.floor = bandwidth / work.bytes;
  result.fraction = result.rate / result.floor;
  result.details = {{"bytes_per_transition", work.bytes},
                    {"copy_gb_per_second", bandwidth / 1e9},
                    {"stored_bytes_per_transition", static_cast<double>(replay->bytes()) / kCapacity},
                    {"threads", 1},
                    {"repetitions", static_cast<double>(rates.size())}};
  return result;
}

}  // namespace

std::vector<BenchWork> ReplayWorks() {
  std::vector<BenchWork> works;
  for (const Work& work : Works()) works.push_back({work.name, work.summary});
  return works;
}

StatusOr<BenchResult> RunReplay(const std::string& work, const BenchOptions& options) {
  for (const Work& known : Works()) {
    if (work == known.name) return RunWork(known, options);
  }
  return absl::InternalError("a work of the replay is listed but has no body");
}

}  // namespace millrace
