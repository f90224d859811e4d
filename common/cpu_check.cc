// Compiled for the plain x86-64 (CMakeLists.txt of this folder), whatever the rest is compiled for. The check
// before main uses no inline code of any library: the linker may take another object's copy of it, made for a
// newer CPU.
#include "common/cpu_check.h"

#include <unistd.h>

#include <cstddef>

namespace millrace {
namespace {

constexpr const char* kNames[] = {"sse4.2", "popcnt",  "avx",      "avx2",     "fma",     "bmi",
                                  "bmi2",   "avx512f", "avx512dq", "avx512bw", "avx512vl"};
constexpr char kBegin[] = "this CPU lacks instructions that Millrace was built for:";
constexpr char kEnd[] =
    "; build for it with `MILL_MARCH=x86-64-v2 ./mill ...` or cmake -DMILLRACE_MARCH=x86-64-v2 (`native`: "
    "the CPU that "
    "builds)";

// A C string of fixed room; what does not fit is left out.
struct Text {
  char chars[512];
  size_t size = 0;

  void Add(const char* s) {
    while (*s != '\0' && size + 1 < sizeof chars) chars[size++] = *s++;
    chars[size] = '\0';
  }
};

void Explain(uint32_t missing, Text& text) {
  text.Add(kBegin);
  for (unsigned i = 0; i < sizeof kNames / sizeof *kNames; ++i) {
    if ((missing & (1u << i)) == 0) continue;
    text.Add(" ");
    text.Add(kNames[i]);
  }
  text.Add(kEnd);
}

// Before every static initialiser of ours, for those are compiled for the newer CPU too.
__attribute__((constructor(101))) void CheckBeforeMain() {
  const uint32_t missing = kBuildCpuFeatures & ~HostCpuFeatures();
  if (missing == 0) return;
  Text text;
  text.Add("millrace: ");
  Explain(missing, text);
  text.Add("\n");
  if (write(STDERR_FILENO, text.chars, text.size) < 0) _exit(2);
  _exit(2);
}

}  // namespace

uint32_t HostCpuFeatures() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  uint32_t present = 0;
  if (__builtin_cpu_supports("sse4.2")) present |= kCpuSse42;
  if (__builtin_cpu_supports("popcnt")) present |= kCpuPopcnt;
  if (__builtin_cpu_supports("avx")) present |= kCpuAvx;
  if (__builtin_cpu_supports("avx2")) present |= kCpuAvx2;
  if (__builtin_cpu_supports("fma")) present |= kCpuFma;
  if (__builtin_cpu_supports("bmi")) present |= kCpuBmi;
  if (__builtin_cpu_supports("bmi2")) present |= kCpuBmi2;
  if (__builtin_cpu_supports("avx512f")) present |= kCpuAvx512f;
  if (__builtin_cpu_supports("avx512dq")) present |= kCpuAvx512dq;
  if (__builtin_cpu_supports("avx512bw")) present |= kCpuAvx512bw;
  if (__builtin_cpu_supports("avx512vl")) present |= kCpuAvx512vl;
  return present;
#else
  return 0;
#endif
}

Status CheckCpu(uint32_t needed, uint32_t present) {
  if ((needed & ~present) == 0) return absl::OkStatus();
  Text text;
  Explain(needed & ~present, text);
  return absl::FailedPreconditionError(text.chars);
}

Status CheckCpu() {
  return CheckCpu(kBuildCpuFeatures, HostCpuFeatures());
}

}  // namespace millrace
