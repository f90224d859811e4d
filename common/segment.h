// Segment: the unit of everything that moves from actors to learners - a fixed-shape, columnar block of T
// steps of N rows. SegmentLayout computes the byte offset of each column once, from the environment's spec;
// the rollout slot, the wire payload and the learner's staging area all have this layout, so nothing is
// repacked on the way. Owner: whoever owns the memory (rollout_buffer); a SegmentView borrows it. Thread
// rule: one writer at a time.
//
// What varies in number stands in bounded side tables behind the columns: final observations of truncated
// steps, and statistics of finished episodes. A segment that travels ends with a snapshot of its rows, so
// that whoever gets them next goes on exactly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/spec.h"
#include "common/status.h"

namespace millrace {

// One finished episode, in raw rewards. `length` counts environment steps (action repeats included).
struct EpisodeRecord {
  int32_t index;  // t * N + n of the step that ended it
  int32_t length;
  double ret;
};

class SegmentLayout {
 public:
  SegmentLayout() = default;
  // `final_capacity` bounds the table of final observations; a truncated step that finds it full is marked
  // invalid. `row_state_bytes` 0: no snapshot.
  SegmentLayout(const EnvSpec& spec, int steps, int rows, int final_capacity, size_t row_state_bytes = 0);

  // The bound that a time limit of `limit` steps (0: none) implies for T steps of N rows.
  static int FinalCapacity(int limit, int steps, int rows);

  int steps() const { return steps_; }
  int rows() const { return rows_; }
  int samples() const { return steps_ * rows_; }
  int final_capacity() const { return final_capacity_; }
  size_t row_state_bytes() const { return row_state_bytes_; }
  size_t bytes() const { return bytes_; }
  const EnvSpec& spec() const { return spec_; }

  // All that the offsets follow from, in one line: two sides that describe a segment alike can exchange it.
  std::string Describe() const;
  uint64_t Hash() const;  // XXH3-64 of Describe()

 private:
  friend class SegmentView;
  EnvSpec spec_;
  int steps_ = 0, rows_ = 0, final_capacity_ = 0;
  std::vector<size_t> obs_, obs_bytes_, final_obs_;  // an entry an observation array
  size_t action_ = 0, mask_ = 0, log_prob_ = 0, value_ = 0, reward_ = 0, terminated_ = 0, truncated_ = 0,
         valid_ = 0;
  size_t policy_version_ = 0, final_index_ = 0, episodes_ = 0, snapshot_ = 0, bytes_ = 0;
  size_t row_state_bytes_ = 0;
};

class SegmentView {
 public:
  SegmentView() = default;
  SegmentView(const SegmentLayout* layout, std::byte* base) : layout_(layout), base_(base) {}

  const SegmentLayout& layout() const { return *layout_; }
  std::byte* base() const { return base_; }

  // [T+1, N, elements] of array i; obs(i, t) is the first row of step t.
  std::byte* obs(int array, int t) const {
    return base_ + layout_->obs_[array] +
           static_cast<size_t>(t) * layout_->rows_ * layout_->obs_bytes_[array];
  }
  size_t obs_row_bytes(int array) const { return layout_->obs_bytes_[array]; }
  void* action() const { return base_ + layout_->action_; }          // [T, N, A] i32 or f32
  uint8_t* mask() const { return At<uint8_t>(layout_->mask_); }      // [T+1, N, outputs] u8; null: no mask
  float* log_prob() const { return At<float>(layout_->log_prob_); }  // [T, N] f32, behaviour policy
  float* value() const { return At<float>(layout_->value_); }        // [T, N] f32, behaviour policy
  float* reward() const { return At<float>(layout_->reward_); }      // [T, N] f32, raw
  uint8_t* terminated() const { return At<uint8_t>(layout_->terminated_); }  // [T, N] u8
  uint8_t* truncated() const { return At<uint8_t>(layout_->truncated_); }    // [T, N] u8
  uint8_t* valid() const { return At<uint8_t>(layout_->valid_); }  // [T, N] u8, 0: never train on it
  uint64_t* policy_version() const { return At<uint64_t>(layout_->policy_version_); }  // [T] u64

  int32_t& final_count() const { return reinterpret_cast<int32_t*>(base_)[0]; }
  int32_t& episode_count() const { return reinterpret_cast<int32_t*>(base_)[1]; }
  int32_t* final_index() const { return At<int32_t>(layout_->final_index_); }  // [F] i32, t * N + n
  std::byte* final_obs(int array, int entry) const {                           // [F, elements] of array i
    return base_ + layout_->final_obs_[array] + static_cast<size_t>(entry) * layout_->obs_bytes_[array];
  }
  EpisodeRecord* episodes() const {
    return At<EpisodeRecord>(layout_->episodes_);
  }                                                                          // [T*N], at most one a step
  std::byte* snapshot() const { return At<std::byte>(layout_->snapshot_); }  // [N, row_state_bytes]; or null

 private:
  template <class T>
  T* At(size_t offset) const {
    return offset == 0 ? nullptr : reinterpret_cast<T*>(base_ + offset);
  }
  const SegmentLayout* layout_ = nullptr;
  std::byte* base_ = nullptr;
};

// What a segment from outside must satisfy before anything is trained on it: every index that the learner
// follows is inside its table, flags and masks are 0 or 1, actions exist, final observations belong to the
// truncated steps that bootstrap from them, and what environments gave is finite. InvalidArgument that names
// the column and the place. Log-probs, values and Box actions may be anything: an update finds by its own
// losses what a diverged network has made of them. Reads the memory once; any thread.
Status CheckSegment(const SegmentView& segment);

}  // namespace millrace
