// The CPU's products once more, compiled for AVX-512; nothing here may run before cpu_kernel_set.h has said
// that it can.
#if defined(MILLRACE_AVX512)

#define MILL_VECTORS_AVX512
#include "kernels/gemm/gemm_panels.h"

namespace millrace {

constinit const GemmBackend kAvx512Gemm = TableNamed("avx512");

}  // namespace millrace

#endif
