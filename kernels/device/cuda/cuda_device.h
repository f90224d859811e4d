// A CUDA device as a Device. Calls make their device the thread's current one, so threads may use several.
// Owner and threads: as device.h says. Station: under policy_runner and train_step, in libmillrace_cuda.so.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "kernels/device/device.h"
#include "kernels/device/kernels.h"

namespace millrace {

class CudaStream final : public Stream {
 public:
  CudaStream(int device, cudaStream_t stream) : device_(device), stream_(stream) {}
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  Status CopyToDevice(void* device, const void* host, size_t bytes) override;
  Status CopyToHost(void* host, const void* device, size_t bytes) override;
  Status Zero(void* device, size_t bytes) override;
  Status Synchronize() override;
  Status Record(Event& event) override;
  Status Wait(const Event& event) override;
  Status BeginCapture() override;
  StatusOr<std::unique_ptr<Graph>> EndCapture() override;
  Status Launch(Graph& graph) override;

  cudaStream_t get() const { return stream_; }
  int device() const { return device_; }

 private:
  int device_;
  cudaStream_t stream_;
};

// The stream's own kind; another device's stream is a bug of ours.
CudaStream& AsCuda(Stream& stream);

StatusOr<std::unique_ptr<Device>> MakeCudaDevice(int index, const DeviceOptions& options);

// Of the device that is current.
StatusOr<std::unique_ptr<Kernels>> MakeCudaKernels(const DeviceOptions& options);

// Needs no device.
StatusOr<LaunchShape> CudaLaunchShape(OpId op, const void* params, size_t params_bytes);

}  // namespace millrace
