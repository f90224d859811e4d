// Gemm: the three matrix products of a linear layer, with what follows them folded into the store (bias,
// activation, the activation's gradient). float32, row-major; `ld` is the distance between rows in elements.
//
//   Forward      Y[m,n]  = act(X[m,k] W[k,n] + bias[n])
//   GradInput    dX[m,k] = (dY[m,n] W[k,n]^T) * act'       act of the layer that made X
//   GradWeight   dW[k,n] += X[m,k]^T dY[m,n],  db[n] += column sums of dY
//
// Exactness: every element of a result is one chain of fused multiply-adds over the summed index in ascending
// order, from zero (Forward, GradInput) or from what the output holds (GradWeight); a column sum is one chain
// of additions over rows. The bias is added after the chain. So a row's bits depend neither on how many rows
// there are nor on blocking, and a caller may cut m anywhere. The reference and the CPU kernels agree bit for
// bit; cuBLASLt promises no order and is compared with a tolerance.
//
// Weights are packed once an update, by the backend that will read them (a packing is private to its
// backend): panels of columns on the CPU, a copy in the compute type on a GPU.
//
// Measured on one core of a Xeon, GFLOP/s and share of the FMA peak of that vector width (best batches; 64 or
// 256 rows, k and n 64 to 512; forward and weight's gradient with bias):
//                       avx512, peak 179      avx2, peak 96
//   forward             151 to 165, 84-92 %   83 to 86, 86-90 %
//   forward, tanh       123 to 164, 69-92 %   67 to 85, 70-89 %
//   input's gradient    143 to 168, 80-94 %   82 to 87, 85-91 %
//   weight's gradient   139 to 159, 78-89 %   73 to 82, 76-86 %
// A head of 3 columns: forward 29 in both sets (a vector of 4 is all it can fill), gradients 80 and 61
// against 32 and 41; k = 4 into 64 with tanh: 23 against 14. OpenBLAS 0.3.21, bare products, one thread: 95
// to 162 with its AVX-512 kernels, 63 to 82 with its AVX2 ones.
//
// Owner: none, everything is borrowed for the call. Threads: pure functions, callable from many threads at
// once, each call serial; they allocate nothing. Station: policy_runner (Forward) and train_step (all).
#pragma once

#include <cstddef>
#include <vector>

#include "common/options.h"

namespace millrace {

struct ForwardArgs {
  int m = 0, n = 0, k = 0;
  const float* x = nullptr;  // [m, k] f32
  int ldx = 0;
  const float* w = nullptr;     // Pack of W [k, n]
  const float* bias = nullptr;  // [n] f32; null: none
  Activation activation = Activation::kNone;
  float* y = nullptr;  // [m, n] f32
  int ldy = 0;
  float* pre = nullptr;  // [m, n] f32, what the activation was given; null: not kept
  int ldpre = 0;
};

struct GradInputArgs {
  int m = 0, n = 0, k = 0;
  const float* dy = nullptr;  // [m, n] f32
  int lddy = 0;
  const float* wt = nullptr;                  // PackTransposed of W [k, n]
  Activation activation = Activation::kNone;  // that made X; kNone: no factor
  const float* x = nullptr;                   // [m, k] f32, its result; read for tanh and relu
  int ldx = 0;
  const float* pre = nullptr;  // [m, k] f32, its input; read for gelu and silu
  int ldpre = 0;
  float* dx = nullptr;  // [m, k] f32
  int lddx = 0;
};

struct GradWeightArgs {
  int m = 0, n = 0, k = 0;
  const float* x = nullptr;  // [m, k] f32
  int ldx = 0;
  const float* dy = nullptr;  // [m, n] f32
  int lddy = 0;
  float* dw = nullptr;  // [k, n] f32, added to
  int lddw = 0;
  float* db = nullptr;  // [n] f32, added to; null: none
};

// A backend of host memory.
struct GemmBackend {
  const char* name;
  size_t (*packed_elements)(int k, int n);                             // floats of a Pack of [k, n]
  void (*pack)(const float* w, int ldw, int k, int n, float* packed);  // w [k, n]
  void (*pack_transposed)(const float* w, int ldw, int k, int n,
                          float* packed);  // packed_elements(n, k) floats
  void (*forward)(const ForwardArgs&);
  void (*grad_input)(const GradInputArgs&);
  void (*grad_weight)(const GradWeightArgs&);
};

// Plain loops: what the results are.
extern const GemmBackend kReferenceGemm;
// Register tiles, in the set of kernels that CpuKernelSet() names: 14 x 32 (AVX-512), 6 x 16 (AVX2 and FMA),
// or the latter as portable loops. All sets have the same bits and read each other's packs.
extern const GemmBackend kCpuGemm;
// Every set that this CPU can run by itself, narrowest first: for tests and comparisons.
std::vector<const GemmBackend*> RunnableCpuGemms();

}  // namespace millrace
