#include "kernels/ops/cuda/op_table.h"

#include <array>

namespace millrace {
namespace {

using Table = std::array<const CudaOp*, static_cast<size_t>(kOpCount)>;

Table MakeTable() {
  Table table{};
  for (const auto& ops : {CudaDataOps(), CudaPolicyOps(), CudaSacOps(), CudaTrainOps()}) {
    for (const CudaOp& op : ops) table[static_cast<size_t>(op.op)] = &op;
  }
  return table;
}

}  // namespace

const CudaOp* FindCudaOp(OpId op) {
  static const Table table = MakeTable();
  return table[static_cast<size_t>(op)];
}

}  // namespace millrace
