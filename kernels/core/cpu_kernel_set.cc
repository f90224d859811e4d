#include "kernels/core/cpu_kernel_set.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "common/cpu_check.h"

namespace millrace {
namespace {

constexpr char kVariable[] = "MILLRACE_CPU_KERNELS";

bool CanRunAvx512() {
#if defined(MILLRACE_AVX512)
  constexpr uint32_t kNeeds = kCpuAvx2 | kCpuFma | kCpuAvx512f | kCpuAvx512vl | kCpuAvx512bw | kCpuAvx512dq;
  return (HostCpuFeatures() & kNeeds) == kNeeds;
#else
  return false;
#endif
}

CpuSet ReadChoice() {
  const CpuSetChoice choice = ChooseCpuSet(std::getenv(kVariable), RunnableCpuSets());
  if (!choice.problem.empty()) std::fprintf(stderr, "millrace: %s\n", choice.problem.c_str());
  return choice.set;
}

}  // namespace

std::span<const CpuSet> RunnableCpuSets() {
  static constexpr CpuSet kAll[] = {CpuSet::kBase, CpuSet::kAvx512};
  static const size_t count = CanRunAvx512() ? 2 : 1;
  return {kAll, count};
}

const char* NameOf(CpuSet set) {
  if (set == CpuSet::kAvx512) return "avx512";
#if defined(__AVX2__) && defined(__FMA__)
  return "avx2";
#else
  return "portable";
#endif
}

CpuSet ChosenCpuSet() {
  static const CpuSet chosen = ReadChoice();
  return chosen;
}

CpuSetChoice ChooseCpuSet(const char* wanted, std::span<const CpuSet> runnable) {
  const CpuSet widest = runnable.back();
  if (wanted == nullptr || *wanted == '\0') return {widest, ""};
  std::string names;
  for (CpuSet set : runnable) {
    if (std::string_view(wanted) == NameOf(set)) return {set, ""};
    absl::StrAppend(&names, names.empty() ? "" : ", ", NameOf(set));
  }
  return {widest, absl::StrCat(kVariable, "=", wanted, ": not among what can run here (", names, "); using ",
                               NameOf(widest))};
}

}  // namespace millrace
