// Whether this CPU has the instructions that the program was compiled for. Without this a program built for
// x86-64-v3 dies of an illegal instruction on an older CPU, and nobody knows why. No state; any thread.
// Station: before all.
#pragma once

#include <cstdint>
#include <string>

#include "common/status.h"

namespace millrace {

// Sets of instructions, as bits, in the order of their names in cpu_check.cc.
enum CpuFeature : uint32_t {
  kCpuSse42 = 1u << 0,
  kCpuPopcnt = 1u << 1,
  kCpuAvx = 1u << 2,
  kCpuAvx2 = 1u << 3,
  kCpuFma = 1u << 4,
  kCpuBmi = 1u << 5,
  kCpuBmi2 = 1u << 6,
  kCpuAvx512f = 1u << 7,
  kCpuAvx512dq = 1u << 8,
  kCpuAvx512bw = 1u << 9,
  kCpuAvx512vl = 1u << 10,
};

// What the compiler was told that it may use: a constant, by -march.
extern const uint32_t kBuildCpuFeatures;

// What this CPU and its system offer.
uint32_t HostCpuFeatures();

// FailedPrecondition naming what is missing and the option that builds without it. A program that links this
// function has made the same check before any of its other code ran, and ended with exit code 2 where it
// failed; so a call from main keeps the check in the program, and returns OK.
[[nodiscard]] Status CheckCpu();
[[nodiscard]] Status CheckCpu(uint32_t needed, uint32_t present);

}  // namespace millrace
