// GFLOP/s of the layer's products beside the FMA peak, which is measured in turns with the work (clocks and
// neighbours change it), and beside OpenBLAS with one thread where it is installed.
//   kernels_benchmark --benchmark_filter=Gemm       MILLRACE_CPU_KERNELS=avx2: the narrower set and its peak
#include <algorithm>
#include <chrono>
#include <vector>

#include "benchmark/benchmark.h"
#include "kernels/core/fma_peak.h"
#include "kernels/gemm/gemm.h"

#if defined(MILLRACE_WITH_OPENBLAS)
#include <cblas.h>
#endif

namespace millrace {
namespace {

enum class Product { kForward, kForwardTanh, kGradInput, kGradInputTanh, kGradWeight };

// The matrices of one layer, m rows.
struct LayerData {
  LayerData(int m, int k, int n)
      : m(m),
        k(k),
        n(n),
        x(Filled(m * k)),
        w(Filled(k * n)),
        bias(Filled(n)),
        y(Filled(m * n)),
        dx(Filled(m * k)),
        dw(Filled(k * n)),
        db(Filled(n)),
        packed(kCpuGemm.packed_elements(k, n)),
        packed_transposed(kCpuGemm.packed_elements(n, k)) {
    kCpuGemm.pack(w.data(), n, k, n, packed.data());
    kCpuGemm.pack_transposed(w.data(), n, k, n, packed_transposed.data());
  }

  static std::vector<float> Filled(int count) {
    std::vector<float> v(static_cast<size_t>(count));
    for (size_t i = 0; i < v.size(); ++i)
      v[i] = 0.01f * static_cast<float>(static_cast<int>(i * 7 % 41) - 20);
    return v;
  }

  void Run(Product product) {
    switch (product) {
      case Product::kForward:
      case Product::kForwardTanh:
        kCpuGemm.forward({.m = m,
                          .n = n,
                          .k = k,
                          .x = x.data(),
                          .ldx = k,
                          .w = packed.data(),
                          .bias = bias.data(),
                          .activation = product == Product::kForward ? Activation::kNone : Activation::kTanh,
                          .y = y.data(),
                          .ldy = n,
                          .pre = nullptr,
                          .ldpre = 0});
        return;
      case Product::kGradInput:
      case Product::kGradInputTanh:
        kCpuGemm.grad_input(
            {.m = m,
             .n = n,
             .k = k,
             .dy = y.data(),
             .lddy = n,
             .wt = packed_transposed.data(),
             .activation = product == Product::kGradInput ? Activation::kNone : Activation::kTanh,
             .x = x.data(),
             .ldx = k,
             .pre = nullptr,
             .ldpre = 0,
             .dx = dx.data(),
             .lddx = k});
        return;
      case Product::kGradWeight:
        kCpuGemm.grad_weight({.m = m,
                              .n = n,
                              .k = k,
                              .x = x.data(),
                              .ldx = k,
                              .dy = y.data(),
                              .lddy = n,
                              .dw = dw.data(),
                              .lddw = n,
                              .db = db.data()});
        return;
    }
  }

  int m, k, n;
  std::vector<float> x, w, bias, y, dx, dw, db, packed, packed_transposed;
};

// Times `run` in batches of some 100 us, each followed by as long a look at the peak. The counters are of the
// best batch and the best peak: a neighbour's time slice is not what is asked for.
template <class F>
void RunBesideThePeak(benchmark::State& state, double flops, F&& run) {
  const int batch = static_cast<int>(8e6 / flops) + 1;
  double peak = 0, rate = 0;
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < batch; ++i) run();
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    state.SetIterationTime(took / batch);
    rate = std::max(rate, flops * batch / took * 1e-9);
    peak = std::max(peak, FmaPeakGflops(0.0001));
  }
  state.counters["GFLOP/s"] = rate;
  state.counters["peak"] = peak;
  state.counters["fraction"] = rate / peak;
}

double Flops(const benchmark::State& state) {
  return 2.0 * static_cast<double>(state.range(0)) * static_cast<double>(state.range(1)) *
         static_cast<double>(state.range(2));
}

template <Product kProduct>
void Gemm(benchmark::State& state) {
  LayerData layer(static_cast<int>(state.range(0)), static_cast<int>(state.range(1)),
                  static_cast<int>(state.range(2)));
  RunBesideThePeak(state, Flops(state), [&] { layer.Run(kProduct); });
}

void Shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"m", "k", "n"})->UseManualTime()->Iterations(300);
  for (int64_t m : {64, 256}) {
    b->Args({m, 118, 128})->Args({m, 128, 128})->Args({m, 64, 64});
  }
  b->Args({64, 256, 256})->Args({64, 512, 512})->Args({64, 4, 64})->Args({64, 128, 3})->Args({64, 128, 1});
}

BENCHMARK_TEMPLATE(Gemm, Product::kForward)->Name("Gemm/forward")->Apply(Shapes);
BENCHMARK_TEMPLATE(Gemm, Product::kForwardTanh)->Name("Gemm/forward_tanh")->Apply(Shapes);
BENCHMARK_TEMPLATE(Gemm, Product::kGradInput)->Name("Gemm/grad_input")->Apply(Shapes);
BENCHMARK_TEMPLATE(Gemm, Product::kGradInputTanh)->Name("Gemm/grad_input_tanh")->Apply(Shapes);
BENCHMARK_TEMPLATE(Gemm, Product::kGradWeight)->Name("Gemm/grad_weight")->Apply(Shapes);

#if defined(MILLRACE_WITH_OPENBLAS)

// The bare products; our rows above have bias and activation in them.
template <Product kProduct>
void OpenBlas(benchmark::State& state) {
  openblas_set_num_threads(1);
  LayerData d(static_cast<int>(state.range(0)), static_cast<int>(state.range(1)),
              static_cast<int>(state.range(2)));
  RunBesideThePeak(state, Flops(state), [&] {
    if constexpr (kProduct == Product::kForward) {
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, d.m, d.n, d.k, 1, d.x.data(), d.k, d.w.data(),
                  d.n, 0, d.y.data(), d.n);
    } else if constexpr (kProduct == Product::kGradInput) {
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, d.m, d.k, d.n, 1, d.y.data(), d.n, d.w.data(), d.n,
                  0, d.dx.data(), d.k);
    } else {
      cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, d.k, d.n, d.m, 1, d.x.data(), d.k, d.y.data(), d.n,
                  1, d.dw.data(), d.n);
    }
  });
}

BENCHMARK_TEMPLATE(OpenBlas, Product::kForward)->Name("Gemm/openblas_forward")->Apply(Shapes);
BENCHMARK_TEMPLATE(OpenBlas, Product::kGradInput)->Name("Gemm/openblas_grad_input")->Apply(Shapes);
BENCHMARK_TEMPLATE(OpenBlas, Product::kGradWeight)->Name("Gemm/openblas_grad_weight")->Apply(Shapes);

#endif

}  // namespace
}  // namespace millrace
