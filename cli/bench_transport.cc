#include "cli/bench_transport.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "cli/bench_timing.h"
#include "cli/bench_wire.h"
#include "common/rpc/raw_stream_grpc.h"
#include "kernels/core/cpu_kernel_set.h"

extern char** environ;

namespace millrace {
namespace {

using bench::Clock;
using bench::Median;
using bench::Since;
using bench::Summarize;

struct Size {
  const char* name;
  WireShape shape;
};
// 64 KiB, 256 KiB and 1 MiB of observations; and what Reverb's writer was measured with.
constexpr Size kSizes[] = {
    {"64k", {16, 8, 124}}, {"256k", {64, 8, 124}}, {"1m", {64, 32, 124}}, {"item", {64, 1, 124}}};

// Nothing is slept on: the thread waits on a condition that only time ends.
void WaitSeconds(double seconds) {
  Mutex mutex;
  CondVar never;
  const auto until =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  MutexLock lock(mutex);
  while (Clock::now() < until) never.WaitFor(mutex, until - Clock::now());
}

// Bytes a second of copies of one segment after the other, from memory past the caches, by one thread.
double CopyRate(size_t segment, double seconds) {
  const size_t count = std::max<size_t>(2, (size_t{256} << 20) / segment);
  std::vector<char> from(count * segment, 'x'), to(count * segment, 'y');
  uint64_t bytes = 0;
  const auto began = Clock::now();
  for (size_t i = 0; Since(began) < seconds; i = (i + 1) % count) {
    std::memcpy(to.data() + i * segment, from.data() + i * segment, segment);
    bytes += segment;
  }
  return static_cast<double>(bytes) / Since(began);
}

StatusOr<double> AcknowledgedRate(BenchActor& actor, double seconds) {
  WaitSeconds(0.2);
  const uint64_t before = actor.acknowledged_bytes();
  const auto began = Clock::now();
  WaitSeconds(seconds);
  const double rate = static_cast<double>(actor.acknowledged_bytes() - before) / Since(began);
  MILL_RETURN_IF_ERROR(actor.status());
  return rate;
}

// The work and its anchor by turns, so that both see the same machine.
StatusOr<BenchResult> RunSegments(const Size& size, TransportKind kind, const BenchOptions& options) {
  constexpr int kRounds = 5;
  const double seconds = std::max(0.1, options.seconds / (2 * kRounds));
  std::vector<double> rates, anchors;
  size_t segment = 0;
  for (int round = 0; round < kRounds; ++round) {
    MILL_ASSIGN_OR_RETURN(const auto learner, BenchLearner::Start(size.shape));
    segment = learner->segment_bytes();
    learner->Consume();
    MILL_ASSIGN_OR_RETURN(const auto actor, BenchActor::Connect(*learner, kind, "bench"));
    MILL_ASSIGN_OR_RETURN(const double rate, AcknowledgedRate(*actor, seconds));
    rates.push_back(rate);
    if (kind == TransportKind::kGrpc) {
      MILL_ASSIGN_OR_RETURN(const double raw, RawGrpcRate(segment, seconds));
      anchors.push_back(raw);
    } else {
      anchors.push_back(CopyRate(segment, seconds));
    }
  }
  BenchResult result;
  result.unit = "bytes/s";
  Summarize(rates, result);
  result.floor = Median(anchors);
  result.fraction = result.rate / result.floor;
  const double steps = size.shape.steps * size.shape.rows;
  result.details = {{"segment_bytes", static_cast<double>(segment)},
                    {"segments_per_second", result.rate / static_cast<double>(segment)},
                    {"steps_per_second", result.rate / static_cast<double>(segment) * steps}};
  return result;
}

// From Publish on the learner's side until the actor has them whole and checked.
StatusOr<BenchResult> RunWeights(TransportKind kind, const BenchOptions& options) {
  constexpr size_t kBytes = 1'000'000;
  MILL_ASSIGN_OR_RETURN(const auto learner, BenchLearner::Start({}));
  MILL_ASSIGN_OR_RETURN(const auto actor, BenchActor::Connect(*learner, kind, "bench"));
  std::vector<double> times;
  const auto began = Clock::now();
  for (uint64_t version = 1; times.size() < 20 || Since(began) < std::min(2.0, options.seconds); ++version) {
    auto weights = std::make_shared<WeightsBlob>();
    weights->version = version;
    weights->bytes.resize(kBytes, std::byte(version));
    const auto published = Clock::now();
    weights->checksum = WeightsChecksum(version, weights->bytes.data(), kBytes);
    learner->service().Publish(std::move(weights));
    while (actor->version() != version) {
      MILL_RETURN_IF_ERROR(actor->status());
      if (Since(published) > 10) return absl::DeadlineExceededError("bench: the weights did not arrive");
      std::this_thread::yield();
    }
    times.push_back(1000 * Since(published));
  }
  BenchResult result;
  result.unit = "ms";
  Summarize(times, result);
  result.floor = 1000 * static_cast<double>(kBytes) / CopyRate(kBytes, 0.2);
  result.fraction = result.floor / result.rate;
  result.details = {{"weights_bytes", static_cast<double>(kBytes)},
                    {"versions", static_cast<double>(times.size())}};
  return result;
}

// Steps a second of `millrace train` as its summary has them, in a process of its own.
StatusOr<double> TrainRate(std::vector<std::string> arguments) {
  const std::string dir = absl::StrCat("/tmp/millrace-bench-run-", getpid());
  std::filesystem::remove_all(dir);
  const absl::Cleanup remove = [&dir] { std::filesystem::remove_all(dir); };
  arguments.insert(arguments.begin(), {"millrace", "train"});
  for (const char* more : {"--quiet", "--run"}) arguments.emplace_back(more);
  arguments.push_back(dir);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  if (posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, argv.data(), environ) != 0) {
    return absl::InternalError("bench: millrace could not start itself");
  }
  int status = 0;
  if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return absl::InternalError(absl::StrCat("bench: `", arguments[1], " ", arguments[2], "` failed"));
  }
  const auto summary = nlohmann::json::parse(std::ifstream(dir + "/summary.json"), nullptr, false);
  if (!summary.is_object() || !summary["steps_per_second"].is_number()) {
    return absl::InternalError(absl::StrCat("bench: no steps_per_second in ", dir, "/summary.json"));
  }
  return summary["steps_per_second"].get<double>();
}

