// A backend library of another interface, which the loader has to refuse; for backend_test.
#include "kernels/device/backend.h"

extern "C" const millrace::CudaBackend* MillraceCudaBackend() {
  static const millrace::CudaBackend backend = {millrace::kCudaBackendAbi + 1, "other", nullptr, nullptr,
                                                nullptr};
  return &backend;
}
