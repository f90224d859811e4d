#include "actor/rollout_buffer.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace millrace {

StatusOr<RolloutBuffer> RolloutBuffer::Make(const EnvSpec& spec, int steps,
                                            const std::vector<int>& group_rows) {
  RolloutBuffer buffer;
  for (int rows : group_rows) {
    if (buffer.layouts_.empty() || buffer.layouts_.back()->rows() != rows) {
      const int finals = SegmentLayout::FinalCapacity(spec.max_episode_steps, steps, rows);
      buffer.layouts_.push_back(std::make_unique<SegmentLayout>(spec, steps, rows, finals));
    }
    buffer.slots_.emplace_back(buffer.layouts_.back().get(), nullptr);
    buffer.bytes_ += buffer.layouts_.back()->bytes();
  }
  // Untouched pages of the side tables stay unbacked, so the tables' bounds cost address space only.
  buffer.memory_.reset(static_cast<std::byte*>(std::aligned_alloc(64, buffer.bytes_)));
  if (buffer.memory_ == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the rollout needs ", buffer.bytes_ >> 20,
                     " MiB; use fewer env.rows or a shorter horizon (ppo.horizon, sac.horizon)"));
  }
  std::byte* at = buffer.memory_.get();
  for (SegmentView& slot : buffer.slots_) {
    slot = SegmentView(&slot.layout(), at);
    slot.final_count() = 0;
    slot.episode_count() = 0;
    at += slot.layout().bytes();
  }
  return buffer;
}

}  // namespace millrace
