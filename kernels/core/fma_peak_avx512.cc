#if defined(MILLRACE_AVX512)

#define MILL_VECTORS_AVX512
#include "kernels/core/fma_peak_loop.h"

namespace millrace {

constinit const FmaLoop kFmaLoopAvx512 = {RunFmaLoop, kFmaFlops};

}  // namespace millrace

#endif
