#include "learner/group_table.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <set>
#include <unordered_set>

#include "absl/strings/str_cat.h"

namespace millrace {
namespace {

// Whole groups for each candidate, in proportion to threads: largest remainders, the earlier first in a tie.
std::vector<int> Shares(const std::vector<GroupTable::Candidate>& candidates, int groups) {
  const size_t n = candidates.size();
  uint64_t threads = 0;
  for (const auto& candidate : candidates) threads += std::max(1u, candidate.threads);
  std::vector<int> shares(n);
  std::vector<uint64_t> remainder(n);
  int left = groups;
  for (size_t i = 0; i < n; ++i) {
    const uint64_t part = uint64_t{std::max(1u, candidates[i].threads)} * static_cast<uint64_t>(groups);
    shares[i] = static_cast<int>(part / threads);
    remainder[i] = part % threads;
    left -= shares[i];
  }
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return remainder[a] > remainder[b]; });
  for (size_t i = 0; left > 0; ++i, --left) ++shares[order[i % n]];
  return shares;
}

bool MayHold(const HeldGroup& group, const GroupTable::Candidate& candidate) {
  return group.reserved_for.empty() || group.reserved_for == candidate.name;
}

}  // namespace

GroupTable::GroupTable(const EnvSpec& spec, int steps, std::vector<int> block_rows, size_t row_state_bytes,
                       bool async)
    : block_rows_(std::move(block_rows)), row_state_bytes_(row_state_bytes), async_(async) {
  for (int rows : block_rows_) {
    const int finals = SegmentLayout::FinalCapacity(spec.max_episode_steps, steps, rows);
    layouts_.push_back(std::make_unique<SegmentLayout>(spec, steps, rows, finals, row_state_bytes));
  }
  if (!async_) AddBlock();
}

size_t GroupTable::max_segment_bytes() const {
  size_t most = 0;
  for (const auto& layout : layouts_) most = std::max(most, layout->bytes());
  return most;
}

uint64_t GroupTable::block_bytes() const {
  uint64_t sum = 0;
  for (const auto& layout : layouts_) sum += layout->bytes();
  return sum;
}

size_t GroupTable::block_state_bytes() const {
  return row_state_bytes_ * static_cast<size_t>(std::accumulate(block_rows_.begin(), block_rows_.end(), 0));
}

// One block there always is, or nothing would run.
void GroupTable::SetMostRows(uint64_t rows) {
  const auto block = static_cast<uint64_t>(std::accumulate(block_rows_.begin(), block_rows_.end(), 0));
  most_blocks_ = static_cast<size_t>(std::max<uint64_t>(1, rows / block));
}

void GroupTable::AddBlock() {
  uint32_t row = groups_.empty() ? 0 : groups_.back().first_row + groups_.back().layout->rows();
  for (size_t i = 0; i < block_rows_.size(); ++i) {
    HeldGroup group;
    group.group = static_cast<uint32_t>(groups_.size());
    group.first_row = row;
    group.layout = layouts_[i].get();
    row += static_cast<uint32_t>(block_rows_[i]);
    groups_.push_back(std::move(group));
  }
}

void GroupTable::Hold(HeldGroup& group, uint64_t holder) {
  group.holder = holder;
  group.lease = ++last_lease_;
  group.granted = 0;
  group.overdue = false;
  group.reserved_for.clear();
}

void GroupTable::Free(HeldGroup& group, const std::string& wait_for) {
  group.holder = kNoHolder;
  group.lease = 0;
  group.granted = 0;
  group.overdue = false;
  group.reserved_for = wait_for;
}

std::vector<uint32_t> GroupTable::Deal(const std::vector<Candidate>& candidates, bool rebalance) {
  std::vector<uint32_t> changed;
  if (candidates.empty()) return changed;
  if (async_) {
    DealAsync(candidates, changed);
  } else {
    DealSync(candidates, rebalance, changed);
  }
  return changed;
}

void GroupTable::DealSync(const std::vector<Candidate>& candidates, bool rebalance,
                          std::vector<uint32_t>& changed) {
  const std::vector<int> shares = Shares(candidates, static_cast<int>(groups_.size()));
  std::map<uint64_t, int> held;
  for (const HeldGroup& group : groups_) ++held[group.holder];
  if (rebalance) {
    for (size_t c = 0; c < candidates.size(); ++c) {
      int& count = held[candidates[c].holder];
      for (size_t g = groups_.size(); g-- > 0 && count > shares[c];) {
        if (groups_[g].holder != candidates[c].holder) continue;
        Free(groups_[g]);
        changed.push_back(groups_[g].group);
        --count;
      }
    }
  }
  for (HeldGroup& group : groups_) {
    if (group.holder != kNoHolder) continue;
    // The first that is below its share, so that an actor's groups stand together; then whoever has least for
    // its threads.
    const Candidate* best = nullptr;
    double best_load = 0;
    for (size_t c = 0; c < candidates.size(); ++c) {
      if (!MayHold(group, candidates[c])) continue;
      const int has = held[candidates[c].holder];
      const double load = has < shares[c] ? -1 : (has + 1.0) / std::max(1u, candidates[c].threads);
      if (best == nullptr || load < best_load) best = &candidates[c], best_load = load;
    }
    if (best == nullptr) continue;
    Hold(group, best->holder);
    ++held[best->holder];
    changed.push_back(group.group);
  }
}

