// Parity: one computation, every device. A case is a memory image of random inputs and of outputs to be, and
// what is computed on it. The image is computed on in host memory by the serial team or the reference GEMM,
// and uploaded, computed on and downloaded again by a device; then the two must agree in every byte, those
// between tensors and in inputs too. Tensors of a product have a tolerance instead.
//
// Owner: the test. Threads: one. Station: tests and benchmarks of devices.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "kernels/core/launch.h"
#include "kernels/device/device.h"
#include "kernels/device/kernels.h"
#include "kernels/testing/thread_team.h"

namespace millrace {

// Where a tensor lies in an image; one that was never added is a null pointer.
template <class T>
struct Slot {
  static constexpr size_t kNone = SIZE_MAX;
  size_t offset = kNone;
};

// An image somewhere: on the host, on a device.
struct ImageView {
  std::byte* base = nullptr;
  template <class T>
  T* operator()(Slot<T> slot) const {
    return slot.offset == Slot<T>::kNone ? nullptr : reinterpret_cast<T*>(base + slot.offset);
  }
};

class Image {
 public:
  enum class Kind : uint8_t { kF32, kF64, kBytes };
  enum class Use : uint8_t { kInput, kOutput, kBoth, kScratch };  // scratch is not compared
  struct Tensor {
    std::string name;
    Kind kind;
    Use use;
    size_t offset, bytes;
    double tolerance;  // 0: the same bits; t: |difference| <= t (1 + |reference|)
  };

  explicit Image(uint64_t seed) : seed_(seed) {}

  // Uniform in [lo, hi).
  Slot<float> Random(const char* name, size_t n, float lo, float hi, Use use = Use::kInput);
  Slot<int32_t> Ints(const char* name, size_t n, int lo, int hi);
  // 1 with probability p, or 0.
  Slot<uint8_t> Flags(const char* name, size_t n, double p);
  template <class T>
  Slot<T> Values(const char* name, const std::vector<T>& values, Use use = Use::kInput) {
    const Slot<T> slot = Add<T>(name, values.size(), use);
    std::memcpy(bytes_.data() + slot.offset, values.data(), values.size() * sizeof(T));
    return slot;
  }
  // Filled with a pattern that no result has.
  template <class T>
  Slot<T> Output(const char* name, size_t n, double tolerance = 0.0) {
    const Slot<T> slot = Add<T>(name, n, Use::kOutput);
    tensors_.back().tolerance = tolerance;
    return slot;
  }
  template <class T>
  Slot<T> Scratch(const char* name, size_t n) {
    return Add<T>(name, n, Use::kScratch);
  }
  void SetTolerance(double tolerance) { tensors_.back().tolerance = tolerance; }
  // The next tensor begins so many bytes off a multiple of 64; once.
  void Misalign(size_t bytes) { misalign_ = bytes; }

  template <class T>
  T* Host(Slot<T> slot) {
    return ImageView{bytes_.data()}(slot);
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  // What a kernel has to move: inputs once, outputs once.
  size_t Traffic() const;
  // The same layout, `got` for its bytes: OK, or the first difference and how many there are.
  Status Compare(const std::vector<std::byte>& reference, const std::vector<std::byte>& got) const;

 private:
  template <class T>
  Slot<T> Add(const char* name, size_t n, Use use) {
    constexpr Kind kind = std::is_same_v<T, float>    ? Kind::kF32
                          : std::is_same_v<T, double> ? Kind::kF64
                                                      : Kind::kBytes;
    return {AddBytes(name, kind, use, n * sizeof(T))};
  }
  size_t AddBytes(const char* name, Kind kind, Use use, size_t bytes);

  uint64_t seed_;
  size_t misalign_ = 0;
  std::vector<std::byte> bytes_;
  std::vector<Tensor> tensors_;
};

struct ParityCase {
  std::string name;
  int op = -1;         // OpId, or -1 for a product
  double flops = 0.0;  // of a product
  Image image{0};
  std::function<void(const ImageView&)> reference;
  std::function<Status(Kernels&, Stream&, const ImageView&, Workspace)> run;
  // An op's tiles as a device may run them: by a team, the last one first where tiles are independent, in a
  // Shared that holds anything.
  std::function<void(const ImageView&)> as_blocks;
  // The op's Params for an image at this place, as bytes; null for a product.
  std::function<std::vector<std::byte>(const ImageView&)> params;
};

// A case of one op, from what makes its Params.
template <class Op>
ParityCase OpCase(std::string name, Image image, std::function<typename Op::Params(const ImageView&)> make) {
  ParityCase c;
  c.name = std::move(name);
  c.op = static_cast<int>(kOpId<Op>);
  c.image = std::move(image);
  c.reference = [make](const ImageView& view) { RunSerial<Op>(make(view)); };
  c.run = [make](Kernels& kernels, Stream& stream, const ImageView& view, Workspace) {
    return kernels.Run<Op>(stream, make(view));
  };
  c.as_blocks = [make](const ImageView& view) {
    const typename Op::Params params = make(view);
    bool in_order = false;
    if constexpr (requires { params.tile_stride; }) in_order = params.tile_stride == 0;
    const int last = Op::Tiles(params) - 1;
    if (last < 0) return;
    RunThreads<Op>(params, 4, in_order ? 0 : last, in_order ? last : 0, in_order ? 1 : -1);
  };
  c.params = [make](const ImageView& view) {
    const typename Op::Params params = make(view);
    std::vector<std::byte> bytes(sizeof(params));
    std::memcpy(bytes.data(), &params, sizeof(params));
    return bytes;
  };
  return c;
}

// All cases: every op of op_list.h, every product with every activation; sizes around those of tiles.
std::vector<ParityCase> ParityCases();
// Sizes of a real update, one or two cases an op.
std::vector<ParityCase> LargeCases();

// What a device makes of a case's image: uploaded, computed on (as a captured graph if asked), downloaded.
StatusOr<std::vector<std::byte>> RunCase(const ParityCase& c, Device& device, Stream& stream, bool graph);

// Runs a case on a device, once as it is and once as a captured graph, and compares each with the reference.
Status RunParity(const ParityCase& c, Device& device);

}  // namespace millrace
