// Compiled as everything else is, unlike cpu_check.cc: so the compiler itself says what -march lets it use.
// Data only.
#include "common/cpu_check.h"

namespace millrace {

static constexpr uint32_t BuildFeatures() {
  uint32_t features = 0;
#if defined(__SSE4_2__)
  features |= kCpuSse42;
#endif
#if defined(__POPCNT__)
  features |= kCpuPopcnt;
#endif
#if defined(__AVX__)
  features |= kCpuAvx;
#endif
#if defined(__AVX2__)
  features |= kCpuAvx2;
#endif
#if defined(__FMA__)
  features |= kCpuFma;
#endif
#if defined(__BMI__)
  features |= kCpuBmi;
#endif
#if defined(__BMI2__)
  features |= kCpuBmi2;
#endif
#if defined(__AVX512F__)
  features |= kCpuAvx512f;
#endif
#if defined(__AVX512DQ__)
  features |= kCpuAvx512dq;
#endif
#if defined(__AVX512BW__)
  features |= kCpuAvx512bw;
#endif
#if defined(__AVX512VL__)
  features |= kCpuAvx512vl;
#endif
  return features;
}

constinit const uint32_t kBuildCpuFeatures = BuildFeatures();

}  // namespace millrace
