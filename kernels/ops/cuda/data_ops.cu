// Ops that move, normalise and summarise data, as kernels.
#include "kernels/core/cuda/launch.cuh"
#include "kernels/ops/gather.h"
#include "kernels/ops/linear.h"
#include "kernels/ops/moments.h"
#include "kernels/ops/running_stats.h"
#include "kernels/ops/shuffle.h"

namespace millrace {

template <>
inline constexpr int kThreadsOf<ActivationGrad> = 256;
template <>
inline constexpr int kThreadsOf<ApplyActivation> = 256;
template <>
inline constexpr int kThreadsOf<BatchMoments> = BatchMoments::kColumns;
template <>
inline constexpr int kThreadsOf<FillPermutation> = 256;
template <>
inline constexpr int kThreadsOf<Moments> = kLanes;

std::span<const CudaOp> CudaDataOps() {
  static const CudaOp ops[] = {
      OpEntry<ActivationGrad>(), OpEntry<AddColumnSums>(), OpEntry<ApplyActivation>(),
      OpEntry<BatchMoments>(),   OpEntry<ColumnSums>(),    OpEntry<FillPermutation>(),
      OpEntry<GatherRows>(),     OpEntry<Moments>(),       OpEntry<Normalize>()};
  return ops;
}

}  // namespace millrace
