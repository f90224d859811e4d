#include "common/segment_log.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"

namespace millrace {
namespace {

constexpr size_t kMaxActor = 128;
// The names of the fields, nine numbers of at most 24 characters, and an actor's name with all of it escaped.
constexpr size_t kMaxEntry = 1024;
static_assert(kMaxEntry <= UpdateLines::kMaxLine);

void PutActor(TextCursor& out, std::string_view actor) {
  if (actor.empty()) return out.Put("null");
  out.Put("\"");
  for (const char c : actor.substr(0, kMaxActor)) {
    if (c == '"' || c == '\\') out.Put("\\");
    const char shown = absl::ascii_isprint(static_cast<unsigned char>(c)) ? c : '?';
    out.Put({&shown, 1});
  }
  out.Put("\"");
}

void PutEntry(TextCursor& out, uint64_t update, const SegmentEntry& entry) {
  const auto field = [&out](std::string_view name, auto value) {
    out.Put(",\"");
    out.Put(name);
    out.Put("\":");
    out.PutNumber(value);
  };
  out.Put(UpdateLines::kBeginning);
  out.PutNumber(update);
  field("group", entry.group);
  field("first_step", entry.first_step);
  field("steps", entry.steps);
  field("rows", entry.rows);
  field("policy_version_min", entry.policy_version_min);
  field("policy_version_max", entry.policy_version_max);
  if (std::isfinite(entry.reward_sum)) {
    field("reward_sum", entry.reward_sum);
  } else {
    out.Put(",\"reward_sum\":null");
  }
  out.Put(",\"actor\":");
  PutActor(out, entry.actor);
  out.Put("}\n");
}

}  // namespace

SegmentEntry DescribeSegment(const SegmentView& segment, uint32_t group, uint64_t first_step,
                             std::string_view actor) {
  const SegmentLayout& layout = segment.layout();
  SegmentEntry entry;
  entry.group = group;
  entry.first_step = first_step;
  entry.steps = static_cast<uint32_t>(layout.steps());
  entry.rows = static_cast<uint32_t>(layout.rows());
  entry.actor = actor;
  const uint64_t* versions = segment.policy_version();
  entry.policy_version_min = *std::min_element(versions, versions + layout.steps());
  entry.policy_version_max = *std::max_element(versions, versions + layout.steps());
  for (int i = 0; i < layout.samples(); ++i) entry.reward_sum += static_cast<double>(segment.reward()[i]);
  return entry;
}

StatusOr<SegmentLog> SegmentLog::Open(FileSystem& fs, const std::string& path, uint64_t last_update) {
  MILL_ASSIGN_OR_RETURN(auto lines, UpdateLines::Open(fs, path, last_update));
  return SegmentLog(std::move(lines));
}

Status SegmentLog::Append(uint64_t update, std::span<const SegmentEntry> entries) {
  if (entries.empty()) return absl::OkStatus();
  if (buffer_.size() < entries.size() * kMaxEntry) buffer_.resize(entries.size() * kMaxEntry);
  TextCursor out(buffer_);
  for (const SegmentEntry& entry : entries) PutEntry(out, update, entry);
  return lines_.Append(out.text());
}

}  // namespace millrace
