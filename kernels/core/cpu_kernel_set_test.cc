#include "kernels/core/cpu_kernel_set.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

constexpr CpuSet kBoth[] = {CpuSet::kBase, CpuSet::kAvx512};
constexpr CpuSet kNarrow[] = {CpuSet::kBase};

TEST(CpuKernelSet, TheWidestUnlessOneIsNamed) {
  for (const char* nothing : {static_cast<const char*>(nullptr), ""}) {
    EXPECT_EQ(ChooseCpuSet(nothing, kBoth).set, CpuSet::kAvx512);
    EXPECT_EQ(ChooseCpuSet(nothing, kNarrow).set, CpuSet::kBase);
    EXPECT_EQ(ChooseCpuSet(nothing, kBoth).problem, "");
  }
  EXPECT_EQ(ChooseCpuSet("avx512", kBoth).set, CpuSet::kAvx512);
  const CpuSetChoice base = ChooseCpuSet(NameOf(CpuSet::kBase), kBoth);
  EXPECT_EQ(base.set, CpuSet::kBase);
  EXPECT_EQ(base.problem, "");
}

TEST(CpuKernelSet, WhatCannotRunIsNamedWithWhatCan) {
  const CpuSetChoice unknown = ChooseCpuSet("avx1024", kBoth);
  EXPECT_EQ(unknown.set, CpuSet::kAvx512);
  EXPECT_THAT(unknown.problem, testing::HasSubstr("MILLRACE_CPU_KERNELS=avx1024"));
  EXPECT_THAT(unknown.problem, testing::HasSubstr("avx512)"));

  const CpuSetChoice too_wide = ChooseCpuSet("avx512", kNarrow);
  EXPECT_EQ(too_wide.set, CpuSet::kBase);
  EXPECT_THAT(too_wide.problem, testing::HasSubstr(NameOf(CpuSet::kBase)));
}

TEST(CpuKernelSet, TheChosenOneCanRun) {
  EXPECT_EQ(RunnableCpuSets().front(), CpuSet::kBase);
  EXPECT_THAT(RunnableCpuSets(), testing::Contains(ChosenCpuSet()));
  EXPECT_STREQ(CpuKernelSet(), NameOf(ChosenCpuSet()));
}

}  // namespace
}  // namespace millrace
