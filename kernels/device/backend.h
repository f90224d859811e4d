// Where devices come from. The CUDA backend is a library of its own, libmillrace_cuda.so, that the program
// loads when the driver reports a device; so the same program starts where there is neither. Nothing falls
// back: a device that was asked for and is not there is an error that says what is missing.
//
// The library is looked for in this order: the file that $MILLRACE_CUDA_LIBRARY names (then nowhere else);
// beside the program; in ../lib beside it; where the system's loader looks. It is loaded once and stays.
//
// Threads: any. Station: program start.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/status.h"
#include "kernels/device/device.h"
#include "kernels/device/kernels.h"

namespace millrace {

// The library's face: one C symbol, MillraceCudaBackend, returns this table. Both sides are built from these
// headers by one compiler; `abi` says whether they were the same headers, and is checked before anything else
// is read. It is raised with every change of device.h, kernels.h, gemm.h's arguments or the list of ops.
inline constexpr uint32_t kCudaBackendAbi = 1;
struct CudaBackend {
  uint32_t abi;
  const char* build;  // "CUDA 13.0, cuBLASLt 13.1.0, sm_80"
  StatusOr<int> (*count_devices)();
  StatusOr<std::unique_ptr<Device>> (*make_device)(int index, const DeviceOptions& options);
  // How the op would be launched; needs no device.
  StatusOr<LaunchShape> (*launch_shape)(OpId op, const void* params, size_t params_bytes);
};

// How many devices the driver has; NotFound where there is no driver, Unavailable where it does not work.
// Reads the driver alone, not our library.
[[nodiscard]] StatusOr<int> CountCudaDevices();

// The table, whether or not there is a device. The first answer is kept.
[[nodiscard]] StatusOr<const CudaBackend*> LoadCudaBackend();
// The same from one file.
[[nodiscard]] StatusOr<const CudaBackend*> LoadCudaBackendFrom(const std::string& path);

// "cpu", "cuda" (the first one) or "cuda:N".
[[nodiscard]] StatusOr<std::unique_ptr<Device>> OpenDevice(std::string_view name,
                                                           const DeviceOptions& options = {});

// A line a device, and why where there is none.
std::string DescribeDevices();

}  // namespace millrace
