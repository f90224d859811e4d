// The CPU's products for the instructions that all of Millrace is compiled for, and the choice between these
// and wider ones.
#include <vector>

#include "kernels/core/cpu_kernel_set.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/gemm_panels.h"

namespace millrace {
namespace {

#if defined(__AVX2__) && defined(__FMA__)
constexpr GemmBackend kBaseGemm = TableNamed("avx2");
#else
constexpr GemmBackend kBaseGemm = TableNamed("portable");
#endif

const GemmBackend& TableOf([[maybe_unused]] CpuSet set) {
#if defined(MILLRACE_AVX512)
  if (set == CpuSet::kAvx512) return kAvx512Gemm;
#endif
  return kBaseGemm;
}

const GemmBackend& Chosen() {
  static const GemmBackend& chosen = TableOf(ChosenCpuSet());
  return chosen;
}

void ChosenPack(const float* w, int ldw, int k, int n, float* packed) {
  Chosen().pack(w, ldw, k, n, packed);
}
void ChosenPackTransposed(const float* w, int ldw, int k, int n, float* packed) {
  Chosen().pack_transposed(w, ldw, k, n, packed);
}
void ChosenForward(const ForwardArgs& g) {
  Chosen().forward(g);
}
void ChosenGradInput(const GradInputArgs& g) {
  Chosen().grad_input(g);
}
void ChosenGradWeight(const GradWeightArgs& g) {
  Chosen().grad_weight(g);
}

}  // namespace

std::vector<const GemmBackend*> RunnableCpuGemms() {
  std::vector<const GemmBackend*> tables;
  for (CpuSet set : RunnableCpuSets()) tables.push_back(&TableOf(set));
  return tables;
}

// It asks at every call, which costs a nanosecond, and so is a constant: it is right in other files' static
// initialisers too.
constinit const GemmBackend kCpuGemm = {"cpu",         PackedElements,  ChosenPack,      ChosenPackTransposed,
                                        ChosenForward, ChosenGradInput, ChosenGradWeight};

}  // namespace millrace
