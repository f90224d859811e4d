// The ops as the CUDA backend's host code sees them: a launcher and a shape each, from the op's number.
// Filled by the
// *.cu files of this folder; constant afterwards; any thread. Station: CudaKernels.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>

#include "kernels/device/launch_shape.h"
#include "kernels/ops/op_list.h"

namespace millrace {

struct CudaOp {
  OpId op;
  size_t params_bytes;
  cudaError_t (*launch)(cudaStream_t stream, const void* params);
  LaunchShape (*shape)(const void* params);
};

// One a *.cu file.
std::span<const CudaOp> CudaDataOps();
std::span<const CudaOp> CudaPolicyOps();
std::span<const CudaOp> CudaSacOps();
std::span<const CudaOp> CudaTrainOps();

// Null where no file has the op.
const CudaOp* FindCudaOp(OpId op);

}  // namespace millrace
