// Kernels: all that a device computes, submitted to a stream of it: ops by their number, products by their
// arguments. Pointers in Params and in GEMM arguments are the device's. A wrong size of Params, a shape that
// the backend cannot do and a launch that fails are errors that name the op.
//
// Owner: the Device. Threads: any, on different streams. Station: policy_runner, train_step.
#pragma once

#include <cstddef>

#include "common/status.h"
#include "kernels/device/device.h"
#include "kernels/device/launch_shape.h"
#include "kernels/gemm/gemm.h"
#include "kernels/ops/op_list.h"

namespace millrace {

// Device memory that a product may use until the stream has run it; products of one stream may share it.
struct Workspace {
  void* data = nullptr;
  size_t bytes = 0;
};
inline constexpr size_t kWorkspaceBytes = size_t{32} << 20;  // what cuBLAS asks for on Hopper and later

class Kernels {
 public:
  virtual ~Kernels() = default;
  // params points to the op's Params; it is copied before the call returns.
  [[nodiscard]] virtual Status RunOp(Stream& stream, OpId op, const void* params, size_t params_bytes) = 0;

  // Packs are private to their backend; see gemm.h. w is [k, n] f32, packed has packed_elements(k, n) floats,
  // or (n, k) for the transposed one.
  virtual size_t PackedElements(int k, int n) const = 0;
  [[nodiscard]] virtual Status Pack(Stream& stream, const float* w, int ldw, int k, int n, float* packed) = 0;
  [[nodiscard]] virtual Status PackTransposed(Stream& stream, const float* w, int ldw, int k, int n,
                                              float* packed) = 0;
  [[nodiscard]] virtual Status Forward(Stream& stream, const ForwardArgs& args, Workspace workspace) = 0;
  [[nodiscard]] virtual Status GradInput(Stream& stream, const GradInputArgs& args, Workspace workspace) = 0;
  [[nodiscard]] virtual Status GradWeight(Stream& stream, const GradWeightArgs& args,
                                          Workspace workspace) = 0;

  template <class Op>
  [[nodiscard]] Status Run(Stream& stream, const typename Op::Params& params) {
    return RunOp(stream, kOpId<Op>, &params, sizeof(params));
  }
};

}  // namespace millrace
