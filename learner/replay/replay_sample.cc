// Reading of the replay: draws, windows of n steps, and the gather into a batch.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/text.h"
#include "kernels/ops/philox.h"
#include "learner/replay/replay.h"

namespace millrace {
namespace {

constexpr uint32_t kTries = 4096;  // blocks of random words after which a draw walks on to the next step

uint64_t Word(uint32_t hi, uint32_t lo) {
  return static_cast<uint64_t>(hi) << 32 | lo;
}
uint64_t Scale(uint64_t word, uint64_t below) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(word) * below >> 64);
}

// The first 64 bits of PhiloxAt for rows [first, first + count): the rows' blocks are independent, and as one
// loop over them they vectorize.
void FirstWords(uint64_t seed, uint64_t draw, int first, int count, uint64_t* words) {
  MILL_SIMD
  for (int i = 0; i < count; ++i) {
    const Philox4 block = PhiloxAt(seed, Purpose::kReplay, static_cast<uint32_t>(first + i), draw);
    words[i] = static_cast<uint64_t>(block.v[0]) << 32 | block.v[1];
  }
}

}  // namespace

// `first_word`: the row's first 64 random bits; further ones where that slot has no step.
uint32_t Replay::DrawUniform(uint64_t draw, int row, uint64_t first_word) const {
  const uint64_t slots = static_cast<uint64_t>(used_pages_) << page_shift_;
  const auto slot_of = [&](uint64_t i) {
    uint64_t page = oldest_ + (i >> page_shift_);
    if (page >= page_count_) page -= page_count_;
    return static_cast<uint32_t>(page << page_shift_ | (i & page_mask_));
  };
  uint64_t i = Scale(first_word, slots);
  if ((flags_[slot_of(i)] & kDrawable) != 0) return slot_of(i);
  for (uint32_t block = 0; block < kTries; ++block) {
    const Philox4 words = PhiloxAt(options_.seed, Purpose::kReplay, static_cast<uint32_t>(row), draw, block);
    for (int half = block == 0 ? 2 : 0; half < 4; half += 2) {
      i = Scale(Word(words.v[half], words.v[half + 1]), slots);
      if ((flags_[slot_of(i)] & kDrawable) != 0) return slot_of(i);
    }
  }
  while ((flags_[slot_of(i)] & kDrawable) == 0) i = i + 1 == slots ? 0 : i + 1;
  return slot_of(i);
}

void Replay::DrawUniformly(uint64_t draw, int first, int count, uint32_t* slots) const {
  uint64_t words[kChunk];
  FirstWords(options_.seed, draw, first, count, words);
  for (int i = 0; i < count; ++i) slots[i] = DrawUniform(draw, first + i, words[i]);
}

void Replay::DrawByPriority(uint64_t draw, int batch, int first, int count, uint32_t* slots) const {
  uint64_t words[kChunk];
  double mass[kChunk];
  FirstWords(options_.seed, draw, first, count, words);
  const double part = tree_.total() / batch;
  for (int i = 0; i < count; ++i) {
    const double u = UniformDouble(static_cast<uint32_t>(words[i] >> 32), static_cast<uint32_t>(words[i]));
    mass[i] = (first + i + u) * part;
  }
  tree_.Find(mass, slots, count);
}

// (N P_i)^-beta over (N P_least)^-beta: N and the sum of the priorities cancel.
float Replay::WeightOf(uint32_t slot, float beta) const {
  return options_.prioritized ? std::pow(tree_.least() / tree_[slot], beta) : 1.0f;
}

Status Replay::UpdatePriorities(const uint32_t* index, const float* td, int n) {
  if (!options_.prioritized) return absl::OkStatus();
  for (int i = 0; i < n; ++i) {
    if (td[i] >= 0 && IsFinite(td[i])) continue;
    return absl::DataLossError(Cat("the priority of row ", i, " of a batch would follow from the error ",
                                   td[i], "; errors are finite and not below zero"));
  }
  const auto alpha = static_cast<float>(options_.alpha);
  for (int i = 0; i < n; ++i) {
    MILL_CHECK(index[i] < tree_.leaves());
    if ((flags_[index[i]] & kDrawable) == 0) continue;
    const float raw = td[i] + static_cast<float>(options_.priority_eps);
    // A priority of nothing would take the item out for good.
    const float priority = std::max(std::pow(raw, alpha), std::numeric_limits<float>::min());
    largest_priority_ = std::max(largest_priority_, priority);
    tree_.Put(index[i], priority);
  }
  tree_.Refresh();
  return absl::OkStatus();
}

