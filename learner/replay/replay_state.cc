// The replay's state: as tensors to save from and to load into, and as a copy that is written from while the
// replay goes on.
#include <algorithm>
#include <cstring>

#include "common/resource_usage.h"
#include "common/text.h"
#include "kernels/core/target.h"
#include "learner/replay/replay.h"

namespace millrace {
namespace {

enum Counter { kCapacity, kPageCount, kOldest, kUsedPages, kSize, kAdded, kCounters };
constexpr const char* kSlotsName = "replay/slots";
constexpr const char* kFlagsName = "replay/flags";
constexpr const char* kPagesName = "replay/pages";
constexpr const char* kPrioritiesName = "replay/priorities";
constexpr const char* kLargestName = "replay/largest_priority";
constexpr const char* kCountersName = "replay/counters";
constexpr const char* kLanesName = "replay/lanes";
constexpr const char* kGroupsName = "replay/groups";
constexpr uint64_t kLaneWords = 3, kGroupWords = 3, kPageBytes = 12;

Status OtherReplay(const std::string& what) {
  return absl::InvalidArgumentError(
      Cat("the saved replay is of ", what, "; env.* and replay.* must be as they were"));
}
Status Broken(const char* tensor, const std::string& what) {
  return absl::DataLossError(Cat("tensor ", tensor, " does not hold together: ", what,
                                 "; take an earlier checkpoint, or set checkpoint.replay=false to go on with "
                                 "an empty replay"));
}

}  // namespace

// Pages up to the last in use; all, once the ring has gone round.
uint64_t Replay::SavedPages() const {
  return std::min(uint64_t{oldest_} + used_pages_, uint64_t{page_count_});
}

void Replay::StageState(StagedState& staged) const {
  staged.pages = SavedPages();
  const auto word = [](uint64_t value) { return static_cast<int64_t>(value); };
  staged.counters.assign(kCounters, 0);
  staged.counters[kCapacity] = word(options_.capacity);
  staged.counters[kPageCount] = word(page_count_);
  staged.counters[kOldest] = word(oldest_);
  staged.counters[kUsedPages] = word(used_pages_);
  staged.counters[kSize] = word(size_);
  staged.counters[kAdded] = word(added_);
  staged.lanes.clear();
  for (const Lane& lane : lanes_) {
    staged.lanes.insert(staged.lanes.end(), {word(lane.page), word(lane.head), word(lane.next_step)});
  }
  staged.groups.clear();
  for (const auto& [number, group] : groups_) {
    staged.groups.insert(staged.groups.end(), {word(number), word(group.first_lane), word(group.rows)});
  }
  staged.largest_priority = largest_priority_;
}

std::vector<StateTensor> Replay::TensorsOf(std::byte* slots, std::byte* side, StagedState& staged) const {
  std::vector<StateTensor> tensors;
  const uint64_t page_slots = page_mask_ + 1;
  const auto add = [&](const char* name, std::vector<uint64_t> shape) -> StateTensor& {
    StateTensor& tensor = tensors.emplace_back();
    tensor.name = name;
    tensor.shape = std::move(shape);
    return tensor;
  };
  // Shapes say the layout: a loader refuses others.
  add(kSlotsName, {staged.pages, page_slots, layout_.stride}).bytes = slots;
  add(kFlagsName, {staged.pages, page_slots}).bytes = side + plan_.flags_at;
  add(kPagesName, {staged.pages, kPageBytes}).bytes = side + plan_.pages_at;
  if (options_.prioritized) {
    add(kPrioritiesName, {staged.pages, page_slots}).f32 = reinterpret_cast<float*>(side + plan_.tree_at);
    add(kLargestName, {1}).f32 = &staged.largest_priority;
  }
  add(kCountersName, {staged.counters.size()}).i64 = staged.counters.data();
  add(kLanesName, {staged.lanes.size() / kLaneWords, kLaneWords}).i64 = staged.lanes.data();
  add(kGroupsName, {staged.groups.size() / kGroupWords, kGroupWords}).i64 = staged.groups.data();
  return tensors;
}

std::vector<StateTensor> Replay::State() {
  if (!loading_) StageState(staged_);
  return TensorsOf(slots_, memory_.side(), staged_);
}

Status Replay::ResizeState(std::string_view name, uint64_t first) {
  const bool pages =
      name == kSlotsName || name == kFlagsName || name == kPagesName || name == kPrioritiesName;
  const bool lanes = name == kLanesName, groups = name == kGroupsName;
  if (name == kPrioritiesName && !options_.prioritized) return OtherReplay("prioritised draws");
  if (!pages && !lanes && !groups) return absl::OkStatus();
  if (!loading_) {
    Clear();
    StageState(staged_);
    loading_ = true;
  }
  if (pages && first > page_count_) return OtherReplay("a larger replay.capacity");
  // Rows have two pages at least, and groups a row.
  if ((lanes || groups) && first > page_count_) {
    return Broken(lanes ? kLanesName : kGroupsName, Cat(first, " rows are more than it has room for"));
  }
  if (pages) staged_.pages = first;
  if (lanes) staged_.lanes.resize(first * kLaneWords);
  if (groups) staged_.groups.resize(first * kGroupWords);
  return absl::OkStatus();
}

Status Replay::Loaded() {
  if (!loading_) return absl::OkStatus();
  loading_ = false;
  const Status status = TakeStaged();
  if (!status.ok()) Clear();
  return status;
}

Status Replay::TakeStaged() {
  const auto counter = [&](Counter c) { return static_cast<uint64_t>(staged_.counters[c]); };
  if (counter(kCapacity) != options_.capacity) {
    return OtherReplay(Cat("replay.capacity ", counter(kCapacity), ", this run's is ", options_.capacity));
  }
  if (counter(kPageCount) != page_count_) return OtherReplay("another number of rows");
  if (counter(kOldest) >= page_count_ || counter(kUsedPages) > staged_.pages)
    return Broken(kCountersName, "a page outside the replay");
  oldest_ = static_cast<uint32_t>(counter(kOldest));
  used_pages_ = static_cast<uint32_t>(counter(kUsedPages));
  if (SavedPages() != staged_.pages) return Broken(kCountersName, "its number of pages");
  size_ = counter(kSize);
  added_ = counter(kAdded);
  for (size_t i = 0; i < staged_.lanes.size(); i += kLaneWords) {
    lanes_.push_back({static_cast<uint32_t>(staged_.lanes[i]), static_cast<uint32_t>(staged_.lanes[i + 1]),
                      static_cast<uint64_t>(staged_.lanes[i + 2])});
  }
  for (size_t i = 0; i < staged_.groups.size(); i += kGroupWords) {
    groups_[static_cast<uint32_t>(staged_.groups[i])] = {static_cast<uint32_t>(staged_.groups[i + 1]),
                                                         static_cast<uint32_t>(staged_.groups[i + 2])};
  }
  MILL_RETURN_IF_ERROR(CheckLinks());
  if (options_.prioritized) {
    largest_priority_ = staged_.largest_priority;
    if (!(largest_priority_ > 0) || !IsFinite(largest_priority_)) {
      return Broken(kLargestName, Cat("it is ", largest_priority_));
    }
    for (uint32_t slot = 0; slot < tree_.leaves(); ++slot) {
      const bool drawable = (flags_[slot] & kDrawable) != 0;
      if (drawable != (tree_[slot] > 0) || !IsFinite(tree_[slot])) {
        return Broken(kPrioritiesName, Cat("slot ", slot, " has ", tree_[slot]));
      }
    }
    tree_.MakeSums();
  }
  return absl::OkStatus();
}

// That no draw and no Add can leave the memory: first the links, then what follows them.
Status Replay::CheckLinks() const {
  const auto page_at = [&](uint32_t i) {
    return static_cast<uint32_t>((uint64_t{oldest_} + i) % page_count_);
  };
  const auto page_or_none = [&](uint32_t page) { return page == kNone || page < page_count_; };
  for (uint32_t i = 0; i < used_pages_; ++i) {
    const Page& page = pages_[page_at(i)];
    if (page.lane >= lanes_.size() || !page_or_none(page.next) || !page_or_none(page.previous)) {
      return Broken(kPagesName, Cat("the links of page ", page_at(i)));
    }
    // The newest page of a lane is the one that it writes to.
    if ((page.next == kNone) != (lanes_[page.lane].page == page_at(i))) {
      return Broken(kLanesName, Cat("the newest page of row ", page.lane));
    }
  }
  for (const Lane& lane : lanes_) {
    if (!page_or_none(lane.page)) return Broken(kLanesName, Cat("page ", lane.page, " of ", page_count_));
    if (lane.page != kNone && PageOf(lane.head) != lane.page)
      return Broken(kLanesName, "a row's newest slot");
  }
  for (const auto& [number, group] : groups_) {
    if (uint64_t{group.first_lane} + group.rows > lanes_.size()) {
      return Broken(kGroupsName, Cat("the rows of group ", number));
    }
  }
  uint64_t drawable = 0;
  for (uint32_t i = 0; i < used_pages_; ++i) {
    const uint32_t page = page_at(i), last = (page << page_shift_) + page_mask_;
    for (uint32_t slot = page << page_shift_; slot <= last; ++slot) {
      const uint8_t flags = flags_[slot];
      const bool step = (flags & kStep) != 0;
      if ((flags & kDrawable) != 0) {
        if (!step || !HasStack(slot)) return Broken(kFlagsName, Cat("the frames of slot ", slot));
        ++drawable;
      }
      const bool goes_on = step && (flags & kTerminated) == 0;
      if (goes_on && slot == last && pages_[page].next == kNone) {
        return Broken(kPagesName, Cat("what follows slot ", slot));
      }
    }
  }
  if (drawable == size_) return absl::OkStatus();
  return Broken(kCountersName, Cat("it counts ", size_, " transitions, there are ", drawable));
}

void Replay::Clear() {
  const size_t slots = static_cast<size_t>(page_count_) << page_shift_;
  std::fill_n(flags_, slots, uint8_t{0});
  std::fill_n(pages_, page_count_, Page{});
  if (options_.prioritized) tree_.Clear();
  lanes_.clear();
  groups_.clear();
  oldest_ = used_pages_ = 0;
  size_ = added_ = 0;
  largest_priority_ = 1;
  std::fill(dealt_.begin(), dealt_.end(), ++deals_);
}

StatusOr<std::unique_ptr<ReplayShadow>> Replay::MakeShadow() const {
  auto shadow = std::make_unique<ReplayShadow>();
  const uint64_t available = options_.available_memory ? options_.available_memory() : AvailableMemory();
  MILL_ASSIGN_OR_RETURN(shadow->memory_,
                        options_.file.empty()
                            ? ReplayMemory::Make(plan_.slots_bytes, plan_.side_bytes, available)
                            : ReplayMemory::MapFile(options_.file + ".copy", file_layout_, plan_.slots_bytes,
                                                    plan_.side_bytes, available));
  shadow->bytes_ = plan_.slots_bytes + plan_.side_bytes;
  return shadow;
}

void Replay::UpdateShadow(ReplayShadow& shadow) const {
  if (added_ > 0) shadow.memory_.Keep();
  const size_t page_bytes = layout_.stride << page_shift_;
  const auto copy = [&](uint32_t page) {
    std::memcpy(shadow.memory_.slots() + page * page_bytes, slots_ + page * page_bytes, page_bytes);
  };
  // A page changes from its deal until it is full.
  for (uint32_t page = 0; page < page_count_; ++page) {
    if (dealt_[page] > shadow.deals_) copy(page);
  }
  for (uint32_t page : shadow.open_) copy(page);
  shadow.deals_ = deals_;
  shadow.open_.clear();
  for (const Lane& lane : lanes_) {
    if (lane.page != kNone) shadow.open_.push_back(lane.page);
  }
  const size_t leaves = options_.prioritized ? tree_.leaves() * sizeof(float) : 0;
  std::memcpy(shadow.memory_.side(), memory_.side(), plan_.tree_at + leaves);
  StageState(shadow.staged_);
  shadow.tensors_ = TensorsOf(shadow.memory_.slots(), shadow.memory_.side(), shadow.staged_);
}

}  // namespace millrace
