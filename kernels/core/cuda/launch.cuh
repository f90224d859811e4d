// How CUDA runs an op: a block a tile, a grid stride over tiles, the op's Shared in the block's dynamic
// shared memory, uninitialised. An op's Params travel as the kernel's argument. Host code of the backend's
// library; any thread. The counterpart of RunSerial in core/launch.h.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/core/cuda/cuda_team.cuh"
#include "kernels/ops/cuda/op_table.h"

namespace millrace {

// More blocks than any device holds at once, and few enough that a block's start costs little.
inline constexpr int kMaxBlocks = 8192;
// What every device since Turing gives a block without being asked, and what the smallest of them (8.6, 8.9)
// can be asked for.
inline constexpr size_t kPlainSharedBytes = 48 << 10;
inline constexpr size_t kMostSharedBytes = 99 << 10;

// Threads of an op's block: as many as a tile has independent items, where that is not 128.
template <class Op>
inline constexpr int kThreadsOf = 128;

template <class Op>
__global__ void __launch_bounds__(kThreadsOf<Op>)
    OpKernel(const __grid_constant__ typename Op::Params params, int tiles) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<typename Op::Shared*>(shared_bytes);
  CudaTeam team;
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x)) {
    Op{}(team, tile, params, shared);
    team.Sync();  // the next tile writes Shared
  }
}

template <class Op>
typename Op::Params ParamsFrom(const void* bytes) {
  static_assert(std::is_trivially_copyable_v<typename Op::Params>);
  typename Op::Params params;
  std::memcpy(&params, bytes, sizeof(params));
  return params;
}

template <class Op>
constexpr size_t SharedBytes() {
  using Shared = typename Op::Shared;
  static_assert(std::is_trivially_default_constructible_v<Shared> && alignof(Shared) <= 16);
  static_assert(sizeof(Shared) <= kMostSharedBytes, "Shared fits no block of the smaller devices");
  return std::is_empty_v<Shared> ? 0 : sizeof(Shared);
}

template <class Op>
LaunchShape ShapeOf(const typename Op::Params& params) {
  LaunchShape shape;
  shape.tiles = Op::Tiles(params);
  shape.blocks = std::min(shape.tiles, kMaxBlocks);
  // Tiles that add to one place take turns: a single block walks them in order.
  if constexpr (requires { params.tile_stride; }) {
    if (params.tile_stride == 0) shape.blocks = std::min(shape.tiles, 1);
  }
  shape.threads = kThreadsOf<Op>;
  shape.shared_bytes = SharedBytes<Op>();
  return shape;
}

template <class Op>
cudaError_t LaunchOp(cudaStream_t stream, const void* bytes) {
  typename Op::Params params = ParamsFrom<Op>(bytes);
  const LaunchShape shape = ShapeOf<Op>(params);
  if (shape.tiles <= 0) return cudaSuccess;
  const void* kernel = reinterpret_cast<const void*>(&OpKernel<Op>);
  if constexpr (SharedBytes<Op>() > kPlainSharedBytes) {
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                   static_cast<int>(shape.shared_bytes));
    if (error != cudaSuccess) return error;
  }
  int tiles = shape.tiles;
  void* arguments[] = {&params, &tiles};
  return cudaLaunchKernel(kernel, dim3(static_cast<unsigned>(shape.blocks)),
                          dim3(static_cast<unsigned>(shape.threads)), arguments, shape.shared_bytes, stream);
}

template <class Op>
CudaOp OpEntry() {
  return {kOpId<Op>, sizeof(typename Op::Params), LaunchOp<Op>,
          [](const void* bytes) { return ShapeOf<Op>(ParamsFrom<Op>(bytes)); }};
}

}  // namespace millrace