Replay::Window Replay::WindowOf(uint32_t slot) const {
  Window window;
  double reward = 0;
  for (int k = 0;; ++k) {
    float r;
    std::memcpy(&r, SlotAt(slot) + layout_.reward_at, sizeof(r));
    reward += gamma_power_[static_cast<size_t>(k)] * r;
    window.reward = static_cast<float>(reward);
    if ((flags_[slot] & kTerminated) != 0) {
      window.next = slot;  // there is nothing to bootstrap from; any memory that can be read will do
      return window;
    }
    slot = Next(slot);
    if (k + 1 == options_.n_step || (flags_[slot] & kStep) == 0) {
      window.next = slot;
      window.discount = static_cast<float>(gamma_power_[static_cast<size_t>(k) + 1]);
      return window;
    }
  }
}

void Replay::EncodeObs(uint32_t slot, float* out) const {
  if (plain_) {
    std::memcpy(out, SlotAt(slot), layout_.observation_bytes);
    return;
  }
  for (int frame = layout_.frames - 1; frame >= 0; --frame) {
    for (size_t a = 0; a < layout_.arrays.size(); ++a) {
      const ReplayLayout::Array& array = layout_.arrays[a];
      encoder_.ConvertPart(static_cast<int>(a), frame * array.frame_elements, array.frame_elements,
                           SlotAt(slot) + array.at, out);
    }
    if (frame == 0 || (flags_[slot] & kBegin) != 0) continue;
    slot = Previous(slot);
  }
  encoder_.Finish(out);
}

void Replay::EncodeAction(uint32_t slot, float* out) const {
  const float *scale = action_scale_.data(), *shift = action_shift_.data(), *bound = action_bound_.data();
  const auto width = static_cast<int>(action_scale_.size());
  const std::byte* from = SlotAt(slot) + layout_.action_at;
  MILL_SIMD
  for (int d = 0; d < width; ++d) {
    float a;
    std::memcpy(&a, from + static_cast<size_t>(d) * sizeof(float), sizeof(a));
    const float unit = a * scale[d] + shift[d];
    out[d] = std::min(std::max(unit, -bound[d]), bound[d]);
  }
}

void Replay::GatherRow(uint32_t slot, float beta, const ReplayBatch& batch, int row) const {
  const auto r = static_cast<size_t>(row), ld = static_cast<size_t>(batch.ld);
  const size_t width = layout_.action_bytes / sizeof(float);
  const std::byte* from = SlotAt(slot);
  const Window window = WindowOf(slot);
  if (batch.x != nullptr) {
    float* x = batch.x + r * ld;
    EncodeObs(slot, x);
    if (box_) EncodeAction(slot, x + encoder_.width());
  }
  if (batch.next_x != nullptr) EncodeObs(window.next, batch.next_x + r * ld);
  if (batch.action != nullptr) {
    std::memcpy(batch.action + r * width, from + layout_.action_at, layout_.action_bytes);
  }
  if (batch.reward != nullptr) batch.reward[r] = window.reward;
  if (batch.discount != nullptr) batch.discount[r] = window.discount;
  if (batch.weight != nullptr) batch.weight[r] = WeightOf(slot, beta);
  if (batch.index != nullptr) batch.index[r] = slot;
  const size_t outputs = layout_.mask_bytes;
  if (batch.mask != nullptr) std::memcpy(batch.mask + r * outputs, from + layout_.mask_at, outputs);
  if (batch.next_mask != nullptr) {
    std::memcpy(batch.next_mask + r * outputs, SlotAt(window.next) + layout_.mask_at, outputs);
  }
}

void Replay::Draw(uint64_t draw, int batch, int first, int count, uint32_t* slots) const {
  if (options_.prioritized) {
    DrawByPriority(draw, batch, first, count, slots);
  } else {
    DrawUniformly(draw, first, count, slots);
  }
}

// While a row is gathered, the memory of the one a chunk later is on its way.
void Replay::SampleRows(uint64_t draw, float beta, const ReplayBatch& batch, int first, int count) const {
  MILL_CHECK(size_ > 0);
  uint32_t slots[2][kChunk];
  int n = std::min(kChunk, count);
  Draw(draw, batch.rows, first, n, slots[0]);
  for (int i = 0; i < n; ++i) Prefetch(slots[0][i]);
  for (int begin = first, turn = 0; n > 0; turn ^= 1) {
    const int next = begin + n, coming = std::min(kChunk, first + count - next);
    if (coming > 0) Draw(draw, batch.rows, next, coming, slots[turn ^ 1]);
    for (int i = 0; i < n; ++i) {
      if (i < coming) Prefetch(slots[turn ^ 1][i]);
      GatherRow(slots[turn][i], beta, batch, begin + i);
    }
    begin = next;
    n = coming;
  }
}

}  // namespace millrace
