#include "kernels/device/cuda/cuda_status.h"

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"

namespace millrace {

Status CudaStatus(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return absl::OkStatus();
  // The runtime also remembers the code for the next cudaGetLastError, which would then blame an innocent
  // call.
  const cudaError_t remembered = cudaGetLastError();
  std::string text = absl::StrCat(call, ": ", cudaGetErrorString(code), " (", cudaGetErrorName(code), ")");
  if (remembered != cudaSuccess && remembered != code) {
    absl::StrAppend(&text, ", after ", cudaGetErrorName(remembered));
  }
  switch (code) {
    case cudaErrorMemoryAllocation:
      return absl::ResourceExhaustedError(text);
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
      return absl::UnavailableError(text);
    case cudaErrorInvalidValue:
    case cudaErrorInvalidDevice:
      return absl::InvalidArgumentError(text);
    default:
      return absl::InternalError(text);
  }
}

void ReportCuda(cudaError_t code, const char* call) {
  if (code == cudaErrorCudartUnloading) return;
  const Status status = CudaStatus(code, call);
  if (!status.ok()) std::fprintf(stderr, "cuda: %s\n", std::string(status.message()).c_str());
}

}  // namespace millrace
