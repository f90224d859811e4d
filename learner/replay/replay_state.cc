// The replay's state: into tensors, back, and into a copy that is written from while the replay goes on.
#include <algorithm>
#include <cstring>

#include "common/resource_usage.h"
#include "common/text.h"
#include "learner/replay/replay.h"

namespace millrace {
namespace {

constexpr size_t kCounters = 9;
enum Counter { kCapacity, kPageSlots, kPageCount, kFirstPage, kOldest, kUsedPages, kSize, kAdded, kPages };
constexpr size_t kLaneWords = 3, kGroupWords = 3, kPageWords = 3;

Status OtherReplay(const std::string& what) {
  return absl::InvalidArgumentError(
      Cat("the saved replay is of ", what, "; env.* and replay.* must be as they were"));
}
Status Broken(const std::string& what) {
  return absl::DataLossError(Cat("the saved replay does not hold together: ", what));
}

}  // namespace

// Those in use lie behind each other, or, when the ring has gone round, all are saved.
void Replay::SavedPages(uint32_t& first, uint32_t& count) const {
  const bool round = uint64_t{oldest_} + used_pages_ > page_count_;
  first = round ? 0 : oldest_;
  count = round ? page_count_ : used_pages_;
}

std::unique_ptr<Replay::State> Replay::MakeState(const std::byte* slots, const std::byte* side) const {
  auto state = std::make_unique<State>();
  uint32_t first = 0, count = 0;
  SavedPages(first, count);
  state->counters = {options_.capacity, page_mask_ + 1, page_count_, first, oldest_,
                     used_pages_,       size_,          added_,      count};
  for (const Lane& lane : lanes_) {
    state->lanes.insert(state->lanes.end(), {lane.page, lane.head, lane.next_step});
  }
  for (const auto& [number, group] : groups_) {
    state->groups.insert(state->groups.end(), {number, group.first_lane, group.rows});
  }
  state->largest_priority = {largest_priority_};
  state->layout.assign(layout_.text.begin(), layout_.text.end());
  const size_t page_slots = page_mask_ + 1, at = first * page_slots, n = count * page_slots;
  const auto add = [&](const char* name, TensorType type, std::vector<uint64_t> shape, const void* from,
                       size_t bytes) {
    state->tensors.push_back({name, type, std::move(shape), {static_cast<const std::byte*>(from), bytes}});
  };
  const auto words = [&](const char* name, const std::vector<uint64_t>& values, size_t width) {
    add(name, TensorType::kU64, {values.size() / width, width}, values.data(),
        values.size() * sizeof(uint64_t));
  };
  add("replay/slots", TensorType::kU8, {n, layout_.stride}, slots + at * layout_.stride, n * layout_.stride);
  add("replay/flags", TensorType::kU8, {n}, side + plan_.flags_at + at, n);
  add("replay/pages", TensorType::kI32, {count, kPageWords}, side + plan_.pages_at + first * sizeof(Page),
      count * sizeof(Page));
  if (options_.prioritized) {
    add("replay/priorities", TensorType::kF32, {n}, side + plan_.tree_at + at * sizeof(float),
        n * sizeof(float));
  }
  add("replay/largest_priority", TensorType::kF32, {1}, state->largest_priority.data(), sizeof(float));
  add("replay/layout", TensorType::kU8, {state->layout.size()}, state->layout.data(), state->layout.size());
  words("replay/counters", state->counters, kCounters);
  words("replay/lanes", state->lanes, kLaneWords);
  words("replay/groups", state->groups, kGroupWords);
  return state;
}

std::unique_ptr<const Replay::State> Replay::SaveState() const {
  return MakeState(slots_, memory_.side());
}

Status Replay::CheckState(const SafetensorsContent& content, std::span<const uint64_t> counters) const {
  const NamedTensor* layout = content.Find("replay/layout");
  if (layout == nullptr) return absl::NotFoundError("the checkpoint has no replay");
  const std::string text(reinterpret_cast<const char*>(layout->bytes.data()), layout->bytes.size());
  if (text != layout_.text)
    return OtherReplay(Cat("layout `", text, "`, this run's is `", layout_.text, "`"));
  if (counters[kCapacity] != options_.capacity) {
    return OtherReplay(Cat("replay.capacity ", counters[kCapacity], ", this run's is ", options_.capacity));
  }
  if (counters[kPageSlots] != page_mask_ + 1 || counters[kPageCount] != page_count_) {
    return OtherReplay("another number of rows");
  }
  if ((content.Find("replay/priorities") != nullptr) != options_.prioritized) {
    return OtherReplay("another replay.prioritized");
  }
  const uint64_t pages = counters[kPages], first = counters[kFirstPage];
  if (pages > page_count_ || first > page_count_ - pages || counters[kUsedPages] > pages ||
      counters[kOldest] >= page_count_) {
    return Broken("its counters");
  }
  return absl::OkStatus();
}

Status Replay::LoadState(const SafetensorsContent& content) {
  uint64_t counters[kCounters];
  MILL_RETURN_IF_ERROR(CopyTensor(content, "replay/counters", std::span<uint64_t>(counters)));
  MILL_RETURN_IF_ERROR(CheckState(content, counters));
  const NamedTensor* lanes = content.Find("replay/lanes");
  const NamedTensor* groups = content.Find("replay/groups");
  if (lanes == nullptr || groups == nullptr) return Broken("tensors are missing");
  std::vector<uint64_t> lane_words(lanes->bytes.size() / sizeof(uint64_t)),
      group_words(groups->bytes.size() / sizeof(uint64_t));
  const size_t page_slots = page_mask_ + 1, at = counters[kFirstPage] * page_slots,
               n = counters[kPages] * page_slots;
  const auto first_page = counters[kFirstPage];
  float largest = 0;
  Clear();
  Status status = CopyTensor(content, "replay/lanes", std::span<uint64_t>(lane_words));
  const auto then = [&](const Status& next) { status.Update(next); };
  then(CopyTensor(content, "replay/groups", std::span<uint64_t>(group_words)));
  then(CopyTensor(content, "replay/largest_priority", std::span<float>(&largest, 1)));
  then(CopyTensorBytes(content, "replay/slots", TensorType::kU8,
                       {slots_ + at * layout_.stride, n * layout_.stride}));
  then(CopyTensor(content, "replay/flags", std::span<uint8_t>(flags_ + at, n)));
  then(CopyTensorBytes(content, "replay/pages", TensorType::kI32,
                       {reinterpret_cast<std::byte*>(pages_ + first_page), counters[kPages] * sizeof(Page)}));
  if (options_.prioritized) {
    std::vector<float> leaves(tree_.leaves());
    then(CopyTensor(content, "replay/priorities", std::span<float>(leaves.data() + at, n)));
    tree_.Load(leaves.data());
  }
  for (size_t i = 0; i + kLaneWords <= lane_words.size(); i += kLaneWords) {
    lanes_.push_back(
        {static_cast<uint32_t>(lane_words[i]), static_cast<uint32_t>(lane_words[i + 1]), lane_words[i + 2]});
  }
  for (size_t i = 0; i + kGroupWords <= group_words.size(); i += kGroupWords) {
    groups_[static_cast<uint32_t>(group_words[i])] = {static_cast<uint32_t>(group_words[i + 1]),
                                                      static_cast<uint32_t>(group_words[i + 2])};
  }
  oldest_ = static_cast<uint32_t>(counters[kOldest]);
  used_pages_ = static_cast<uint32_t>(counters[kUsedPages]);
  size_ = counters[kSize];
  added_ = counters[kAdded];
  largest_priority_ = largest;
  std::fill(changed_.begin(), changed_.end(), ++adds_);
  if (status.ok()) status = CheckLinks();
  if (!status.ok()) Clear();
  return status;
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
      return Broken("a page's links");
    }
  }
  for (const Lane& lane : lanes_) {
    if (!page_or_none(lane.page)) return Broken("a lane's page");
    if (lane.page != kNone && PageOf(lane.head) != lane.page) return Broken("a lane's head");
  }
  for (const auto& [number, group] : groups_) {
    if (uint64_t{group.first_lane} + group.rows > lanes_.size()) return Broken("a group's lanes");
  }
  uint64_t drawable = 0;
  for (uint32_t i = 0; i < used_pages_; ++i) {
    const uint32_t page = page_at(i), last = (page << page_shift_) + page_mask_;
    for (uint32_t slot = page << page_shift_; slot <= last; ++slot) {
      const uint8_t flags = flags_[slot];
      const bool step = (flags & kStep) != 0;
      if ((flags & kDrawable) != 0) {
        if (!step || !HasStack(slot)) return Broken("a step's frames");
        ++drawable;
      }
      const bool goes_on = step && (flags & kTerminated) == 0;
      if (goes_on && slot == last && pages_[page].next == kNone) return Broken("a step's successor");
    }
  }
  return drawable == size_ ? absl::OkStatus() : Broken("its size");
}

