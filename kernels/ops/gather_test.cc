#include "kernels/ops/gather.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/testing/same_bits.h"

namespace millrace {
namespace {

constexpr int kDims = 21;
constexpr int kStride = 24;  // elements from one source row to the next
const std::vector<int32_t> kIndex = {4, 0, 4, 2, 1, 3, 3, 0, 1, 2, 4, 4, 0, 3, 2, 1, 0, 4, 2};

template <class T>
void Check(DType dtype, float scale) {
  std::vector<T> src(5 * kStride);
  for (size_t i = 0; i < src.size(); ++i) src[i] = static_cast<T>((i * 37) % 251);
  std::vector<float> mean(kDims), inv_std(kDims);
  for (int d = 0; d < kDims; ++d) {
    mean[d] = 0.1f * static_cast<float>(d);
    inv_std[d] = 1.0f / (1.0f + static_cast<float>(d));
  }
  const int rows = static_cast<int>(kIndex.size()), ld = kDims + 3;
  for (bool normalise : {false, true}) {
    for (bool indexed : {false, true}) {
      const int n = indexed ? rows : 5;
      std::vector<float> dst(static_cast<size_t>(rows) * ld, -1.0f);
      ExpectSameBits<GatherRows>({.rows = n,
                                  .dims = kDims,
                                  .src = src.data(),
                                  .dtype = dtype,
                                  .src_stride_bytes = kStride * sizeof(T),
                                  .index = indexed ? kIndex.data() : nullptr,
                                  .mean = normalise ? mean.data() : nullptr,
                                  .inv_std = inv_std.data(),
                                  .clip = 1.5f,
                                  .dst = dst.data(),
                                  .dst_ld = ld},
                                 {dst});
      for (int r = 0; r < rows; ++r) {
        const int from = indexed ? kIndex[static_cast<size_t>(r)] : r;
        for (int d = 0; d < ld; ++d) {
          float want = -1.0f;
          if (d < kDims && r < n) {
            want = static_cast<float>(src[static_cast<size_t>(from * kStride + d)]) * scale;
            if (normalise) want = ClampTo((want - mean[d]) * inv_std[d], -1.5f, 1.5f);
          }
          ASSERT_EQ(dst[static_cast<size_t>(r) * ld + d], want);
        }
      }
    }
  }
}

TEST(GatherRows, Float) {
  Check<float>(DType::kF32, 1.0f);
}
TEST(GatherRows, Bytes) {
  Check<uint8_t>(DType::kU8, 1.0f / 255.0f);
}
TEST(GatherRows, Integers) {
  Check<int32_t>(DType::kI32, 1.0f);
}

}  // namespace
}  // namespace millrace
