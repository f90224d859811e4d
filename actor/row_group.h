// RowGroup: a fixed number of rows of one environment with everything between its dynamics and the segment -
// action clipping, action repeat, time limit, auto-reset in the same step, frame stack, episode statistics
// and the check for values that are not finite. Station: env_pool. Owner: EnvPool; one thread at a time works
// on a group.
//
// The group writes observations, rewards and flags straight into a segment. A row that ends is reset in the
// same step: obs(t+1) holds the first observation of the next episode, and the final observation of a
// truncated one stands in the segment's side table.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "actor/env.h"
#include "common/options.h"
#include "common/segment.h"
#include "common/status.h"

namespace millrace {

// Where a value that is not finite came out of an environment.
struct EnvFault {
  std::string env;
  std::string what;  // "observation `state`[2]" or "reward"
  uint32_t row = 0;
  uint64_t step = 0;  // of that row's episode
  Status ToStatus() const;
};

class RowGroup {
 public:
  // Rows first_row .. first_row + rows - 1 of a run with this seed. Errors as MakeEnv's.
  static StatusOr<std::unique_ptr<RowGroup>> Make(const EnvSection& options, uint64_t seed,
                                                  uint32_t first_row, int rows);
  // The same around an environment that the caller has made.
  static std::unique_ptr<RowGroup> Wrap(std::unique_ptr<Env> env, const EnvSection& options, uint64_t seed,
                                        uint32_t first_row);

  const EnvSpec& spec() const { return spec_; }  // after the wrappers; max_episode_steps in agent steps
  int rows() const { return rows_; }
  uint32_t first_row() const { return first_row_; }

  // Starts an episode in every row; first observations go to step t.
  void Reset(const SegmentView& segment, int t);
  // Makes `next` ready to be written from step 0: the last observations of `previous` (which may be the same
  // memory) become its first, and its side tables are empty.
  void BeginSegment(const SegmentView& next, const SegmentView& previous);
  // Steps all rows with the actions at t; writes obs and mask at t+1, rewards and flags at t. Then sleeps for
  // env.step_wait_us, once for the group.
  void Step(const SegmentView& segment, int t);

  // The first fault since it was last taken; null: none. A faulty step is marked invalid and its row starts
  // anew.
  const EnvFault* fault() const { return fault_.get(); }
  void ClearFault() { fault_.reset(); }

  // All rows' state with the observations that stand at step t, for exact resume: [rows, row_state_bytes()].
  size_t row_state_bytes() const;
  void SaveRows(const SegmentView& segment, int t, std::byte* out) const;
  void LoadRows(const SegmentView& segment, int t, const std::byte* in);

 private:
  RowGroup() = default;
  ObsOut NewestFrame(const SegmentView& segment, int t);
  void ResetRow(const SegmentView& segment, int t, int row);
  void ClipActions(const SegmentView& segment, int t);
  void ShiftFrames(const SegmentView& segment, int t);
  void StepEnv(const SegmentView& segment, int t);
  void RepeatAction(const SegmentView& segment, int t, StepArgs& args);
  void FinishRow(const SegmentView& segment, int t, int row);
  void KeepFinalObs(const SegmentView& segment, int t, int row);
  void CheckFinite(const SegmentView& segment, int t);
  void CheckFirstObs(const SegmentView& segment, int t, int row);
  void NoteFault(int row, std::string what);
  void AddFault(const SegmentView& segment, int t, int row, std::string what);

  std::unique_ptr<Env> env_;
  EnvSpec spec_;
  uint64_t seed_ = 0;
  uint32_t first_row_ = 0;
  int rows_ = 0, time_limit_ = 0, action_repeat_ = 1, frame_stack_ = 1;
  bool clip_actions_ = true;
  std::chrono::microseconds step_wait_{0};

  std::vector<size_t> frame_bytes_;       // an entry an array: one frame of one row
  std::vector<std::byte*> obs_pointers_;  // scratch behind ObsOut
  std::vector<size_t> obs_strides_;
  std::vector<float> clipped_;               // [rows, A] f32
  std::vector<double> reward_, sub_reward_;  // [rows] of this step; of one repeat
  std::vector<uint8_t> ended_;               // [rows] scratch of action repeat
  std::vector<uint8_t> sub_terminated_, sub_truncated_;
  std::vector<std::vector<std::byte>>
      ended_obs_;                        // an entry an array: [rows, bytes] scratch of action repeat
  std::vector<double> episode_return_;   // [rows] raw
  std::vector<int32_t> episode_length_;  // [rows] environment steps
  std::vector<uint64_t> episode_;        // [rows] episodes begun so far
  std::unique_ptr<EnvFault> fault_;
};

}  // namespace millrace
