// FmaPeakGflops: what one core can do at most, in float32 multiply-adds (two operations each), measured now:
// neighbours and clocks change it. Vectors are those of the set of kernels that runs (cpu_kernel_set.h). The
// floor of a work is its operations over this. Any thread; busy for about `seconds`.
#pragma once

namespace millrace {

double FmaPeakGflops(double seconds = 0.02);

}  // namespace millrace
