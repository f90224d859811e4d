#include <cmath>

#include "kernels/core/activation.h"
#include "kernels/gemm/gemm.h"

namespace millrace {
namespace {

size_t PackedElements(int k, int n) {
  return static_cast<size_t>(k) * n;
}

// The reference's packing is a dense copy.
void Pack(const float* w, int ldw, int k, int n, float* packed) {
  for (int i = 0; i < k; ++i) {
    for (int j = 0; j < n; ++j) packed[static_cast<size_t>(i) * n + j] = w[static_cast<size_t>(i) * ldw + j];
  }
}

void PackTransposed(const float* w, int ldw, int k, int n, float* packed) {
  for (int i = 0; i < k; ++i) {
    for (int j = 0; j < n; ++j) packed[static_cast<size_t>(j) * k + i] = w[static_cast<size_t>(i) * ldw + j];
  }
}

// sum over i < count of a[i * a_step] * b[i * b_step], continuing the chain from `sum`
float Chain(int count, const float* a, int a_step, const float* b, int b_step, float sum) {
  for (int i = 0; i < count; ++i) {
    sum = std::fma(a[static_cast<size_t>(i) * a_step], b[static_cast<size_t>(i) * b_step], sum);
  }
  return sum;
}

void Forward(const ForwardArgs& g) {
  for (int i = 0; i < g.m; ++i) {
    for (int j = 0; j < g.n; ++j) {
      float pre = Chain(g.k, g.x + static_cast<size_t>(i) * g.ldx, 1, g.w + j, g.n, 0.0f);
      if (g.bias != nullptr) pre += g.bias[j];
      if (g.pre != nullptr) g.pre[static_cast<size_t>(i) * g.ldpre + j] = pre;
      g.y[static_cast<size_t>(i) * g.ldy + j] = ActForward(g.activation, pre);
    }
  }
}

void GradInput(const GradInputArgs& g) {
  for (int i = 0; i < g.m; ++i) {
    for (int j = 0; j < g.k; ++j) {
      const float sum = Chain(g.n, g.dy + static_cast<size_t>(i) * g.lddy, 1, g.wt + j, g.k, 0.0f);
      const float x = g.x != nullptr ? g.x[static_cast<size_t>(i) * g.ldx + j] : 0.0f;
      const float pre = g.pre != nullptr ? g.pre[static_cast<size_t>(i) * g.ldpre + j] : 0.0f;
      const float factor = g.activation == Activation::kNone ? 1.0f : ActGrad(g.activation, x, pre);
      g.dx[static_cast<size_t>(i) * g.lddx + j] = sum * factor;
    }
  }
}

void GradWeight(const GradWeightArgs& g) {
  for (int i = 0; i < g.k; ++i) {
    for (int j = 0; j < g.n; ++j) {
      float& dw = g.dw[static_cast<size_t>(i) * g.lddw + j];
      dw = Chain(g.m, g.x + i, g.ldx, g.dy + j, g.lddy, dw);
    }
  }
  if (g.db == nullptr) return;
  for (int r = 0; r < g.m; ++r) {
    for (int j = 0; j < g.n; ++j) g.db[j] += g.dy[static_cast<size_t>(r) * g.lddy + j];
  }
}

}  // namespace

const GemmBackend kReferenceGemm = {"reference", PackedElements, Pack,      PackTransposed,
                                    Forward,     GradInput,      GradWeight};

}  // namespace millrace
