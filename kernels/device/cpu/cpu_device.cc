#include "kernels/device/cpu/cpu_device.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/device/kernels.h"

namespace millrace {
namespace {

class CpuBuffer final : public Buffer {
 public:
  CpuBuffer(void* data, size_t bytes) : data_(data), bytes_(bytes) {}
  ~CpuBuffer() override { std::free(data_); }
  CpuBuffer(const CpuBuffer&) = delete;
  CpuBuffer& operator=(const CpuBuffer&) = delete;
  void* data() const override { return data_; }
  size_t bytes() const override { return bytes_; }

 private:
  void* data_;
  size_t bytes_;
};

class CpuDevice final : public Device {
 public:
  CpuDevice() : kernels_(MakeCpuKernels()) {}

  StatusOr<DeviceInfo> Info() override {
    DeviceInfo info;
    info.name = "cpu";
    const long page = sysconf(_SC_PAGESIZE), total = sysconf(_SC_PHYS_PAGES),
               free = sysconf(_SC_AVPHYS_PAGES);
    if (page < 0 || total < 0 || free < 0)
      return absl::InternalError("sysconf: the memory's size is not known");
    info.total_bytes = static_cast<size_t>(total) * static_cast<size_t>(page);
    info.free_bytes = static_cast<size_t>(free) * static_cast<size_t>(page);
    return info;
  }

  StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) override {
    constexpr size_t kAlignment = 256;
    if (bytes == 0) return std::make_unique<CpuBuffer>(nullptr, 0);
    const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    void* data = rounded < bytes ? nullptr : std::aligned_alloc(kAlignment, rounded);
    if (data == nullptr)
      return absl::ResourceExhaustedError(absl::StrCat("cpu: no memory for ", bytes, " bytes"));
    return std::make_unique<CpuBuffer>(data, bytes);
  }
  StatusOr<std::unique_ptr<Buffer>> AllocateHost(size_t bytes) override { return Allocate(bytes); }
  StatusOr<std::unique_ptr<Stream>> NewStream() override { return std::make_unique<CpuStream>(); }
  StatusOr<std::unique_ptr<Event>> NewEvent() override { return std::make_unique<CpuEvent>(); }
  Kernels& kernels() override { return *kernels_; }

 private:
  std::unique_ptr<Kernels> kernels_;
};

template <class T, class Base>
T& Own(Base& object) {
  T* own = dynamic_cast<T*>(&object);
  MILL_CHECK(own != nullptr && "an object of another device");
  return *own;
}

}  // namespace

StatusOr<double> CpuEvent::SecondsSince(const Event& earlier) const {
  const CpuEvent& begin = Own<const CpuEvent>(earlier);
  if (!recorded_ || !begin.recorded_) return absl::FailedPreconditionError("event: not recorded");
  return std::chrono::duration<double>(at_ - begin.at_).count();
}

void CpuEvent::Record() {
  at_ = std::chrono::steady_clock::now();
  recorded_ = true;
}

Status CpuGraph::Run() const {
  for (const auto& node : nodes_) MILL_RETURN_IF_ERROR(node());
  return absl::OkStatus();
}

Status CpuStream::CopyToDevice(void* device, const void* host, size_t bytes) {
  return Submit([=] {
    if (bytes != 0) std::memcpy(device, host, bytes);
    return absl::OkStatus();
  });
}

Status CpuStream::CopyToHost(void* host, const void* device, size_t bytes) {
  return CopyToDevice(host, device, bytes);
}

Status CpuStream::Zero(void* device, size_t bytes) {
  return Submit([=] {
    if (bytes != 0) std::memset(device, 0, bytes);
    return absl::OkStatus();
  });
}

Status CpuStream::Synchronize() {
  if (capturing_) return absl::FailedPreconditionError("stream: synchronized while it captures");
  return absl::OkStatus();
}

Status CpuStream::Record(Event& event) {
  CpuEvent& own = Own<CpuEvent>(event);
  return Submit([&own] {
    own.Record();
    return absl::OkStatus();
  });
}

Status CpuStream::Wait(const Event& event) {
  Own<const CpuEvent>(event);
  return absl::OkStatus();
}

Status CpuStream::BeginCapture() {
  if (capturing_) return absl::FailedPreconditionError("stream: it captures already");
  capturing_ = true;
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Graph>> CpuStream::EndCapture() {
  if (!capturing_) return absl::FailedPreconditionError("stream: it captures nothing");
  capturing_ = false;
  return std::make_unique<CpuGraph>(std::exchange(nodes_, {}));
}

Status CpuStream::Launch(Graph& graph) {
  if (capturing_) return absl::UnimplementedError("cpu: a graph within a graph");
  return Own<CpuGraph>(graph).Run();
}

std::unique_ptr<Device> MakeCpuDevice() {
  return std::make_unique<CpuDevice>();
}

}  // namespace millrace
