// CudaTeam: the threads of one block as a Team (core/team.h). Made by the launcher, lives in a kernel; device
// code only.
#pragma once

namespace millrace {

class CudaTeam {
 public:
  static constexpr bool size_is_one = false;

  __device__ __forceinline__ int rank() const { return static_cast<int>(threadIdx.x); }
  __device__ __forceinline__ int size() const { return static_cast<int>(blockDim.x); }
  __device__ __forceinline__ void Sync() const { __syncthreads(); }
};

}  // namespace millrace
