#include "kernels/device/cuda/cuda_device.h"

#include "absl/strings/str_cat.h"
#include "kernels/device/cuda/cuda_status.h"

namespace millrace {
namespace {

template <class T, class Base>
T& Own(Base& object) {
  T* own = dynamic_cast<T*>(&object);
  MILL_CHECK(own != nullptr && "an object of another device");
  return *own;
}

class DeviceBuffer final : public Buffer {
 public:
  DeviceBuffer(void* data, size_t bytes) : data_(data), bytes_(bytes) {}
  ~DeviceBuffer() override { ReportCuda(cudaFree(data_), "cudaFree"); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  void* data() const override { return data_; }
  size_t bytes() const override { return bytes_; }

 private:
  void* data_;
  size_t bytes_;
};

class PinnedBuffer final : public Buffer {
 public:
  PinnedBuffer(void* data, size_t bytes) : data_(data), bytes_(bytes) {}
  ~PinnedBuffer() override { ReportCuda(cudaFreeHost(data_), "cudaFreeHost"); }
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  void* data() const override { return data_; }
  size_t bytes() const override { return bytes_; }

 private:
  void* data_;
  size_t bytes_;
};

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(cudaEvent_t event) : event_(event) {}
  ~CudaEvent() override { ReportCuda(cudaEventDestroy(event_), "cudaEventDestroy"); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  Status Synchronize() override {
    MILL_CUDA(cudaEventSynchronize(event_));
    return absl::OkStatus();
  }
  StatusOr<double> SecondsSince(const Event& earlier) const override {
    float milliseconds = 0.0f;
    MILL_CUDA(cudaEventElapsedTime(&milliseconds, Own<const CudaEvent>(earlier).event_, event_));
    return 1e-3 * static_cast<double>(milliseconds);
  }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_;
};

class CudaGraph final : public Graph {
 public:
  explicit CudaGraph(cudaGraphExec_t graph) : graph_(graph) {}
  ~CudaGraph() override { ReportCuda(cudaGraphExecDestroy(graph_), "cudaGraphExecDestroy"); }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  cudaGraphExec_t get() const { return graph_; }

 private:
  cudaGraphExec_t graph_;
};

class CudaDevice final : public Device {
 public:
  CudaDevice(int index, std::unique_ptr<Kernels> kernels) : index_(index), kernels_(std::move(kernels)) {}

  StatusOr<DeviceInfo> Info() override {
    MILL_CUDA(cudaSetDevice(index_));
    cudaDeviceProp properties;
    MILL_CUDA(cudaGetDeviceProperties(&properties, index_));
    DeviceInfo info;
    info.name = properties.name;
    info.kind = DeviceKind::kCuda;
    info.index = index_;
    info.multiprocessors = properties.multiProcessorCount;
    info.capability = properties.major * 10 + properties.minor;
    MILL_CUDA(cudaMemGetInfo(&info.free_bytes, &info.total_bytes));
    return info;
  }

  StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) override {
    MILL_CUDA(cudaSetDevice(index_));
    void* data = nullptr;
    if (bytes != 0) MILL_RETURN_IF_ERROR(Named(cudaMalloc(&data, bytes), "cudaMalloc", bytes));
    return std::make_unique<DeviceBuffer>(data, bytes);
  }
  StatusOr<std::unique_ptr<Buffer>> AllocateHost(size_t bytes) override {
    MILL_CUDA(cudaSetDevice(index_));
    void* data = nullptr;
    if (bytes != 0) MILL_RETURN_IF_ERROR(Named(cudaMallocHost(&data, bytes), "cudaMallocHost", bytes));
    return std::make_unique<PinnedBuffer>(data, bytes);
  }
  StatusOr<std::unique_ptr<Stream>> NewStream() override {
    MILL_CUDA(cudaSetDevice(index_));
    cudaStream_t stream = nullptr;
    MILL_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return std::make_unique<CudaStream>(index_, stream);
  }
  StatusOr<std::unique_ptr<Event>> NewEvent() override {
    MILL_CUDA(cudaSetDevice(index_));
    cudaEvent_t event = nullptr;
    MILL_CUDA(cudaEventCreate(&event));
    return std::make_unique<CudaEvent>(event);
  }
  Kernels& kernels() override { return *kernels_; }

 private:
  Status Named(cudaError_t code, const char* call, size_t bytes) const {
    return CudaStatus(code, absl::StrCat(call, " of ", bytes, " bytes on cuda:", index_).c_str());
  }

  int index_;
  std::unique_ptr<Kernels> kernels_;
};

}  // namespace

CudaStream& AsCuda(Stream& stream) {
  return Own<CudaStream>(stream);
}

CudaStream::~CudaStream() {
  ReportCuda(cudaStreamDestroy(stream_), "cudaStreamDestroy");
}

Status CudaStream::CopyToDevice(void* device, const void* host, size_t bytes) {
  MILL_CUDA(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_));
  return absl::OkStatus();
}

Status CudaStream::CopyToHost(void* host, const void* device, size_t bytes) {
  MILL_CUDA(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_));
  return absl::OkStatus();
}

Status CudaStream::Zero(void* device, size_t bytes) {
  MILL_CUDA(cudaMemsetAsync(device, 0, bytes, stream_));
  return absl::OkStatus();
}

Status CudaStream::Synchronize() {
  MILL_CUDA(cudaStreamSynchronize(stream_));
  return absl::OkStatus();
}

Status CudaStream::Record(Event& event) {
  MILL_CUDA(cudaEventRecord(Own<CudaEvent>(event).get(), stream_));
  return absl::OkStatus();
}

Status CudaStream::Wait(const Event& event) {
  MILL_CUDA(cudaStreamWaitEvent(stream_, Own<const CudaEvent>(event).get(), 0));
  return absl::OkStatus();
}

Status CudaStream::BeginCapture() {
  MILL_CUDA(cudaSetDevice(device_));
  MILL_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Graph>> CudaStream::EndCapture() {
  cudaGraph_t captured = nullptr;
  MILL_CUDA(cudaStreamEndCapture(stream_, &captured));
  cudaGraphExec_t graph = nullptr;
  const Status made = CudaStatus(cudaGraphInstantiate(&graph, captured, 0), "cudaGraphInstantiate");
  ReportCuda(cudaGraphDestroy(captured), "cudaGraphDestroy");
  MILL_RETURN_IF_ERROR(made);
  return std::make_unique<CudaGraph>(graph);
}

Status CudaStream::Launch(Graph& graph) {
  MILL_CUDA(cudaGraphLaunch(Own<CudaGraph>(graph).get(), stream_));
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Device>> MakeCudaDevice(int index, const DeviceOptions& options) {
  MILL_CUDA(cudaSetDevice(index));
  MILL_ASSIGN_OR_RETURN(std::unique_ptr<Kernels> kernels, MakeCudaKernels(options));
  return std::make_unique<CudaDevice>(index, std::move(kernels));
}

}  // namespace millrace
