// Replay: the steps that an off-policy learner learns from, and the batches drawn of them. Station: replay,
// between segment_queue and train_step. Owner: the learner of the algorithm. Threads: Add, UpdatePriorities
// and what changes state by one thread while nobody else is inside; SampleRows and SampleSequences by any
// number at a time.
//
// A lane is the stream of one row of one row group. It is stored as slots in order: a slot has an observation
// and, where a step was taken there, action, reward and how it ended. The observation after a step is the
// next slot's, so none is stored twice. Behind a truncated step stands a slot with the episode's real final
// observation and no step; behind a terminated one the next episode begins at once. The lane's newest slot,
// its head, has no step yet. Where a row's stream breaks (a step that is not valid, a group begun anew), the
// head stays without one and a new run of the lane begins. So a window of n steps needs one rule: it stops at
// a terminated step and before a slot without a step.
//
// Lanes take memory by the page of slots from one ring; the oldest page goes when the capacity is reached or
// none is free. So groups may come at run time, and each page has only three words of its own. A draw is a
// random slot, drawn again until it has a step.
//
// Capacity. Memory is dealt for `capacity` steps, each row's newest page, and the frames that are stored only
// for the stacks behind them. A truncated episode's final observation takes the slot of a step: where all
// episodes end so, after L steps, L of L + 1 slots have one, and capacity * L / (L + 1) transitions are
// reached at least (half at L = 1, 99.5% at 200). Terminated episodes cost nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/segment.h"
#include "common/spec.h"
#include "common/status.h"
#include "kernels/net/obs_encoder.h"
#include "learner/learner.h"
#include "learner/replay/layout.h"
#include "learner/replay/memory.h"
#include "learner/replay/prefetch.h"
#include "learner/replay/sum_tree.h"

namespace millrace {

struct ReplayOptions {
  uint64_t capacity = 1'000'000;  // transitions
  int rows = 1;                   // of all groups, as far as they are known; more may come
  int frame_stack = 1;            // of env.frame_stack
  int n_step = 1;
  double gamma = 0.99;
  int batch_size = 256;  // the largest that will be drawn
  uint64_t seed = 1;
  bool prioritized = false;
  double alpha = 0.6, priority_eps = 1e-6;  // a priority is (|td| + eps)^alpha
  std::string file;                         // the slots lie in this file, mapped; empty: in memory
  bool shadow = false;                      // MakeShadow will be called: room for it is asked for, too
  // Bytes that may still be used; tests give their own. Null: AvailableMemory.
  std::function<uint64_t()> available_memory;
};

// Where a batch goes, in memory of the caller. What is null is not written.
struct ReplayBatch {
  int rows = 0;
  int ld = 0;                    // floats from one row of x and next_x to the next
  float* x = nullptr;            // [rows, ld]: encoded observation, then for Box the action on [-1, 1]
  float* next_x = nullptr;       // [rows, ld]: encoded observation that the target bootstraps from; no action
  int32_t* action = nullptr;     // [rows, A], discrete kinds
  float* reward = nullptr;       // [rows]: sum of gamma^i r_i over the k steps of the window
  float* discount = nullptr;     // [rows]: gamma^k, or 0 where the window terminated
  float* weight = nullptr;       // [rows]: importance; 1 where drawn uniformly
  uint32_t* index = nullptr;     // [rows]: slots, for UpdatePriorities
  uint8_t* mask = nullptr;       // [rows, outputs]
  uint8_t* next_mask = nullptr;  // [rows, outputs]; all allowed at an episode's final observation
};

// Sequences of a row's steps, for policies with a memory: position `burn_in` is the step that was drawn, and
// `length` positions from there are trained on; those before it only bring the memory about. P = burn_in +
// length. Positions where the run had not begun, or is over, are zeros and not valid.
struct SequenceBatch {
  int rows = 0, burn_in = 0, length = 1;
  int ld = 0;          // floats from one position of x to the next
  float* x = nullptr;  // [rows, P + 1, ld] as ReplayBatch's x; behind the last valid step stands what it
                       // bootstraps from, without an action
  int32_t* action = nullptr;  // [rows, P, A], discrete kinds
  float* reward = nullptr;    // [rows, P]
  float* discount = nullptr;  // [rows, P]: gamma, or 0 where the step terminated or is not valid
  uint8_t* valid = nullptr;   // [rows, P]
  uint8_t* begin = nullptr;   // [rows, P]: 1 where a run begins and memory is new
  float* weight = nullptr;    // [rows]
  uint32_t* index = nullptr;  // [rows]
};

// The error by which a sequence is drawn: a mix of the largest and the mean (Kapturowski et al. 2019, eta
// 0.9).
float SequenceError(const float* td, int n, float eta);

class ReplayShadow;

class Replay {
 public:
  static constexpr uint64_t kAnyStep = ~uint64_t{0};

