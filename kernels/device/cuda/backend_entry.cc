// The one symbol that libmillrace_cuda.so shows: the table of backend.h.
#include <cublasLt.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/device/backend.h"
#include "kernels/device/cuda/cuda_device.h"
#include "kernels/device/cuda/cuda_status.h"

namespace millrace {
namespace {

StatusOr<int> CountDevices() {
  int devices = 0;
  const cudaError_t code = cudaGetDeviceCount(&devices);
  if (code == cudaErrorNoDevice) {
    static_cast<void>(cudaGetLastError());  // remembered, and no error here
    return 0;
  }
  MILL_RETURN_IF_ERROR(CudaStatus(code, "cudaGetDeviceCount"));
  return devices;
}

const std::string& BuildText() {
  static const std::string text = [] {
    const auto version = [](size_t v, size_t major, size_t minor) {
      return absl::StrCat(v / major, ".", v % major / minor);
    };
    return absl::StrCat("CUDA ", version(CUDART_VERSION, 1000, 10), ", cuBLASLt ",
                        version(cublasLtGetVersion(), 10000, 100), ", code for ", MILLRACE_CUDA_ARCH_TEXT);
  }();
  return text;
}

}  // namespace
}  // namespace millrace

extern "C" __attribute__((visibility("default"))) const millrace::CudaBackend* MillraceCudaBackend() {
  static const millrace::CudaBackend backend = {millrace::kCudaBackendAbi, millrace::BuildText().c_str(),
                                                millrace::CountDevices, millrace::MakeCudaDevice,
                                                millrace::CudaLaunchShape};
  return &backend;
}
