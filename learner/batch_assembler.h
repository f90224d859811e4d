// BatchAssembler: gathers scattered samples of a batch of segments into one block of contiguous rows, encoded
// as the network reads them. Station: batch_assembler. Immutable; blocks belong to the calling thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/segment.h"
#include "kernels/net/obs_encoder.h"

namespace millrace {

// At most `capacity` gathered samples, in memory of its own.
struct SampleBlock {
  SampleBlock(const EnvSpec& spec, int capacity);
  // Of such a block, without making it.
  static uint64_t Bytes(const EnvSpec& spec, int capacity);
  std::vector<float> x;                                // [rows, obs width]
  std::vector<float> action;                           // [rows, A] f32, or i32 in the same bits
  std::vector<uint8_t> mask;                           // [rows, outputs]; empty: no mask
  std::vector<float> log_prob, value, advantage, ret;  // [rows]
};

class BatchAssembler {
 public:
  BatchAssembler(const EnvSpec& spec, const ObsEncoder& encoder, int stride)
      : encoder_(encoder), stride_(stride), width_(spec.action.width()), outputs_(spec.action.outputs()) {}

  // Columns that stand beside the segments, indexed by sample id. value and log_prob null: those in the
  // segments, of the policy that acted.
  struct Columns {
    const float *advantage = nullptr, *ret = nullptr, *value = nullptr, *log_prob = nullptr;
  };
  // Fills the block with samples ids[0..count).
  void Gather(std::span<const SegmentView> segments, const int32_t* ids, int count, const Columns& columns,
              SampleBlock& block) const;

 private:
  const ObsEncoder& encoder_;
  int stride_, width_, outputs_;
};

}  // namespace millrace
