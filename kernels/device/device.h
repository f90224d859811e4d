// Device: where kernels run and their memory lies, behind one interface without CUDA headers; cpu/ runs
// everything at once in the caller's thread, cuda/ is a library that the program loads (backend.h).
//
// A Stream is a queue: what is submitted to it runs in order; streams run beside each other, ordered by
// events alone. Host memory that a copy reads or writes must stay until the stream has been synchronized.
// Errors of what a stream runs come back from the call or from a later one on the same stream, Synchronize at
// the latest; each names the function that failed and its code.
//
// Owner: whoever makes it; a Device outlives all that it made. Threads: a Device may be used by any thread at
// once, a Stream, Event or Graph by one at a time. Station: under policy_runner and train_step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "common/status.h"

namespace millrace {

class Kernels;

enum class DeviceKind : uint8_t { kCpu, kCuda };

struct DeviceInfo {
  std::string name;  // "cpu", "NVIDIA H200"
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;
  int multiprocessors = 0;  // 0 on the CPU
  int capability = 0;       // CUDA's compute capability, major * 10 + minor; 0 on the CPU
  size_t total_bytes = 0;   // of memory
  size_t free_bytes = 0;
};

struct DeviceOptions {
  bool allow_tf32 = false;  // GEMM inputs rounded to 10 bits of mantissa, for speed; CUDA only
};

// Memory of a device, or host memory that a device copies from and to without a detour.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual void* data() const = 0;  // null where bytes() is 0; 256-byte aligned
  virtual size_t bytes() const = 0;
};

// A point in a stream's work.
class Event {
 public:
  virtual ~Event() = default;
  // Waits until all work before the point is done; at once where nothing was recorded.
  [[nodiscard]] virtual Status Synchronize() = 0;
  // Seconds from `earlier` to this; both recorded and done.
  [[nodiscard]] virtual StatusOr<double> SecondsSince(const Event& earlier) const = 0;
};

// Captured work, to be launched any number of times. Arguments are those of the capture: what changes between
// launches lives in device memory.
class Graph {
 public:
  virtual ~Graph() = default;
};

class Stream {
 public:
  virtual ~Stream() = default;
  [[nodiscard]] virtual Status CopyToDevice(void* device, const void* host, size_t bytes) = 0;
  [[nodiscard]] virtual Status CopyToHost(void* host, const void* device, size_t bytes) = 0;
  [[nodiscard]] virtual Status Zero(void* device, size_t bytes) = 0;
  [[nodiscard]] virtual Status Synchronize() = 0;
  [[nodiscard]] virtual Status Record(Event& event) = 0;
  [[nodiscard]] virtual Status Wait(const Event& event) = 0;
  // Between the two, what is submitted is kept and not run; Synchronize is an error there.
  [[nodiscard]] virtual Status BeginCapture() = 0;
  [[nodiscard]] virtual StatusOr<std::unique_ptr<Graph>> EndCapture() = 0;
  [[nodiscard]] virtual Status Launch(Graph& graph) = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  [[nodiscard]] virtual StatusOr<DeviceInfo> Info() = 0;
  // Contents are undefined. ResourceExhausted, naming the bytes, where there is not that much memory.
  [[nodiscard]] virtual StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) = 0;
  [[nodiscard]] virtual StatusOr<std::unique_ptr<Buffer>> AllocateHost(size_t bytes) = 0;
  [[nodiscard]] virtual StatusOr<std::unique_ptr<Stream>> NewStream() = 0;
  [[nodiscard]] virtual StatusOr<std::unique_ptr<Event>> NewEvent() = 0;
  // Every op and every product, on this device's streams.
  virtual Kernels& kernels() = 0;
};

std::unique_ptr<Device> MakeCpuDevice();

}  // namespace millrace
