#include <memory>

#include "absl/strings/str_cat.h"
#include "kernels/device/cuda/cuda_device.h"
#include "kernels/device/cuda/cuda_status.h"
#include "kernels/gemm/cuda/gemm_cublaslt.h"
#include "kernels/ops/cuda/op_table.h"

namespace millrace {
namespace {

StatusOr<const CudaOp*> OpFor(OpId op, size_t params_bytes) {
  const CudaOp* entry = FindCudaOp(op);
  if (entry == nullptr)
    return absl::UnimplementedError(absl::StrCat("cuda: ", NameOf(op), ": no such kernel"));
  if (params_bytes != entry->params_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("cuda: ", NameOf(op), ": its Params have ",
                                                   entry->params_bytes, " bytes, not ", params_bytes));
  }
  return entry;
}

class CudaKernels final : public Kernels {
 public:
  explicit CudaKernels(std::unique_ptr<CublasLtGemm> gemm) : gemm_(std::move(gemm)) {}

  Status RunOp(Stream& stream, OpId op, const void* params, size_t params_bytes) override {
    MILL_ASSIGN_OR_RETURN(const CudaOp* entry, OpFor(op, params_bytes));
    MILL_ASSIGN_OR_RETURN(const cudaStream_t own, Current(stream));
    return CudaStatus(entry->launch(own, params), NameOf(op));
  }

  // A weight is read as it is; its pack is a dense copy, the transposed one too, for a product can transpose.
  size_t PackedElements(int k, int n) const override {
    return static_cast<size_t>(k) * static_cast<size_t>(n);
  }
  Status Pack(Stream& stream, const float* w, int ldw, int k, int n, float* packed) override {
    MILL_ASSIGN_OR_RETURN(const cudaStream_t own, Current(stream));
    const size_t width = static_cast<size_t>(n) * sizeof(float);
    MILL_CUDA(cudaMemcpy2DAsync(packed, width, w, static_cast<size_t>(ldw) * sizeof(float), width,
                                static_cast<size_t>(k), cudaMemcpyDeviceToDevice, own));
    return absl::OkStatus();
  }
  Status PackTransposed(Stream& stream, const float* w, int ldw, int k, int n, float* packed) override {
    return Pack(stream, w, ldw, k, n, packed);
  }

  Status Forward(Stream& stream, const ForwardArgs& args, Workspace workspace) override {
    MILL_ASSIGN_OR_RETURN(const cudaStream_t own, Current(stream));
    return gemm_->Forward(own, args, workspace);
  }
  Status GradInput(Stream& stream, const GradInputArgs& args, Workspace workspace) override {
    MILL_ASSIGN_OR_RETURN(const cudaStream_t own, Current(stream));
    return gemm_->GradInput(own, args, workspace);
  }
  Status GradWeight(Stream& stream, const GradWeightArgs& args, Workspace workspace) override {
    MILL_ASSIGN_OR_RETURN(const cudaStream_t own, Current(stream));
    return gemm_->GradWeight(own, args, workspace);
  }

 private:
  // A launch goes to the thread's current device.
  static StatusOr<cudaStream_t> Current(Stream& stream) {
    CudaStream& own = AsCuda(stream);
    MILL_CUDA(cudaSetDevice(own.device()));
    return own.get();
  }

  std::unique_ptr<CublasLtGemm> gemm_;
};

}  // namespace

StatusOr<std::unique_ptr<Kernels>> MakeCudaKernels(const DeviceOptions& options) {
  MILL_ASSIGN_OR_RETURN(auto gemm, CublasLtGemm::Make(options.allow_tf32));
  return std::make_unique<CudaKernels>(std::move(gemm));
}

StatusOr<LaunchShape> CudaLaunchShape(OpId op, const void* params, size_t params_bytes) {
  MILL_ASSIGN_OR_RETURN(const CudaOp* entry, OpFor(op, params_bytes));
  return entry->shape(params);
}

}  // namespace millrace
