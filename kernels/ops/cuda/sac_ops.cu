// The ops of SAC, as kernels.
#include "kernels/core/cuda/launch.cuh"
#include "kernels/ops/sac_discrete.h"
#include "kernels/ops/sac_loss.h"
#include "kernels/ops/tanh_gaussian.h"

namespace millrace {

template <>
inline constexpr int kThreadsOf<TemperatureGradient> = 32;  // one rank's work

std::span<const CudaOp> CudaSacOps() {
  static const CudaOp ops[] = {OpEntry<CriticLoss>(),        OpEntry<DiscretePolicyLoss>(),
                               OpEntry<DiscreteSacTarget>(), OpEntry<PolicyQ>(),
                               OpEntry<SacTarget>(),         OpEntry<SampleSquashed>(),
                               OpEntry<SquashedBackward>(),  OpEntry<TemperatureGradient>()};
  return ops;
}

}  // namespace millrace
