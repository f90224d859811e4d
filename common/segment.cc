#include "common/segment.h"

#include <xxhash.h>

#include <algorithm>

#include "absl/strings/str_join.h"
#include "common/text.h"

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

const char* TypeName(DType type) {
  switch (type) {
    case DType::kF32:
      return "f32";
    case DType::kU8:
      return "u8";
    case DType::kI32:
      return "i32";
  }
  return "unknown";
}

std::string DescribeAction(const ActionSpec& action) {
  if (action.box()) return Cat("box[", action.low.size(), "]");
  return Cat(action.kind == ActionSpec::Kind::kDiscrete ? "discrete{" : "multi_discrete{",
             absl::StrJoin(action.nvec, ","), "}");
}
}  // namespace

int SegmentLayout::FinalCapacity(int limit, int steps, int rows) {
  if (limit <= 0) return std::max(rows, steps * rows / 8);
  const int per_row = (steps + limit - 1) / limit + 1;
  return std::min(per_row, steps) * rows;
}

SegmentLayout::SegmentLayout(const EnvSpec& spec, int steps, int rows, int final_capacity,
                             size_t row_state_bytes)
    : spec_(spec),
      steps_(steps),
      rows_(rows),
      final_capacity_(final_capacity),
      row_state_bytes_(row_state_bytes) {
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
  if (row_state_bytes > 0) snapshot_ = cursor.Take(n * row_state_bytes);
  bytes_ = cursor.total();
}

std::string SegmentLayout::Describe() const {
  std::string text = Cat(spec_.id, ":");
  for (const ArraySpec& array : spec_.observations) {
    CatTo(text, " ", array.name, " ", TypeName(array.dtype), "[", absl::StrJoin(array.shape, ","), "]");
  }
  CatTo(text, ", action ", DescribeAction(spec_.action), spec_.action_mask ? " with mask" : "", ", T ",
        steps_, ", N ", rows_, ", final capacity ", final_capacity_, ", row state ", row_state_bytes_,
        " B, segment ", bytes_, " B");
  return text;
}

uint64_t SegmentLayout::Hash() const {
  const std::string text = Describe();
  return XXH3_64bits(text.data(), text.size());
}

}  // namespace millrace
