// Ops that sample actions and score them, as kernels.
#include "kernels/core/cuda/launch.cuh"
#include "kernels/ops/action_log_prob.h"
#include "kernels/ops/categorical.h"
#include "kernels/ops/gaussian.h"
#include "kernels/ops/ppo_loss.h"

namespace millrace {

std::span<const CudaOp> CudaPolicyOps() {
  static const CudaOp ops[] = {OpEntry<ActionLogProb>(), OpEntry<PpoLoss>(), OpEntry<SampleCategorical>(),
                               OpEntry<SampleGaussian>()};
  return ops;
}

}  // namespace millrace