// Two trainings by turns; the fraction is the median of the rounds' ratios.
StatusOr<BenchResult> RunPair(const std::vector<std::string>& work, const std::vector<std::string>& anchor) {
  constexpr int kRounds = 3;
  std::vector<double> rates, anchors, ratios;
  for (int round = 0; round < kRounds; ++round) {
    MILL_ASSIGN_OR_RETURN(const double a, TrainRate(anchor));
    MILL_ASSIGN_OR_RETURN(const double b, TrainRate(work));
    anchors.push_back(a);
    rates.push_back(b);
    ratios.push_back(b / a);
  }
  BenchResult result;
  result.unit = "steps/s";
  Summarize(rates, result);
  result.floor = Median(anchors);
  result.fraction = Median(ratios);
  return result;
}

StatusOr<BenchResult> RunBreakout(const char* transport) {
  const std::vector<std::string> one = {"breakout", "--steps", "1500000", "--set", "eval.every=0"};
  std::vector<std::string> two = one;
  for (const std::string& set :
       {std::string("actors.processes=2"), absl::StrCat("actors.transport=", transport)}) {
    two.insert(two.end(), {"--set", set});
  }
  return RunPair(two, one);
}

// Actors that wait on purpose, and a learner that has next to nothing to do.
StatusOr<BenchResult> RunSecondActor() {
  std::vector<std::string> one = {"cartpole", "--steps", "60000"};
  for (const char* set : {"mode=async", "actors.threads=1", "env.step_wait_us=2000", "ppo.epochs=1",
                          "run.stop_window=0", "learner.max_policy_lag=16", "actors.processes=1"}) {
    one.insert(one.end(), {"--set", set});
  }
  std::vector<std::string> two = one;
  two.back() = "actors.processes=2";
  return RunPair(two, one);
}

}  // namespace

std::vector<BenchWork> TransportWorks() {
  std::vector<BenchWork> works;
  for (const char* kind : {"grpc", "shm"}) {
    for (const Size& size : kSizes) {
      works.push_back(
          {absl::StrCat("transport:", kind, "-", size.name),
           absl::StrCat("acknowledged segments of ", size.shape.steps, " x ", size.shape.rows, " x ",
                        size.shape.obs, " floats, against ", *kind == 'g' ? "a raw gRPC stream" : "memcpy")});
    }
  }
  for (const char* kind : {"grpc", "shm"}) {
    works.push_back({absl::StrCat("transport:weights-", kind),
                     "1 MB of weights, published until usable; against memcpy"});
  }
  works.push_back(
      {"transport:breakout-shm", "breakout, learner and 2 actors by shared memory, against one process"});
  works.push_back({"transport:breakout-grpc", "the same by gRPC"});
  works.push_back({"transport:second-actor", "two slow actors against one, the learner idle"});
  return works;
}

StatusOr<BenchResult> RunTransport(const std::string& work, const BenchOptions& options) {
  const std::string name(absl::StripPrefix(work, "transport:"));
  StatusOr<BenchResult> result =
      absl::InternalError(absl::StrCat("work ", work, " is listed but has no body"));
  if (name == "weights-grpc") result = RunWeights(TransportKind::kGrpc, options);
  if (name == "weights-shm") result = RunWeights(TransportKind::kSharedMemory, options);
  if (name == "breakout-shm") result = RunBreakout("shm");
  if (name == "breakout-grpc") result = RunBreakout("grpc");
  if (name == "second-actor") result = RunSecondActor();
  for (const Size& size : kSizes) {
    if (name == absl::StrCat("grpc-", size.name)) result = RunSegments(size, TransportKind::kGrpc, options);
    if (name == absl::StrCat("shm-", size.name))
      result = RunSegments(size, TransportKind::kSharedMemory, options);
  }
  if (result.ok()) {
    result->work = work;
    result->cpu_kernels = CpuKernelSet();
  }
  return result;
}

}  // namespace millrace
