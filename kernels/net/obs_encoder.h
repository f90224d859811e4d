// ObsEncoder: turns the observation arrays of one row into the f32 vector that the network reads, in one
// pass: arrays in the spec's order, u8 scaled by 1/255, then (x - mean) * inv_std and the clip where they are
// on. Used by the policy runner and the learner alike. Immutable but for the statistics; safe to share
// between threads while those stand still.
#pragma once

#include <cstddef>
#include <vector>

#include "common/segment.h"
#include "common/spec.h"

namespace millrace {

class ObsEncoder {
 public:
  // clip: to [-clip, clip] after normalisation; 0: off.
  ObsEncoder(const EnvSpec& spec, bool normalize, float clip);

  int width() const { return width_; }
  bool normalizes() const { return normalize_; }
  // A row is one f32 array, read as it is.
  bool passthrough() const { return passthrough_; }

  // The observations of step t as [rows, width] f32. Where nothing needs doing this is the segment's own
  // memory; otherwise `scratch` of that size, filled.
  const float* Encode(const SegmentView& segment, int t, float* scratch) const;
  // One row: t and row of the segment, or entry `entry` of the final observations. out: [width].
  void EncodeRow(const SegmentView& segment, int t, int row, float* out) const;
  void EncodeFinal(const SegmentView& segment, int entry, float* out) const;
  // The row as raw f32, before normalisation: what running statistics are made of.
  void RawRow(const SegmentView& segment, int t, int row, float* out) const;

  // A row whose arrays lie apart or in parts (frames of a stack): `elements` values of array `array` from
  // `first` on, raw, into the row `out`: [width]; when all are there, Finish normalises and clips it.
  void ConvertPart(int array, int first, int elements, const std::byte* in, float* out) const;
  void Finish(float* out) const { Normalize(out); }

  // Per-feature statistics, from double: inv_std = 1 / sqrt(variance + 1e-8).
  void SetStatistics(const double* mean, const double* variance);
  // As they were last set, to the bit; mean 0 and variance 1 before. [width]
  const std::vector<double>& mean() const { return mean64_; }
  const std::vector<double>& variance() const { return variance64_; }

 private:
  void Convert(size_t array, const std::byte* in, float* out) const {
    ConvertValues(array, arrays_[array].elements(), in, out);
  }
  void ConvertValues(size_t array, int n, const std::byte* in, float* out) const;
  void Normalize(float* x) const;

  std::vector<ArraySpec> arrays_;
  std::vector<int> offset_;
  std::vector<double> mean64_, variance64_;
  std::vector<float> mean_, inv_std_;  // of these, as the pass over a row reads them
  int width_ = 0;
  bool normalize_ = false, passthrough_ = false;
  float clip_ = 0;
};

}  // namespace millrace
