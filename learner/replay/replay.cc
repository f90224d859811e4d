#include "learner/replay/replay.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>

#include "common/resource_usage.h"
#include "common/text.h"

namespace millrace {
namespace {

// Slots of a page, a power of two. Pages that are not full hold at most a 64th of the capacity, and together,
// for each row writes into one, stay in a core's cache; but a page's own words are a few percent of it.
uint32_t PageSlots(uint64_t capacity, int rows, size_t stride) {
  constexpr double kCache = 1 << 20, kPageWords = 12, kShare = 0.035, kMost = 128;
  const double per_row = static_cast<double>(capacity) / rows, slot = static_cast<double>(stride);
  const auto floor = [&](double x) {
    return std::bit_floor(static_cast<uint32_t>(std::clamp(x, 1.0, kMost)));
  };
  const uint32_t wanted = floor(std::min(per_row / 64, kCache / (rows * slot)));
  const uint32_t least = 2 * floor(kPageWords / (kShare * slot));
  return std::min(std::max(wanted, least), floor(per_row / 16));
}

uint64_t RoundUp(uint64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

// Slots that a row needs to have one step to draw.
uint64_t LeastOfRow(const ReplayOptions& o) {
  return static_cast<uint64_t>(o.n_step) + static_cast<uint64_t>(o.frame_stack) - 1;
}

Status CheckOptions(const ReplayOptions& o) {
  if (o.rows < 1 || o.n_step < 1 || o.batch_size < 1 || o.frame_stack < 1) {
    return absl::InvalidArgumentError(
        "replay: rows, replay.n_step, batch size and env.frame_stack begin at 1");
  }
  if (o.capacity < static_cast<uint64_t>(o.batch_size)) {
    return absl::InvalidArgumentError(
        Cat("replay.capacity ", o.capacity, " is smaller than a batch of ", o.batch_size, "; raise it"));
  }
  if (o.prioritized &&
      (!(o.alpha >= 0 && o.alpha <= 1) || !(o.priority_eps > 0) || !std::isfinite(o.priority_eps))) {
    return absl::InvalidArgumentError(Cat("replay.alpha ", o.alpha, " and replay.priority_eps ",
                                          o.priority_eps, ": alpha is from 0 to 1, priority_eps above 0"));
  }
  const uint64_t windows = static_cast<uint64_t>(o.rows) * LeastOfRow(o);
  if (o.capacity < windows) {
    return absl::InvalidArgumentError(
        Cat("replay.capacity ", o.capacity, " does not hold a window of ", o.n_step, " steps",
            o.frame_stack > 1 ? Cat(" and ", o.frame_stack - 1, " older frames (env.frame_stack)") : "",
            " for each of ", o.rows, " rows; make it ", windows, " or more"));
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<Replay::Plan> Replay::MakePlan(const ReplayOptions& options, const ReplayLayout& layout) {
  MILL_RETURN_IF_ERROR(CheckOptions(options));
  Plan plan;
  plan.page_slots = PageSlots(options.capacity, options.rows, layout.stride);
  // Beside the steps: each row has a page that is not full, one may be on its way out, and of each row's
  // oldest steps the older frames are gone.
  const auto rows = static_cast<uint64_t>(options.rows);
  const auto frames = rows * static_cast<uint64_t>(options.frame_stack - 1);
  const uint64_t pages = (options.capacity + frames + plan.page_slots - 1) / plan.page_slots + rows + 1;
  if (pages > std::numeric_limits<uint32_t>::max() / plan.page_slots) {
    return absl::InvalidArgumentError(
        Cat("replay.capacity ", options.capacity, " is more than a replay can number; make it 4e9 or less"));
  }
  plan.pages = static_cast<uint32_t>(pages);
  const uint64_t slots = pages * plan.page_slots;
  plan.slots_bytes = RoundUp(slots * layout.stride);
  plan.pages_at = RoundUp(slots);
  plan.tree_at = plan.pages_at + RoundUp(pages * sizeof(Page));
  plan.side_bytes =
      plan.tree_at + (options.prioritized ? RoundUp(SumTree::Bytes(static_cast<uint32_t>(slots))) : 0);
  return plan;
}

StatusOr<uint64_t> Replay::Bytes(const ReplayOptions& options, const EnvSpec& spec) {
  MILL_ASSIGN_OR_RETURN(const ReplayLayout layout, ReplayLayout::Make(spec, options.frame_stack));
  MILL_ASSIGN_OR_RETURN(const Plan plan, MakePlan(options, layout));
  return (options.shadow ? 2 : 1) * (plan.slots_bytes + plan.side_bytes);
}

StatusOr<std::unique_ptr<Replay>> Replay::Make(const ReplayOptions& options, const EnvSpec& spec,
                                               const ObsEncoder& encoder) {
  MILL_ASSIGN_OR_RETURN(ReplayLayout layout, ReplayLayout::Make(spec, options.frame_stack));
  MILL_ASSIGN_OR_RETURN(const Plan plan, MakePlan(options, layout));
  const uint64_t available = options.available_memory ? options.available_memory() : AvailableMemory();
  const uint64_t both = 2 * ((options.file.empty() ? plan.slots_bytes : 0) + plan.side_bytes);
  if (options.shadow) {
    MILL_RETURN_IF_ERROR(CheckMemory("the replay and the copy that its checkpoints are written from take",
                                     both, available,
                                     "lower replay.capacity, or set checkpoint.replay=false or replay.file"));
  }
  const std::string text =
      Cat(spec.id, ": ", layout.text, ", ", plan.pages, " pages of ", plan.page_slots, " slots");
  MILL_ASSIGN_OR_RETURN(
      ReplayMemory memory,
      options.file.empty()
          ? ReplayMemory::Make(plan.slots_bytes, plan.side_bytes, available)
          : ReplayMemory::MapFile(options.file, text, plan.slots_bytes, plan.side_bytes, available));
  auto replay =
      std::unique_ptr<Replay>(new Replay(options, encoder, std::move(layout), plan, std::move(memory)));
  replay->SetActionScale(spec.action);
  replay->file_layout_ = text;
  return replay;
}

Replay::Replay(const ReplayOptions& options, const ObsEncoder& encoder, ReplayLayout layout, const Plan& plan,
               ReplayMemory memory)
    : options_(options), encoder_(encoder), layout_(std::move(layout)), memory_(std::move(memory)) {
  plan_ = plan;
  bytes_ = plan.slots_bytes + plan.side_bytes;
  dealt_.resize(plan.pages);
  slots_ = memory_.slots();
  flags_ = reinterpret_cast<uint8_t*>(memory_.side() + plan.flags_at);
  pages_ = new (memory_.side() + plan.pages_at) Page[plan.pages];
  page_count_ = plan.pages;
  if (options.prioritized) tree_ = SumTree(memory_.side() + plan.tree_at, plan.pages * plan.page_slots);
  page_shift_ = static_cast<uint32_t>(std::countr_zero(plan.page_slots));
  page_mask_ = plan.page_slots - 1;
  plain_ = encoder.passthrough() && layout_.frames == 1;
  double power = 1;
  for (int k = 0; k <= options.n_step; ++k, power *= options.gamma) gamma_power_.push_back(power);
}

// Infinite bounds (policies that squash refuse them) leave the action as it is.
void Replay::SetActionScale(const ActionSpec& action) {
  box_ = action.box();
  for (size_t d = 0; d < action.low.size(); ++d) {
    const double low = action.low[d], range = static_cast<double>(action.high[d]) - low;
    const bool bounded = std::isfinite(range) && range > 0;
    action_scale_.push_back(bounded ? static_cast<float>(2 / range) : 1.0f);
    action_shift_.push_back(bounded ? static_cast<float>(-2 * low / range - 1) : 0.0f);
    action_bound_.push_back(bounded ? 1.0f : std::numeric_limits<float>::infinity());
  }
}

uint32_t Replay::Previous(uint32_t slot) const {
  if ((slot & page_mask_) != 0) return slot - 1;
  const uint32_t page = pages_[PageOf(slot)].previous;
  return page == kNone ? kNone : (page << page_shift_) + page_mask_;
}

Status Replay::CheckShapes(const SegmentView& segment) const {
  const EnvSpec& spec = segment.layout().spec();
  bool same = spec.observations.size() == layout_.arrays.size() && spec.action.box() == box_ &&
              static_cast<size_t>(spec.action.width()) * sizeof(float) == layout_.action_bytes &&
              (segment.mask() != nullptr) == (layout_.mask_bytes > 0);
  for (size_t a = 0; same && a < layout_.arrays.size(); ++a) {
    same = segment.obs_row_bytes(static_cast<int>(a)) == layout_.arrays[a].row_bytes;
  }
  if (same) return absl::OkStatus();
  return absl::InvalidArgumentError(
      Cat("a segment of ", segment.layout().Describe(), " does not fit the replay of ", layout_.text));
}

uint64_t Replay::most_rows() const {
  return std::min(uint64_t{page_count_} / 2, options_.capacity / LeastOfRow(options_));
}

StatusOr<uint32_t> Replay::LanesOf(uint32_t group, uint32_t rows) {
  const auto found = groups_.find(group);
  if (found != groups_.end()) {
    if (found->second.rows == rows) return found->second.first_lane;
    return absl::InvalidArgumentError(
        Cat("row group ", group, " has ", rows, " rows and had ", found->second.rows));
  }
  const uint64_t lanes = lanes_.size() + rows;
  if (lanes > most_rows()) {
    return absl::InvalidArgumentError(Cat("replay.capacity ", options_.capacity, " is too small for ", lanes,
                                          " rows, ", most_rows(),
                                          " at most; raise it or lower their number"));
  }
  const Group made{static_cast<uint32_t>(lanes_.size()), rows};
  groups_[group] = made;
  lanes_.resize(lanes);
  return made.first_lane;
}

Status Replay::Add(const SegmentView& segment, uint32_t group, uint64_t first_step) {
  MILL_RETURN_IF_ERROR(CheckShapes(segment));
  const int rows = segment.layout().rows();
  MILL_ASSIGN_OR_RETURN(const uint32_t first_lane, LanesOf(group, static_cast<uint32_t>(rows)));
  memory_.Keep();
  IndexFinals(segment);
  constexpr int kAhead = 8;  // rows whose memory is on its way
  for (int row = 0; row < rows; ++row) {
    if (row + kAhead < rows) PrefetchHead(lanes_[first_lane + static_cast<uint32_t>(row + kAhead)]);
    AddRow(lanes_[first_lane + static_cast<uint32_t>(row)], segment, row, first_step);
  }
  for (int entry = 0; entry < segment.final_count(); ++entry) {
    final_of_[static_cast<size_t>(segment.final_index()[entry])] = -1;
  }
  if (options_.prioritized) tree_.Refresh();
  return absl::OkStatus();
}

void Replay::IndexFinals(const SegmentView& segment) {
  const auto samples = static_cast<size_t>(segment.layout().samples());
  if (final_of_.size() < samples) final_of_.resize(samples, -1);
  for (int entry = 0; entry < segment.final_count(); ++entry) {
    final_of_[static_cast<size_t>(segment.final_index()[entry])] = entry;
  }
}

void Replay::AddRow(Lane& lane, const SegmentView& segment, int row, uint64_t first_step) {
  const int steps = segment.layout().steps(), rows = segment.layout().rows();
  if (!Continues(lane, segment, row, first_step)) BeginRun(lane, segment, 0, row);
  for (int t = 0; t < steps; ++t) {
    const auto at = static_cast<size_t>(t * rows + row);
    const bool terminated = segment.terminated()[at] != 0;
    const bool truncated = segment.truncated()[at] != 0 && !terminated;
    // A step that is not valid is not stored, nor one that was cut off where nobody knows: the head stays
    // without a step, and so ends what came before it.
    if (segment.valid()[at] == 0 || (truncated && final_of_[at] < 0)) {
      BeginRun(lane, segment, t + 1, row);
      continue;
    }
    FinishStep(lane, segment, t, row);
    if (truncated) PushFinal(lane, segment, final_of_[at]);
    if (terminated || truncated) {
      BeginRun(lane, segment, t + 1, row);
    } else {
      PushObs(lane, segment, t + 1, row, layout_.frames - 1, 0);
    }
  }
  lane.next_step = first_step == kAnyStep ? kAnyStep : first_step + static_cast<uint64_t>(steps);
}

// All frames are compared: two episodes may well begin with the same picture.
bool Replay::Continues(const Lane& lane, const SegmentView& segment, int row, uint64_t first_step) const {
  if (lane.page == kNone) return false;
  if (first_step != kAnyStep && lane.next_step != kAnyStep && first_step != lane.next_step) return false;
  uint32_t slot = lane.head;
  for (int frame = layout_.frames - 1; frame >= 0; --frame) {
    for (size_t a = 0; a < layout_.arrays.size(); ++a) {
      const ReplayLayout::Array& array = layout_.arrays[a];
      const std::byte* obs = segment.obs(static_cast<int>(a), 0) +
                             static_cast<size_t>(row) * array.row_bytes +
                             static_cast<size_t>(frame) * array.frame_bytes;
      if (std::memcmp(SlotAt(slot) + array.at, obs, array.frame_bytes) != 0) return false;
    }
    if (frame > 0 && (flags_[slot] & kBegin) == 0) slot = Previous(slot);
    if (slot == kNone) return false;
  }
  return true;
}

// Of a stack that is not all one frame, as at an episode's beginning, the older frames get slots of their
// own.
void Replay::BeginRun(Lane& lane, const SegmentView& segment, int t, int row) {
  int first = layout_.frames - 1;
  const auto same_as_next = [&](int frame) {
    for (size_t a = 0; a < layout_.arrays.size(); ++a) {
      const ReplayLayout::Array& array = layout_.arrays[a];
      const std::byte* obs = segment.obs(static_cast<int>(a), t) +
                             static_cast<size_t>(row) * array.row_bytes +
                             static_cast<size_t>(frame) * array.frame_bytes;
      if (std::memcmp(obs, obs + array.frame_bytes, array.frame_bytes) != 0) return false;
    }
    return true;
  };
  int same = 0;  // frames at the front that are all the first one
  while (same + 1 < layout_.frames && same_as_next(same)) ++same;
  first = same;
  for (int frame = first; frame < layout_.frames; ++frame) {
    PushObs(lane, segment, t, row, frame, frame == first ? kBegin : uint8_t{0});
  }
}

void Replay::FinishStep(Lane& lane, const SegmentView& segment, int t, int row) {
  const auto at = static_cast<size_t>(t * segment.layout().rows() + row);
  const uint32_t slot = lane.head;
  std::byte* out = SlotAt(slot);
  std::memcpy(out + layout_.action_at,
              static_cast<const std::byte*>(segment.action()) + at * layout_.action_bytes,
              layout_.action_bytes);
  std::memcpy(out + layout_.reward_at, segment.reward() + at, sizeof(float));
  flags_[slot] |= segment.terminated()[at] != 0 ? kStep | kTerminated : kStep;
  ++added_;
  if (!HasStack(slot)) return;
  flags_[slot] |= kDrawable;
  ++size_;
  if (options_.prioritized) tree_.Put(slot, largest_priority_);
  if (size_ > options_.capacity) EvictOldest();
}

void Replay::PushObs(Lane& lane, const SegmentView& segment, int t, int row, int frame, uint8_t flags) {
  const uint32_t slot = PushSlot(lane, flags);
  for (size_t a = 0; a < layout_.arrays.size(); ++a) {
    const ReplayLayout::Array& array = layout_.arrays[a];
    std::memcpy(SlotAt(slot) + array.at,
                segment.obs(static_cast<int>(a), t) + static_cast<size_t>(row) * array.row_bytes +
                    static_cast<size_t>(frame) * array.frame_bytes,
                array.frame_bytes);
  }
  if (layout_.mask_bytes == 0) return;
  const auto at = static_cast<size_t>(t * segment.layout().rows() + row);
  std::memcpy(SlotAt(slot) + layout_.mask_at, segment.mask() + at * layout_.mask_bytes, layout_.mask_bytes);
}

// Segments have no mask of a final observation.
void Replay::PushFinal(Lane& lane, const SegmentView& segment, int entry) {
  const uint32_t slot = PushSlot(lane, 0);
  for (size_t a = 0; a < layout_.arrays.size(); ++a) {
    const ReplayLayout::Array& array = layout_.arrays[a];
    std::memcpy(SlotAt(slot) + array.at,
                segment.final_obs(static_cast<int>(a), entry) + array.row_bytes - array.frame_bytes,
                array.frame_bytes);
  }
  std::memset(SlotAt(slot) + layout_.mask_at, 1, layout_.mask_bytes);
}

uint32_t Replay::PushSlot(Lane& lane, uint8_t flags) {
  if (lane.page == kNone || (lane.head & page_mask_) == page_mask_) {
    DealPage(lane);
    lane.head = lane.page << page_shift_;
  } else {
    ++lane.head;
  }
  flags_[lane.head] = flags;
  return lane.head;
}

void Replay::DealPage(Lane& lane) {
  if (used_pages_ == page_count_) EvictOldest();  // which may close this lane too
  const uint32_t page = static_cast<uint32_t>((uint64_t{oldest_} + used_pages_) % page_count_);
  ++used_pages_;
  // With many rows the processor sees no order in what is written; but pages are dealt in order.
  constexpr uint32_t kAhead = 4;
  const uint32_t coming = page + kAhead < page_count_ ? page + kAhead : page;
  PrefetchBytes<1>(SlotAt(coming << page_shift_), layout_.stride << page_shift_);
  dealt_[page] = ++deals_;
  pages_[page] = Page{static_cast<uint32_t>(&lane - lanes_.data()), kNone, lane.page};
  if (lane.page != kNone) pages_[lane.page].next = page;
  lane.page = page;
}

void Replay::EvictOldest() {
  const uint32_t page = oldest_, first = page << page_shift_;
  for (uint32_t slot = first; slot <= first + page_mask_; ++slot) {
    Undraw(slot);
    flags_[slot] = 0;
  }
  oldest_ = page + 1 == page_count_ ? 0 : page + 1;
  --used_pages_;
  Lane& lane = lanes_[pages_[page].lane];
  if (lane.page == page) {
    lane.page = lane.head = kNone;
    return;
  }
  // The next page's first stacks have lost frames.
  const uint32_t next = pages_[page].next;
  pages_[next].previous = kNone;
  uint32_t slot = next << page_shift_;
  for (int lost = 1; lost < layout_.frames && (flags_[slot] & kBegin) == 0; ++lost) {
    Undraw(slot);
    if (slot == lane.head) break;
    slot = Next(slot);
  }
}

void Replay::Undraw(uint32_t slot) {
  if ((flags_[slot] & kDrawable) == 0) return;
  flags_[slot] = static_cast<uint8_t>(flags_[slot] & ~kDrawable);
  --size_;
  if (options_.prioritized) tree_.Put(slot, 0);
}

bool Replay::HasStack(uint32_t slot) const {
  for (int frame = layout_.frames - 1; frame > 0 && (flags_[slot] & kBegin) == 0; --frame) {
    slot = Previous(slot);
    if (slot == kNone) return false;
  }
  return true;
}

}  // namespace millrace
