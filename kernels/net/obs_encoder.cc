#include "kernels/net/obs_encoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/core/target.h"

namespace millrace {

ObsEncoder::ObsEncoder(const EnvSpec& spec, bool normalize, float clip)
    : arrays_(spec.observations), normalize_(normalize), clip_(clip) {
  for (const ArraySpec& array : arrays_) {
    offset_.push_back(width_);
    width_ += array.elements();
  }
  mean64_.assign(static_cast<size_t>(width_), 0.0);
  variance64_.assign(static_cast<size_t>(width_), 1.0);
  mean_.assign(static_cast<size_t>(width_), 0.0f);
  inv_std_.assign(static_cast<size_t>(width_), 1.0f);
  passthrough_ = arrays_.size() == 1 && arrays_[0].dtype == DType::kF32 && !normalize && clip <= 0;
}

void ObsEncoder::SetStatistics(const double* mean, const double* variance) {
  for (size_t i = 0; i < mean_.size(); ++i) {
    mean64_[i] = mean[i];
    variance64_[i] = variance[i];
    mean_[i] = static_cast<float>(mean[i]);
    inv_std_[i] = static_cast<float>(1.0 / std::sqrt(variance[i] + 1e-8));
  }
}

void ObsEncoder::ConvertPart(int array, int first, int elements, const std::byte* in, float* out) const {
  const auto a = static_cast<size_t>(array);
  ConvertValues(a, elements, in, out + offset_[a] + first);
}

void ObsEncoder::ConvertValues(size_t array, int n, const std::byte* in, float* out) const {
  switch (arrays_[array].dtype) {
    case DType::kF32:
      std::memcpy(out, in, static_cast<size_t>(n) * sizeof(float));
      break;
    case DType::kU8:
      for (int i = 0; i < n; ++i)
        out[i] = static_cast<float>(reinterpret_cast<const uint8_t*>(in)[i]) * (1.0f / 255);
      break;
    case DType::kI32:
      for (int i = 0; i < n; ++i) out[i] = static_cast<float>(reinterpret_cast<const int32_t*>(in)[i]);
      break;
  }
}

void ObsEncoder::Normalize(float* x) const {
  if (normalize_) {
    MILL_SIMD
    for (int i = 0; i < width_; ++i)
      x[i] = (x[i] - mean_[static_cast<size_t>(i)]) * inv_std_[static_cast<size_t>(i)];
  }
  if (clip_ > 0) {
    for (int i = 0; i < width_; ++i) x[i] = std::min(std::max(x[i], -clip_), clip_);
  }
}

void ObsEncoder::RawRow(const SegmentView& segment, int t, int row, float* out) const {
  for (size_t a = 0; a < arrays_.size(); ++a) {
    const int array = static_cast<int>(a);
    Convert(a, segment.obs(array, t) + static_cast<size_t>(row) * segment.obs_row_bytes(array),
            out + offset_[a]);
  }
}

void ObsEncoder::EncodeRow(const SegmentView& segment, int t, int row, float* out) const {
  RawRow(segment, t, row, out);
  Normalize(out);
}

void ObsEncoder::EncodeFinal(const SegmentView& segment, int entry, float* out) const {
  for (size_t a = 0; a < arrays_.size(); ++a)
    Convert(a, segment.final_obs(static_cast<int>(a), entry), out + offset_[a]);
  Normalize(out);
}

const float* ObsEncoder::Encode(const SegmentView& segment, int t, float* scratch) const {
  if (passthrough_) return reinterpret_cast<const float*>(segment.obs(0, t));
  for (int row = 0; row < segment.layout().rows(); ++row) {
    EncodeRow(segment, t, row, scratch + static_cast<size_t>(row) * static_cast<size_t>(width_));
  }
  return scratch;
}

}  // namespace millrace
