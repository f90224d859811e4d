// What tests of the replay share: rows of made-up episodes as segments, where every observation is a number
// of its own, and a record of what really happened in them. Test code only.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "common/segment.h"
#include "learner/replay/batch_memory.h"
#include "learner/replay/replay.h"

namespace millrace::replay_testing {

// Box actions of two dimensions in [-2, 6]; one observation of `elements` f32, all of them the same number.
inline EnvSpec FeedSpec(int elements = 3, int frames = 1) {
  EnvSpec spec;
  spec.id = "Feed";
  ArraySpec array{"state", DType::kF32, {elements}};
  if (frames > 1) array.shape.insert(array.shape.begin(), frames);
  spec.observations = {array};
  spec.action.kind = ActionSpec::Kind::kBox;
  spec.action.low = {-2, -2};
  spec.action.high = {6, 6};
  return spec;
}

// Of Box actions; x is filled with a number that no feed has.
struct Batch : ReplayBatchMemory {
  Batch(int rows, int width, int actions) : ReplayBatchMemory(rows, width + actions, 0, 0, -7.0f) {}
};

// Of a small replay, with memory enough whatever the machine has.
inline ReplayOptions Small(uint64_t capacity, int rows) {
  ReplayOptions options;
  options.capacity = capacity;
  options.rows = rows;
  options.batch_size = 1;
  options.available_memory = [] { return uint64_t{1} << 32; };
  return options;
}

inline std::unique_ptr<Replay> MakeReplay(const ReplayOptions& options, const EnvSpec& spec,
                                          const ObsEncoder& encoder) {
  auto replay = Replay::Make(options, spec, encoder);
  EXPECT_TRUE(replay.ok()) << replay.status();
  return std::move(replay).value();
}

struct TrueStep {
  float action = 0, reward = 0;
  float next = 0;  // the real next observation's number, the final one's at an end
  bool terminated = false, truncated = false, valid = true;
  bool last = false;                     // the newest of its row when asked
  std::vector<float> stack, next_stack;  // numbers of the frames
};

// One row group. Ends come at random, and so do steps that are not valid.
class Feed {
 public:
  struct Chances {
    double terminated = 0, truncated = 0, invalid = 0;
    int limit = 0;  // steps after which all episodes are truncated; 0: none
  };
  Feed(const EnvSpec& spec, int steps, int rows, Chances chances, uint32_t seed, float first_number)
      : layout_(spec, steps, rows, steps * rows),
        memory_(layout_.bytes() / 8 + 1),
        chances_(chances),
        random_(seed),
        number_(first_number),
        frames_(spec.observations[0].shape.size() > 1 ? spec.observations[0].shape[0] : 1),
        elements_(spec.observations[0].elements() / frames_),
        stacks_(static_cast<size_t>(rows)),
        steps_done_(static_cast<size_t>(rows)) {
    for (auto& stack : stacks_) Reset(stack);
  }

  // Fills the segment with the next steps of all rows.
  SegmentView Next() {
    const SegmentView view(&layout_, reinterpret_cast<std::byte*>(memory_.data()));
    view.final_count() = 0;
    view.episode_count() = 0;
    for (int row = 0; row < layout_.rows(); ++row) Put(view, 0, row);
    for (int t = 0; t < layout_.steps(); ++t) {
      for (int row = 0; row < layout_.rows(); ++row) Step(view, t, row);
    }
    return view;
  }
  // The rows begin anew, as those of a group that another actor has taken without their state.
  void Restart() {
    for (auto& stack : stacks_) Reset(stack);
  }
  // By the number of the observation that the step was taken at.
  const std::map<float, TrueStep>& truth() const { return truth_; }

 private:
  void Reset(std::vector<float>& stack) { stack.assign(static_cast<size_t>(frames_), number_++); }
  bool Chance(double p) { return std::uniform_real_distribution<double>(0, 1)(random_) < p; }
  void Write(std::byte* to, const std::vector<float>& stack) const {
    auto* out = reinterpret_cast<float*>(to);
    for (float frame : stack) {
      for (int e = 0; e < elements_; ++e) *out++ = frame;
    }
  }
  void Put(const SegmentView& view, int t, int row) {
    Write(view.obs(0, t) + static_cast<size_t>(row) * view.obs_row_bytes(0),
          stacks_[static_cast<size_t>(row)]);
  }
  void Step(const SegmentView& view, int t, int row) {
    auto& stack = stacks_[static_cast<size_t>(row)];
    const auto at = static_cast<size_t>(t * layout_.rows() + row);
    TrueStep step;
    step.stack = stack;
    step.valid = !Chance(chances_.invalid);
    step.terminated = step.valid && Chance(chances_.terminated);
    const bool over = chances_.limit > 0 && ++steps_done_[static_cast<size_t>(row)] % chances_.limit == 0;
    step.truncated = !step.valid || (!step.terminated && (over || Chance(chances_.truncated)));
    step.action = std::fmod(stack.back() * 0.01f, 4.0f);
    step.reward = stack.back() + 0.5f;
    float* action = static_cast<float*>(view.action()) + at * 2;
    action[0] = step.action;
    action[1] = -1;
    view.reward()[at] = step.reward;
    view.terminated()[at] = step.terminated;
    view.truncated()[at] = step.truncated;
    view.valid()[at] = step.valid;
    stack.erase(stack.begin());
    stack.push_back(number_++);
    step.next = stack.back();
    step.next_stack = stack;
    if (step.truncated && step.valid) {
      Write(view.final_obs(0, view.final_count()), stack);
      view.final_index()[view.final_count()++] = static_cast<int32_t>(at);
    }
    truth_[step.stack.back()] = step;
    if (step.terminated || step.truncated) Reset(stack);
    Put(view, t + 1, row);
  }

  SegmentLayout layout_;
  std::vector<uint64_t> memory_;
  Chances chances_;
  std::mt19937 random_;
  float number_;
  int frames_, elements_;
  std::vector<std::vector<float>> stacks_;  // [rows][frames]
  std::vector<int> steps_done_;             // [rows]
  std::map<float, TrueStep> truth_;
};

}  // namespace millrace::replay_testing
