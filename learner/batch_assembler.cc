#include "learner/batch_assembler.h"

#include <cstring>

namespace millrace {

SampleBlock::SampleBlock(const EnvSpec& spec, int capacity) {
  const auto n = static_cast<size_t>(capacity);
  x.resize(n * static_cast<size_t>(spec.observation_elements()));
  action.resize(n * static_cast<size_t>(spec.action.width()));
  mask.resize(spec.action_mask ? n * static_cast<size_t>(spec.action.outputs()) : 0);
  for (auto* column : {&log_prob, &value, &advantage, &ret}) column->resize(n);
}

uint64_t SampleBlock::Bytes(const EnvSpec& spec, int capacity) {
  const auto floats =
      static_cast<uint64_t>(spec.observation_elements()) + static_cast<uint64_t>(spec.action.width()) + 4;
  const auto mask = static_cast<uint64_t>(spec.action_mask ? spec.action.outputs() : 0);
  return static_cast<uint64_t>(capacity) * (sizeof(float) * floats + mask);
}

void BatchAssembler::Gather(std::span<const SegmentView> segments, const int32_t* ids, int count,
                            const Columns& columns, SampleBlock& block) const {
  const auto width = static_cast<size_t>(width_), outputs = static_cast<size_t>(outputs_);
  const auto inputs = static_cast<size_t>(encoder_.width());
  for (int i = 0; i < count; ++i) {
    const auto row = static_cast<size_t>(i);
    const SegmentView& segment = segments[static_cast<size_t>(ids[i] / stride_)];
    const int at = ids[i] % stride_;  // t * N + n
    const auto from = static_cast<size_t>(at);
    // Step 0 with row t * N + n is step t, row n: rows of all steps are contiguous.
    encoder_.EncodeRow(segment, 0, at, block.x.data() + row * inputs);
    std::memcpy(block.action.data() + row * width, static_cast<const float*>(segment.action()) + from * width,
                width * sizeof(float));
    if (!block.mask.empty()) {
      std::memcpy(block.mask.data() + row * outputs, segment.mask() + from * outputs, outputs);
    }
    block.log_prob[row] = columns.log_prob != nullptr ? columns.log_prob[ids[i]] : segment.log_prob()[from];
    block.value[row] = columns.value != nullptr ? columns.value[ids[i]] : segment.value()[from];
    block.advantage[row] = columns.advantage[ids[i]];
    block.ret[row] = columns.ret[ids[i]];
  }
}

}  // namespace millrace