  // Bytes that a replay of these options takes, with its shadow where there is to be one.
  static StatusOr<uint64_t> Bytes(const ReplayOptions& options, const EnvSpec& spec);
  // Borrows the encoder, whose statistics may change between two calls of the replay. InvalidArgument for
  // options that make no sense together; ResourceExhausted with the figures where memory does not suffice;
  // for `file` as ReplayMemory::MapFile, and one that is made here is removed again if nothing is ever added.
  static StatusOr<std::unique_ptr<Replay>> Make(const ReplayOptions& options, const EnvSpec& spec,
                                                const ObsEncoder& encoder);

  // Stores all valid steps of the segment. `first_step`: agent steps that the group's rows had done before
  // it, where the caller knows; a row goes on with its run if that follows and its first observation is the
  // one that the row's head has, else it begins a new run. InvalidArgument for a segment of other shapes, or
  // when so many rows do not fit the capacity.
  Status Add(const SegmentView& segment, uint32_t group, uint64_t first_step = kAnyStep);

  uint64_t size() const { return size_; }    // transitions that can be drawn
  uint64_t added() const { return added_; }  // since the beginning
  uint64_t capacity() const { return options_.capacity; }
  // Of all groups together: two pages each, and a window with its oldest stack.
  uint64_t most_rows() const;
  uint64_t bytes() const { return bytes_; }
  bool can_sample() const { return size_ > 0; }

  // Fills rows [first, first + count) of the batch, of draw number `draw`. Which items, and all bits, follow
  // from (seed, draw, row) and the content; not from how the rows are cut. There must be something to draw.
  // Prioritised: row i of B draws from the i-th of B equal parts of the priorities' sum, and has the weight
  // (N P)^-beta over the largest that any item of the replay has.
  void SampleRows(uint64_t draw, float beta, const ReplayBatch& batch, int first, int count) const;
  void Sample(uint64_t draw, float beta, const ReplayBatch& batch) const {
    SampleRows(draw, beta, batch, 0, batch.rows);
  }

  // The same for sequences, whose first trained steps are what is drawn. No sequence goes past an episode's
  // end.
  void SampleSequences(uint64_t draw, float beta, const SequenceBatch& batch, int first, int count) const;

  // New priorities of what was drawn, from the absolute errors td[0..n); between the draw and this call
  // nothing may be added. The last of several for one slot stands. DataLoss, with nothing changed, for an
  // error that is NaN, infinite or below zero. Nothing to do where draws are uniform.
  Status UpdatePriorities(const uint32_t* index, const float* td, int n);

  // As Learner's: all that a replay of the same options needs to go on to the bit, "replay/...", in its own
  // memory. To load: ResizeState for each tensor, which empties the replay, then State, and Loaded when its
  // tensors are filled: InvalidArgument for what is of another replay, DataLoss for what does not hold
  // together; the replay is then empty.
  std::vector<StateTensor> State();
  Status ResizeState(std::string_view name, uint64_t first);
  Status Loaded();

