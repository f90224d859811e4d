// GroupTable: which row groups there are, who holds them, and what is known of their rows. Station:
// trajectory_service. Owner: TrajectoryService, under whose lock everything here is called. Holds no clock
// and no connection, so its rules are tested alone.
//
// Sync: the groups are env.rows in all and are dealt to the actors in proportion to their threads; who comes
// when there are none left is a spare. Async: env.rows is each actor's, so an actor gets a whole block of
// groups, one that was left by another where there is one, else a new one, as far as SetMostRows lets there
// be any; who comes then is a spare as well.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "common/segment.h"
#include "common/status.h"
#include "learner/rollout_source.h"

namespace millrace {

inline constexpr uint64_t kNoHolder = 0;

struct HeldGroup {
  uint32_t group = 0, first_row = 0;
  const SegmentLayout* layout = nullptr;
  uint64_t holder = kNoHolder;  // number of an actor
  uint64_t lease = 0;
  std::string reserved_for;  // on_lost: wait - the name of the actor that it waits for
  int granted = 0;           // segments that the holder may send and has not sent yet
  std::chrono::steady_clock::time_point granted_at;  // when the wait for the next of them began
  bool overdue = false;      // async: they are waited for so long that they no longer count as outstanding
  int64_t ready_order = -1;  // sync: position of this round's segment among those taken in; -1: not there

  uint64_t next_step = 0;             // after the last segment that was taken in
  uint64_t saved_step = 0;            // of `saved`
  bool known = false;                 // `saved` holds the rows' state
  std::vector<std::byte> saved;       // [rows, row_state_bytes] after the last segment that was trained on
  const std::byte* newest = nullptr;  // snapshot of the last segment taken in, while it waits; else null
};

class GroupTable {
 public:
  // `block_rows`: the rows of each group of a run (sync) or of one actor (async).
  GroupTable(const EnvSpec& spec, int steps, std::vector<int> block_rows, size_t row_state_bytes, bool async);

  std::vector<HeldGroup>& groups() { return groups_; }
  const std::vector<HeldGroup>& groups() const { return groups_; }
  HeldGroup* Find(uint32_t group) { return group < groups_.size() ? &groups_[group] : nullptr; }
  const std::vector<int>& block_rows() const { return block_rows_; }
  const SegmentLayout& layout(size_t group) const { return *layouts_[group % block_rows_.size()]; }
  size_t max_segment_bytes() const;
  uint64_t block_bytes() const;      // of one segment of each group of a block
  size_t block_state_bytes() const;  // of the states of a block's rows: as much as one actor may be leased

  // Async: of all blocks that are dealt.
  void SetMostRows(uint64_t rows);
  size_t most_blocks() const { return most_blocks_; }

  struct Candidate {
    uint64_t holder = kNoHolder;
    std::string name;
    uint32_t threads = 1;
  };
  // Gives groups that nobody holds to candidates; with `rebalance` also moves groups from those who have more
  // than their share (sync). Candidates in the order in which they came. Returns the groups that changed.
  std::vector<uint32_t> Deal(const std::vector<Candidate>& candidates, bool rebalance);
  // Takes a group from its holder; `wait_for`: only an actor of this name gets it again. What was granted is
  // void.
  void Free(HeldGroup& group, const std::string& wait_for = "");
  // The same holder, another lease: it has to begin again from the state that is known here.
  void Renew(HeldGroup& group) { Hold(group, group.holder); }

  // The rows' state after the last segment that was taken in; empty: episodes begin.
  std::string StateOf(const HeldGroup& group) const;
  // The segment with this snapshot is trained on, or dropped for good.
  void Saved(HeldGroup& group, uint64_t next_step, const std::byte* snapshot);

  uint32_t missing_rows() const;
  // Names of the actors that groups are kept for, each once.
  std::vector<std::string> awaited() const;
  RowStates Save() const;
  Status Load(const RowStates& states);

 private:
  void AddBlock();
  void Hold(HeldGroup& group, uint64_t holder);
  void DealSync(const std::vector<Candidate>& candidates, bool rebalance, std::vector<uint32_t>& changed);
  void DealAsync(const std::vector<Candidate>& candidates, std::vector<uint32_t>& changed);

  const std::vector<int> block_rows_;
  const size_t row_state_bytes_;
  const bool async_;
  std::vector<std::unique_ptr<SegmentLayout>> layouts_;  // of a block's groups
  std::vector<HeldGroup> groups_;
  uint64_t last_lease_ = 0;
  size_t most_blocks_ = std::numeric_limits<size_t>::max();
};

}  // namespace millrace
