// Advantages, layer norm and the optimizer, as kernels.
#include "kernels/core/cuda/launch.cuh"
#include "kernels/ops/adam.h"
#include "kernels/ops/gae.h"
#include "kernels/ops/grad_reduce.h"
#include "kernels/ops/layer_norm.h"
#include "kernels/ops/vtrace.h"

namespace millrace {

template <>
inline constexpr int kThreadsOf<Adam> = 256;
template <>
inline constexpr int kThreadsOf<GradReduce> = 256;
template <>
inline constexpr int kThreadsOf<ClipGlobalNorm> = 32;  // one rank's work
template <>
inline constexpr int kThreadsOf<LayerNormParamGrad> = LayerNormParamGrad::kColumns;

std::span<const CudaOp> CudaTrainOps() {
  static const CudaOp ops[] = {OpEntry<Adam>(),
                               OpEntry<ClipGlobalNorm>(),
                               OpEntry<Gae>(),
                               OpEntry<GradReduce>(),
                               OpEntry<LayerNorm>(),
                               OpEntry<LayerNormBackward>(),
                               OpEntry<LayerNormParamGrad>(),
                               OpEntry<Vtrace>()};
  return ops;
}

}  // namespace millrace
