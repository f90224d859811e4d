// The CPU as a Device: every call runs at once in the caller's thread, so a stream is always empty and an
// event is a time. A capture keeps the calls as closures. Owner and threads: as device.h says.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/device/device.h"

namespace millrace {

class CpuEvent final : public Event {
 public:
  Status Synchronize() override { return absl::OkStatus(); }
  StatusOr<double> SecondsSince(const Event& earlier) const override;
  void Record();

 private:
  bool recorded_ = false;
  std::chrono::steady_clock::time_point at_;
};

class CpuGraph final : public Graph {
 public:
  using Nodes = std::vector<std::function<Status()>>;
  explicit CpuGraph(Nodes nodes) : nodes_(std::move(nodes)) {}
  Status Run() const;

 private:
  Nodes nodes_;
};

class CpuStream final : public Stream {
 public:
  Status CopyToDevice(void* device, const void* host, size_t bytes) override;
  Status CopyToHost(void* host, const void* device, size_t bytes) override;
  Status Zero(void* device, size_t bytes) override;
  Status Synchronize() override;
  Status Record(Event& event) override;
  Status Wait(const Event& event) override;
  Status BeginCapture() override;
  StatusOr<std::unique_ptr<Graph>> EndCapture() override;
  Status Launch(Graph& graph) override;

  // Runs f, or keeps it while a capture goes on.
  template <class F>
  Status Submit(F f) {
    if (!capturing_) return f();
    nodes_.emplace_back(std::move(f));
    return absl::OkStatus();
  }
  bool capturing() const { return capturing_; }

 private:
  bool capturing_ = false;
  CpuGraph::Nodes nodes_;
};

std::unique_ptr<Kernels> MakeCpuKernels();

}  // namespace millrace
