// GatherRows: rows of an f32, u8 or i32 source, picked by an index, become dense float32 rows; u8 is scaled
// by 1/255. Where a normaliser is given it is applied in the same pass. Station: batch_assembler,
// policy_runner. Any thread.
#pragma once

#include "common/spec.h"
#include "kernels/core/launch.h"
#include "kernels/ops/running_stats.h"
#include "kernels/ops/scalar.h"

namespace millrace {

struct GatherRows {
  static constexpr int kRows = 16;

  struct Params {
    int rows, dims;
    const void* src;  // [*, dims] of dtype, rows src_stride_bytes apart
    DType dtype;
    size_t src_stride_bytes;
    const int32_t* index;  // [rows] source rows, or null: row i is source row i
    const float* mean;     // [dims] or null: no normalisation
    const float* inv_std;  // [dims]
    float clip;
    float* dst;  // [rows, dst_ld]
    int dst_ld;
  };
  struct Shared {};

  static int Tiles(const Params& p) { return CeilDiv(p.rows, kRows); }

  template <class Team>
  MILL_HD void operator()(Team& team, int tile, const Params& p, Shared&) const {
    const int end = MinOf(p.rows, (tile + 1) * kRows);
    for (int r = tile * kRows; r < end; ++r) {
      const size_t from = p.index == nullptr ? static_cast<size_t>(r) : static_cast<size_t>(p.index[r]);
      const char* src = static_cast<const char*>(p.src) + from * p.src_stride_bytes;
      float* dst = p.dst + static_cast<size_t>(r) * p.dst_ld;
      switch (p.dtype) {
        case DType::kF32:
          Row(team, p, reinterpret_cast<const float*>(src), 1.0f, dst);
          break;
        case DType::kU8:
          Row(team, p, reinterpret_cast<const uint8_t*>(src), 1.0f / 255.0f, dst);
          break;
        case DType::kI32:
          Row(team, p, reinterpret_cast<const int32_t*>(src), 1.0f, dst);
          break;
      }
    }
  }

 private:
  template <class Team, class T>
  static MILL_HD void Row(Team& team, const Params& p, const T* src, float scale, float* dst) {
    if (p.mean == nullptr) {
      MILL_SIMD
      for (int d = team.rank(); d < p.dims; d += team.size()) dst[d] = static_cast<float>(src[d]) * scale;
    } else {
      MILL_SIMD
      for (int d = team.rank(); d < p.dims; d += team.size()) {
        dst[d] = NormalizeValue(static_cast<float>(src[d]) * scale, p.mean[d], p.inv_std[d], p.clip);
      }
    }
  }
};

}  // namespace millrace