  // A copy to write a checkpoint from while the replay goes on; in a file `file`.copy where the slots are in
  // a file. UpdateShadow copies the pages that changed since the last one, and the slots' flags and
  // priorities. ResourceExhausted where memory does not suffice, and as ReplayMemory::MapFile.
  StatusOr<std::unique_ptr<ReplayShadow>> MakeShadow() const;
  void UpdateShadow(ReplayShadow& shadow) const;

 private:
  friend class ReplayShadow;

  // In a slot's byte of flags.
  static constexpr uint8_t kStep = 1;        // it has action and reward
  static constexpr uint8_t kDrawable = 2;    // and the frames before it that its stack needs
  static constexpr uint8_t kTerminated = 4;  // the episode ended with it; nothing to bootstrap from
  static constexpr uint8_t kBegin = 8;       // first slot of a run
  static constexpr uint32_t kNone = ~uint32_t{0};
  static constexpr int kChunk =
      32;  // rows drawn before they are gathered, so that their memory is on its way

  struct Page {
    uint32_t lane = kNone, next = kNone, previous = kNone;
  };
  struct Lane {
    uint32_t page = kNone;  // kNone: closed, the next step begins a run
    uint32_t head = kNone;  // slot
    uint64_t next_step = kAnyStep;
  };
  struct Group {
    uint32_t first_lane = 0, rows = 0;
  };
  struct StagedState {  // what a checkpoint has beside the memory itself
    uint64_t pages = 0;
    std::vector<int64_t> counters, lanes, groups;
    float largest_priority = 1;
  };
  struct Window {  // what a draw reads
    uint32_t next = 0;
    float reward = 0, discount = 0;
  };

  // How much of each thing the options ask for.
  struct Plan {
    uint32_t page_slots = 1, pages = 0;
    uint64_t slots_bytes = 0, side_bytes = 0;          // behind each other
    uint64_t flags_at = 0, pages_at = 0, tree_at = 0;  // in the side
  };
  static StatusOr<Plan> MakePlan(const ReplayOptions& options, const ReplayLayout& layout);

  Replay(const ReplayOptions& options, const ObsEncoder& encoder, ReplayLayout layout, const Plan& plan,
         ReplayMemory memory);
  void SetActionScale(const ActionSpec& action);

  std::byte* SlotAt(uint32_t slot) const { return slots_ + static_cast<size_t>(slot) * layout_.stride; }
  uint32_t PageOf(uint32_t slot) const { return slot >> page_shift_; }
  uint32_t Next(uint32_t slot) const {
    const uint32_t next = slot + 1;
    return (next & page_mask_) != 0 ? next : pages_[PageOf(slot)].next << page_shift_;
  }
  // kNone before the first slot of a page whose previous one is gone.
  uint32_t Previous(uint32_t slot) const;

  // Writing (replay.cc).
  Status CheckShapes(const SegmentView& segment) const;
  void IndexFinals(const SegmentView& segment);
  StatusOr<uint32_t> LanesOf(uint32_t group, uint32_t rows);
  // The head, which is compared and gets its step, and the slot behind it, where the next observation goes.
  MILL_PREFETCHES void PrefetchHead(const Lane& lane) const {
    if (lane.page == kNone) return;
    PrefetchBytes<1>(SlotAt(lane.head), 2 * layout_.stride);
    __builtin_prefetch(flags_ + lane.head, 1);
  }
  void AddRow(Lane& lane, const SegmentView& segment, int row, uint64_t first_step);
  bool Continues(const Lane& lane, const SegmentView& segment, int row, uint64_t first_step) const;
  void BeginRun(Lane& lane, const SegmentView& segment, int t, int row);
  void FinishStep(Lane& lane, const SegmentView& segment, int t, int row);
  void PushObs(Lane& lane, const SegmentView& segment, int t, int row, int frame, uint8_t flags);
  void CopyMask(uint32_t slot, const SegmentView& segment, int t, int row);
  void PushFinal(Lane& lane, const SegmentView& segment, int entry);
  uint32_t PushSlot(Lane& lane, uint8_t flags);
  void DealPage(Lane& lane);
  void EvictOldest();
  void Undraw(uint32_t slot);
  bool HasStack(uint32_t slot) const;

