// CUDA's return codes as Status. Every call of the runtime goes through MILL_CUDA, which returns from the
// enclosing function with the call's text, CUDA's name of the code and its explanation. Pure; any thread.
#pragma once

#include <cuda_runtime_api.h>

#include "common/status.h"

namespace millrace {

[[nodiscard]] Status CudaStatus(cudaError_t code, const char* call);

// For destructors, which have nobody to tell: prints what failed. A runtime that is shutting down is no
// failure.
void ReportCuda(cudaError_t code, const char* call);

}  // namespace millrace

#define MILL_CUDA(call) MILL_RETURN_IF_ERROR(::millrace::CudaStatus((call), #call))
