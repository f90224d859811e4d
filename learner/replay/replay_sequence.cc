// Reading of sequences with burn-in.
#include <algorithm>
#include <cstring>

#include "learner/replay/replay.h"

namespace millrace {

float SequenceError(const float* td, int n, float eta) {
  float largest = 0;
  double sum = 0;
  for (int i = 0; i < n; ++i) {
    largest = std::max(largest, td[i]);
    sum += td[i];
  }
  return eta * largest + (1 - eta) * static_cast<float>(sum / n);
}

// The slot up to burn_in steps before `slot` in its run; `steps`: how many there were.
uint32_t Replay::FirstOfBurnIn(uint32_t slot, int burn_in, int& steps) const {
  for (steps = 0; steps < burn_in && (flags_[slot] & kBegin) == 0; ++steps) {
    const uint32_t before = Previous(slot);
    // Older frames of a stack are slots that were no steps.
    if (before == kNone || (flags_[before] & kDrawable) == 0) break;
    slot = before;
  }
  return slot;
}

void Replay::GatherSequence(uint32_t slot, const SequenceBatch& batch, int row) const {
  const int positions = batch.burn_in + batch.length;
  const auto first = static_cast<size_t>(row) * static_cast<size_t>(positions);
  const auto ld = static_cast<size_t>(batch.ld), n = static_cast<size_t>(positions);
  const size_t width = layout_.action_bytes / sizeof(float);
  float* x = batch.x + (first + static_cast<size_t>(row)) * ld;
  std::fill_n(x, (n + 1) * ld, 0.0f);
  std::fill_n(batch.reward + first, n, 0.0f);
  std::fill_n(batch.discount + first, n, 0.0f);
  std::fill_n(batch.valid + first, n, uint8_t{0});
  std::fill_n(batch.begin + first, n, uint8_t{0});
  if (batch.action != nullptr) std::fill_n(batch.action + first * width, n * width, 0);
  int before = 0;
  slot = FirstOfBurnIn(slot, batch.burn_in, before);
  for (int p = batch.burn_in - before; p < positions; ++p) {
    const size_t at = first + static_cast<size_t>(p);
    float* here = x + static_cast<size_t>(p) * ld;
    const std::byte* from = SlotAt(slot);
    EncodeObs(slot, here);
    if (box_) EncodeAction(slot, here + encoder_.width());
    if (batch.action != nullptr) {
      std::memcpy(batch.action + at * width, from + layout_.action_at, layout_.action_bytes);
    }
    std::memcpy(batch.reward + at, from + layout_.reward_at, sizeof(float));
    batch.valid[at] = 1;
    batch.begin[at] = (flags_[slot] & kBegin) != 0 ? 1 : 0;
    if ((flags_[slot] & kTerminated) != 0) return;
    batch.discount[at] = static_cast<float>(options_.gamma);
    slot = Next(slot);
    if (p + 1 < positions && (flags_[slot] & kStep) != 0) continue;
    EncodeObs(slot, here + ld);
    return;
  }
}

void Replay::SampleSequences(uint64_t draw, float beta, const SequenceBatch& batch, int first,
                             int count) const {
  MILL_CHECK(size_ > 0);
  uint32_t slots[kChunk];
  for (int begin = first; begin < first + count; begin += kChunk) {
    const int n = std::min(kChunk, first + count - begin);
    Draw(draw, batch.rows, begin, n, slots);
    for (int i = 0; i < n; ++i) Prefetch(slots[i]);
    for (int i = 0; i < n; ++i) {
      const auto row = static_cast<size_t>(begin + i);
      GatherSequence(slots[i], batch, begin + i);
      if (batch.weight != nullptr) batch.weight[row] = WeightOf(slots[i], beta);
      if (batch.index != nullptr) batch.index[row] = slots[i];
    }
  }
}

}  // namespace millrace