void Replay::Clear() {
  const size_t slots = static_cast<size_t>(page_count_) << page_shift_;
  std::fill_n(flags_, slots, uint8_t{0});
  std::fill_n(pages_, page_count_, Page{});
  if (options_.prioritized) tree_.Load(std::vector<float>(tree_.leaves(), 0.0f).data());
  lanes_.clear();
  groups_.clear();
  oldest_ = used_pages_ = 0;
  size_ = added_ = 0;
  largest_priority_ = 1;
}

StatusOr<std::unique_ptr<ReplayShadow>> Replay::MakeShadow() const {
  auto shadow = std::make_unique<ReplayShadow>();
  const uint64_t available = options_.available_memory ? options_.available_memory() : AvailableMemory();
  MILL_ASSIGN_OR_RETURN(shadow->memory_, ReplayMemory::Make(plan_.slots_bytes, plan_.side_bytes, available));
  shadow->bytes_ = plan_.slots_bytes + plan_.side_bytes;
  shadow->stamp_.resize(page_count_);
  return shadow;
}

void Replay::UpdateShadow(ReplayShadow& shadow) const {
  const size_t page_bytes = layout_.stride << page_shift_;
  for (uint32_t page = 0; page < page_count_; ++page) {
    // What changes within one Add has one stamp, and nothing is copied in the middle of it.
    if (shadow.stamp_[page] == changed_[page]) continue;
    std::memcpy(shadow.memory_.slots() + page * page_bytes, slots_ + page * page_bytes, page_bytes);
    shadow.stamp_[page] = changed_[page];
  }
  const size_t leaves = options_.prioritized ? tree_.leaves() * sizeof(float) : 0;
  std::memcpy(shadow.memory_.side(), memory_.side(), plan_.tree_at + leaves);
  shadow.state_ = MakeState(shadow.memory_.slots(), shadow.memory_.side());
}

}  // namespace millrace
