// CpuKernelSet: which of the CPU's kernels run here. Products, and the peak they are measured against, are
// compiled more than once, for vectors of different width; all sets have the same bits, so the choice changes
// speed only. The widest that this CPU has is chosen at the first question, or the one that the environment
// variable MILLRACE_CPU_KERNELS names ("avx2": the narrower one on a CPU with AVX-512).
//
// A set's own code is in files named *_<set>.cc (CMakeLists.txt of kernels gives them their flags). Such a
// file keeps all code to itself but for the table that it is made for: an inline function that others compile
// too could be taken from it by the linker, and would then run on CPUs that lack its instructions.
//
// No owner; any thread, for the whole life of the process. Station: under gemm; bench and the log name it.
#pragma once

#include <span>
#include <string>

namespace millrace {

enum class CpuSet {
  kBase,    // what all of Millrace was compiled for
  kAvx512,  // AVX-512 F, VL, BW, DQ
};

// Sets that this CPU can run, narrowest first.
std::span<const CpuSet> RunnableCpuSets();

// "avx512"; the base is "avx2", or "portable" where it was not compiled for AVX2 and FMA.
const char* NameOf(CpuSet set);

// The one that runs; fixed at the first call, which reads the environment and writes a line to stderr if the
// variable names no set that can run here.
CpuSet ChosenCpuSet();

inline const char* CpuKernelSet() {
  return NameOf(ChosenCpuSet());
}

struct CpuSetChoice {
  CpuSet set;
  std::string problem;  // empty: none
};
// The rule: `wanted` if it is among `runnable`, which is not empty and narrowest first, else the widest.
// Null and "" want nothing.
CpuSetChoice ChooseCpuSet(const char* wanted, std::span<const CpuSet> runnable);

}  // namespace millrace
