#include "common/segment.h"

#include <algorithm>

namespace millrace {
namespace {
constexpr size_t kAlign = 64;  // a cache line, and what vector loads like

// Hands out aligned offsets. Offset 0 holds the counts, so it also serves as "no such column".
class Cursor {
 public:
  size_t Take(size_t bytes) {
    const size_t offset = next_;
    next_ += (bytes + kAlign - 1) / kAlign * kAlign;
    return offset;
  }
  size_t total() const { return next_; }

 private:
  size_t next_ = kAlign;
};
}  // namespace

int SegmentLayout::FinalCapacity(int limit, int steps, int rows) {
  if (limit <= 0) return std::max(rows, steps * rows / 8);
  const int per_row = (steps + limit - 1) / limit + 1;
  return std::min(per_row, steps) * rows;
}

SegmentLayout::SegmentLayout(const EnvSpec& spec, int steps, int rows, int final_capacity)
    : spec_(spec), steps_(steps), rows_(rows), final_capacity_(final_capacity) {
  const auto t = static_cast<size_t>(steps), n = static_cast<size_t>(rows);
  Cursor cursor;
  policy_version_ = cursor.Take(t * sizeof(uint64_t));
  for (const ArraySpec& array : spec.observations) {
    obs_bytes_.push_back(array.bytes());
    obs_.push_back(cursor.Take((t + 1) * n * array.bytes()));
  }
  action_ = cursor.Take(t * n * static_cast<size_t>(spec.action.width()) * sizeof(float));
  if (spec.action_mask) mask_ = cursor.Take((t + 1) * n * static_cast<size_t>(spec.action.outputs()));
  log_prob_ = cursor.Take(t * n * sizeof(float));
  value_ = cursor.Take(t * n * sizeof(float));
  reward_ = cursor.Take(t * n * sizeof(float));
  terminated_ = cursor.Take(t * n);
  truncated_ = cursor.Take(t * n);
  valid_ = cursor.Take(t * n);
  final_index_ = cursor.Take(static_cast<size_t>(final_capacity) * sizeof(int32_t));
  for (size_t bytes : obs_bytes_)
    final_obs_.push_back(cursor.Take(static_cast<size_t>(final_capacity) * bytes));
  episodes_ = cursor.Take(t * n * sizeof(EpisodeRecord));
  bytes_ = cursor.total();
}

}  // namespace millrace
