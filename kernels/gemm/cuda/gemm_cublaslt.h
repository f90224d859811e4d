// CublasLtGemm: the products of gemm.h on device pointers, by cuBLASLt. float32 in and out; sums in float32,
// in an order that is cuBLASLt's own, the same from run to run on one device (algorithms whose order may vary
// are excluded).
//
// cuBLASLt's matrices are column-major, and a row-major [r, c] is a column-major [c, r]; so operands are
// swapped and nothing is transposed in memory: Y = X W is computed as Y' = W' X'.
//
// The bias is folded into the product; the rest are passes by ops/linear.h, with the CPU's own functions.
// Activations: cuBLASLt has no tanh and no silu; its relu does not document what becomes of a NaN, which ours
// keeps; its gelu promises no precision, and a rollout that folds it would disagree with an update that keeps
// its input. Bias gradients: the folded one overwrites, ours is added to.
//
// Owner: CudaKernels. Threads: any, on different streams. Calls allocate nothing on the device, and nothing
// on the host once a shape has been seen, so they may be captured. Station: policy_runner, train_step.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <array>
#include <map>
#include <memory>

#include "common/mutex.h"
#include "common/status.h"
#include "kernels/device/kernels.h"
#include "kernels/gemm/gemm.h"

namespace millrace {

class CublasLtGemm {
 public:
  // For the device that is current.
  static StatusOr<std::unique_ptr<CublasLtGemm>> Make(bool allow_tf32);
  ~CublasLtGemm();
  CublasLtGemm(const CublasLtGemm&) = delete;
  CublasLtGemm& operator=(const CublasLtGemm&) = delete;

  // args.w and args.wt are dense copies of W [k, n]. The workspace is used until the stream has run the call.
  Status Forward(cudaStream_t stream, const ForwardArgs& args, Workspace workspace);
  Status GradInput(cudaStream_t stream, const GradInputArgs& args, Workspace workspace);
  Status GradWeight(cudaStream_t stream, const GradWeightArgs& args, Workspace workspace);

 private:
  struct Product;
  struct Description;
  using Key = std::array<long, 14>;

  CublasLtGemm(cublasLtHandle_t handle, bool allow_tf32) : handle_(handle), allow_tf32_(allow_tf32) {}

  Status Multiply(cudaStream_t stream, const Product& product, Workspace workspace);
  StatusOr<Description> Describe(const Product& product) const;
  StatusOr<cublasLtMatmulAlgo_t> AlgorithmFor(const Product& product, const Description& d,
                                              size_t workspace_bytes);
  StatusOr<cublasLtMatmulAlgo_t> AskHeuristic(const Product& product, const Description& d,
                                              size_t workspace_bytes) const;

  cublasLtHandle_t handle_;
  bool allow_tf32_;
  Mutex mutex_;
  std::map<Key, cublasLtMatmulAlgo_t> algorithms_ MILL_GUARDED_BY(mutex_);  // chosen once a shape
};

}  // namespace millrace