  // Reading (replay_sample.cc).
  uint32_t DrawUniform(uint64_t draw, int row, uint64_t first_word) const;
  void DrawUniformly(uint64_t draw, int first, int count, uint32_t* slots) const;
  void DrawByPriority(uint64_t draw, int batch, int first, int count, uint32_t* slots) const;
  float WeightOf(uint32_t slot, float beta) const;
  Window WindowOf(uint32_t slot) const;
  // The next observation stands behind the slot, but for a page's last.
  MILL_PREFETCHES void Prefetch(uint32_t slot) const {
    const bool last = (slot & page_mask_) == page_mask_;
    PrefetchBytes(SlotAt(slot), layout_.stride + (last ? 0 : layout_.observation_bytes));
    if (last && (flags_[slot] & kTerminated) == 0) {
      PrefetchBytes(SlotAt(Next(slot)), layout_.observation_bytes);
    }
  }
  void EncodeObs(uint32_t slot, float* out) const;
  void EncodeAction(uint32_t slot, float* out) const;
  void Draw(uint64_t draw, int batch, int first, int count, uint32_t* slots) const;
  void GatherRow(uint32_t slot, float beta, const ReplayBatch& batch, int row) const;
  // (replay_sequence.cc)
  uint32_t FirstOfBurnIn(uint32_t slot, int burn_in, int& steps) const;
  void GatherSequence(uint32_t slot, const SequenceBatch& batch, int row) const;

  // Saving and loading (replay_state.cc).
  uint64_t SavedPages() const;
  void StageState(StagedState& staged) const;
  std::vector<StateTensor> TensorsOf(std::byte* slots, std::byte* side, StagedState& staged) const;
  Status TakeStaged();
  Status CheckLinks() const;
  void Clear();

  const ReplayOptions options_;
  const ObsEncoder& encoder_;
  const ReplayLayout layout_;
  ReplayMemory memory_;
  Plan plan_;
  uint64_t bytes_ = 0;
  std::string file_layout_;
  std::byte* slots_ = nullptr;  // [pages * page_slots, stride]
  uint8_t* flags_ = nullptr;    // [pages * page_slots]
  Page* pages_ = nullptr;       // [page_count]
  uint32_t page_count_ = 0, page_shift_ = 0, page_mask_ = 0;
  uint32_t oldest_ = 0, used_pages_ = 0;  // the ring: used pages begin at oldest
  uint64_t size_ = 0, added_ = 0;

  SumTree tree_;                   // of all slots; only where draws are prioritised
  float largest_priority_ = 1.0f;  // ever given: what new items begin with

  std::vector<Lane> lanes_;
  std::map<uint32_t, Group> groups_;
  std::vector<uint64_t> dealt_;  // [pages]: the number of the deal that it was in last
  uint64_t deals_ = 0;
  StagedState staged_;
  bool loading_ = false;           // between ResizeState and Loaded
  std::vector<int32_t> final_of_;  // [T * N] of the segment being added: entry of its final observation or -1

  bool box_ = false;
  bool plain_ = false;  // an observation is one f32 array that the network reads as it is
  std::vector<float> action_scale_, action_shift_, action_bound_;  // [A] unit = a * scale + shift, clamped
  std::vector<double> gamma_power_;                                // [n_step + 1]
};

// What MakeShadow makes. Owner: who writes checkpoints; UpdateShadow and the reading of state() take turns.
class ReplayShadow {
 public:
  // As Replay::State's, of the last UpdateShadow.
  const std::vector<StateTensor>& state() const { return tensors_; }
  uint64_t bytes() const { return bytes_; }

 private:
  friend class Replay;
  ReplayMemory memory_;
  uint64_t bytes_ = 0;
  uint64_t deals_ = 0;          // that the copy has seen
  std::vector<uint32_t> open_;  // pages that were not full then
  Replay::StagedState staged_;
  std::vector<StateTensor> tensors_;
};

}  // namespace millrace
