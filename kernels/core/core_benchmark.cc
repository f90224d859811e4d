// The elementary functions (nanoseconds for 8 floats), the fork and join of the thread pool, the FMA peak.
//   kernels_benchmark --benchmark_filter='Math|ThreadPool|FmaPeak'
#include <vector>

#include "benchmark/benchmark.h"
#include "kernels/core/fma_peak.h"
#include "kernels/core/math.h"
#include "kernels/core/thread_pool.h"

namespace millrace {
namespace {

template <class F>
void Map(benchmark::State& state, F f) {
  constexpr int kCount = 4096;
  std::vector<float> x(kCount), y(kCount);
  for (int i = 0; i < kCount; ++i) x[static_cast<size_t>(i)] = 0.002f * static_cast<float>(i) + 0.01f;
  for (auto _ : state) {
    float* __restrict to = y.data();
    const float* __restrict from = x.data();
    for (int i = 0; i < kCount; ++i) to[i] = f(from[i]);
    benchmark::ClobberMemory();
  }
  state.counters["8_floats"] = benchmark::Counter(static_cast<double>(state.iterations()) * kCount / 8,
                                                  benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

BENCHMARK_CAPTURE(Map, exp, [](float x) { return Exp(x); })->Name("Math/Exp");
BENCHMARK_CAPTURE(Map, log, [](float x) { return Log(x); })->Name("Math/Log");
BENCHMARK_CAPTURE(Map, tanh, [](float x) { return Tanh(x); })->Name("Math/Tanh");
BENCHMARK_CAPTURE(Map, sigmoid, [](float x) { return Sigmoid(x); })->Name("Math/Sigmoid");
BENCHMARK_CAPTURE(Map, softplus, [](float x) { return Softplus(x); })->Name("Math/Softplus");

void ForkJoin(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  for (auto _ : state) pool.ParallelFor(pool.threads(), [](int, int) {});
}
BENCHMARK(ForkJoin)->Name("ThreadPool/fork_join")->ArgName("threads")->Arg(1)->Arg(2)->Arg(4);

void FmaPeak(benchmark::State& state) {
  double gflops = 0;
  for (auto _ : state) gflops = FmaPeakGflops(0.02);
  state.counters["GFLOP/s"] = gflops;
}
BENCHMARK(FmaPeak)->Iterations(3);

}  // namespace
}  // namespace millrace