void GroupTable::DealAsync(const std::vector<Candidate>& candidates, std::vector<uint32_t>& changed) {
  const size_t block = block_rows_.size();
  std::unordered_set<uint64_t> holders;
  for (size_t b = 0; b < groups_.size(); b += block) holders.insert(groups_[b].holder);
  for (const Candidate& candidate : candidates) {
    if (holders.count(candidate.holder) > 0) continue;
    // Of a checkpoint there may be more than are dealt.
    const size_t blocks = std::min(groups_.size() / block, most_blocks_);
    size_t first = groups_.size();
    for (size_t b = 0; b < blocks * block; b += block) {  // its own former block before anybody else's
      if (groups_[b].holder != kNoHolder || !MayHold(groups_[b], candidate)) continue;
      if (first == groups_.size() || groups_[b].reserved_for == candidate.name) first = b;
    }
    if (first == groups_.size()) {
      if (blocks == most_blocks_) continue;
      AddBlock();
    }
    for (size_t g = first; g < first + block; ++g) {
      Hold(groups_[g], candidate.holder);
      changed.push_back(groups_[g].group);
    }
  }
}

std::string GroupTable::StateOf(const HeldGroup& group) const {
  const std::byte* state = group.newest != nullptr ? group.newest
                           : group.known           ? group.saved.data()
                                                   : nullptr;
  if (state == nullptr) return "";
  return std::string(reinterpret_cast<const char*>(state),
                     row_state_bytes_ * static_cast<size_t>(group.layout->rows()));
}

void GroupTable::Saved(HeldGroup& group, uint64_t next_step, const std::byte* snapshot) {
  const size_t bytes = row_state_bytes_ * static_cast<size_t>(group.layout->rows());
  group.saved.resize(bytes);
  std::memcpy(group.saved.data(), snapshot, bytes);
  group.saved_step = next_step;
  group.known = true;
  if (group.newest == snapshot) group.newest = nullptr;
}

uint32_t GroupTable::missing_rows() const {
  uint32_t missing = 0;
  for (const HeldGroup& group : groups_) {
    if (group.holder == kNoHolder) missing += static_cast<uint32_t>(group.layout->rows());
  }
  return missing;
}

std::vector<std::string> GroupTable::awaited() const {
  std::set<std::string> names;
  for (const HeldGroup& group : groups_) {
    if (group.holder == kNoHolder && !group.reserved_for.empty()) names.insert(group.reserved_for);
  }
  return {names.begin(), names.end()};
}

RowStates GroupTable::Save() const {
  RowStates states;
  states.row_bytes = row_state_bytes_;
  for (const HeldGroup& group : groups_) {
    const auto rows = static_cast<size_t>(group.layout->rows());
    states.group_rows.push_back(static_cast<uint32_t>(rows));
    states.next_step.push_back(group.saved_step);
    states.known.push_back(group.known ? 1 : 0);
    if (group.known) {
      states.bytes.insert(states.bytes.end(), group.saved.begin(), group.saved.end());
    } else {
      states.bytes.resize(states.bytes.size() + rows * row_state_bytes_);
    }
  }
  return states;
}

Status GroupTable::Load(const RowStates& states) {
  const auto refuse = [](const std::string& what) {
    return absl::InvalidArgumentError(
        absl::StrCat("the checkpoint's ", what, ": env.* must be as it was to resume"));
  };
  const size_t block = block_rows_.size(), count = states.group_rows.size();
  if (states.next_step.size() != count || states.known.size() != count ||
      (async_ ? count % block != 0 : count != block)) {
    return refuse(absl::StrCat("environments are ", count, " row groups, this run's ", block));
  }
  if (states.row_bytes != row_state_bytes_ && count > 0) {
    return refuse(absl::StrCat("rows have ", states.row_bytes, " bytes, this run's ", row_state_bytes_));
  }
  size_t at = 0;
  groups_.clear();
  while (groups_.size() < count) AddBlock();
  for (HeldGroup& group : groups_) {
    const size_t g = group.group, rows = static_cast<size_t>(group.layout->rows());
    const size_t bytes = rows * row_state_bytes_;
    if (states.group_rows[g] != rows || states.bytes.size() < at + bytes) {
      return refuse(absl::StrCat("row group ", g, " has ", states.group_rows[g], " rows, this run's ", rows));
    }
    group.known = states.known[g] != 0;
    group.next_step = group.saved_step = states.next_step[g];
    group.saved.assign(states.bytes.begin() + static_cast<std::ptrdiff_t>(at),
                       states.bytes.begin() + static_cast<std::ptrdiff_t>(at + bytes));
    at += bytes;
  }
  return absl::OkStatus();
}

}  // namespace millrace
