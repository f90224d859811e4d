#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/core/launch.h"
#include "kernels/device/cpu/cpu_device.h"
#include "kernels/device/kernels.h"
#include "kernels/ops/all_ops.h"

namespace millrace {
namespace {

struct CpuOp {
  size_t params_bytes;
  void (*run)(const void* params);
};

template <class Op>
void RunBytes(const void* params) {
  typename Op::Params copy;
  std::memcpy(&copy, params, sizeof(copy));
  RunSerial<Op>(copy);
}

constexpr CpuOp kOps[] = {
#define MILL_CPU_OP(name) {sizeof(name::Params), RunBytes<name>},
    MILL_OPS(MILL_CPU_OP)
#undef MILL_CPU_OP
};

class CpuKernels final : public Kernels {
 public:
  Status RunOp(Stream& stream, OpId op, const void* params, size_t params_bytes) override {
    const CpuOp& entry = kOps[static_cast<size_t>(op)];
    if (params_bytes != entry.params_bytes) {
      return absl::InvalidArgumentError(absl::StrCat("cpu: ", NameOf(op), ": its Params have ",
                                                     entry.params_bytes, " bytes, not ", params_bytes));
    }
    CpuStream& own = Own(stream);
    if (!own.capturing()) {  // the common case: nothing to keep
      entry.run(params);
      return absl::OkStatus();
    }
    const auto* bytes = static_cast<const unsigned char*>(params);
    return own.Submit([run = entry.run, kept = std::vector<unsigned char>(bytes, bytes + params_bytes)] {
      run(kept.data());
      return absl::OkStatus();
    });
  }

  size_t PackedElements(int k, int n) const override { return kCpuGemm.packed_elements(k, n); }
  Status Pack(Stream& stream, const float* w, int ldw, int k, int n, float* packed) override {
    return Submit(stream, [=] { kCpuGemm.pack(w, ldw, k, n, packed); });
  }
  Status PackTransposed(Stream& stream, const float* w, int ldw, int k, int n, float* packed) override {
    return Submit(stream, [=] { kCpuGemm.pack_transposed(w, ldw, k, n, packed); });
  }
  Status Forward(Stream& stream, const ForwardArgs& args, Workspace) override {
    return Submit(stream, [=] { kCpuGemm.forward(args); });
  }
  Status GradInput(Stream& stream, const GradInputArgs& args, Workspace) override {
    return Submit(stream, [=] { kCpuGemm.grad_input(args); });
  }
  Status GradWeight(Stream& stream, const GradWeightArgs& args, Workspace) override {
    return Submit(stream, [=] { kCpuGemm.grad_weight(args); });
  }

 private:
  static CpuStream& Own(Stream& stream) {
    auto* own = dynamic_cast<CpuStream*>(&stream);
    MILL_CHECK(own != nullptr && "a stream of another device");
    return *own;
  }
  template <class F>
  static Status Submit(Stream& stream, F f) {
    return Own(stream).Submit([f] {
      f();
      return absl::OkStatus();
    });
  }
};

}  // namespace

std::unique_ptr<Kernels> MakeCpuKernels() {
  return std::make_unique<CpuKernels>();
}

}  // namespace millrace
