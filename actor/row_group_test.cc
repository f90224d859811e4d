#include "actor/row_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

namespace millrace {
namespace {

using testing::ElementsAre;

// How each episode of a row ends, in turn.
struct Ending {
  int length;
  bool terminated, truncated;
};

// Episode e of row r shows observations (r, e, s) with s counting steps; the reward of a step is its s.
class ScriptedEnv : public Env {
 public:
  // With a mask, step s forbids action s % 2.
  ScriptedEnv(int rows, std::vector<Ending> endings, bool mask = false)
      : endings_(std::move(endings)), state_(static_cast<size_t>(rows)) {
    spec_.id = "Scripted";
    spec_.observations = {{"where", DType::kF32, {3}}};
    spec_.action.nvec = {2};
    spec_.action_mask = mask;
  }
  const EnvSpec& spec() const override { return spec_; }
  int rows() const override { return static_cast<int>(state_.size()); }
  void ResetRow(int row, uint64_t, const ObsOut& obs, uint8_t* mask) override {
    State& s = state_[static_cast<size_t>(row)];
    s = {s.episode + 1, 0};
    Show(row, obs);
    if (bad_first_obs_) obs.row<float>(0, row)[2] = NAN;
    if (mask != nullptr) ShowMask(row, mask);
  }
  void Step(const StepArgs& args) override {
    for (int r = 0; r < rows(); ++r) {
      State& s = state_[static_cast<size_t>(r)];
      ++s.step;
      const Ending& end = endings_[static_cast<size_t>(s.episode) % endings_.size()];
      args.reward[r] = bad_reward_at_ == s.step ? NAN : s.step;
      args.terminated[r] = end.terminated && s.step == end.length;
      args.truncated[r] = end.truncated && s.step == end.length;
      Show(r, args.obs);
      if (args.mask != nullptr) ShowMask(r, args.mask + 2 * r);
      if (bad_obs_at_ == s.step) args.obs.row<float>(0, r)[1] = INFINITY;
    }
  }
  size_t row_state_bytes() const override { return sizeof(State); }
  void SaveRow(int row, std::byte* out) const override {
    std::memcpy(out, &state_[static_cast<size_t>(row)], sizeof(State));
  }
  void LoadRow(int row, const std::byte* in) override {
    std::memcpy(&state_[static_cast<size_t>(row)], in, sizeof(State));
  }

  int bad_reward_at_ = -1, bad_obs_at_ = -1;
  bool bad_first_obs_ = false;

 private:
  struct State {
    int32_t episode = -1, step = 0;
  };
  void Show(int row, const ObsOut& obs) {
    float* o = obs.row<float>(0, row);
    o[0] = static_cast<float>(row);
    o[1] = static_cast<float>(state_[static_cast<size_t>(row)].episode);
    o[2] = static_cast<float>(state_[static_cast<size_t>(row)].step);
  }
  void ShowMask(int row, uint8_t* mask) const {
    const int forbidden = state_[static_cast<size_t>(row)].step % 2;
    mask[forbidden] = 0;
    mask[1 - forbidden] = 1;
  }
  EnvSpec spec_;
  std::vector<Ending> endings_;
  std::vector<State> state_;
};

// A group with a segment of its own.
struct Rig {
  Rig(std::vector<Ending> endings, int rows, int steps, const EnvSection& options = Defaults(),
      int finals = -1, bool mask = false) {
    auto made = std::make_unique<ScriptedEnv>(rows, std::move(endings), mask);
    env = made.get();
    group = RowGroup::Wrap(std::move(made), options, 1, 10);
    layout = SegmentLayout(group->spec(), steps, rows, finals >= 0 ? finals : steps * rows);
    memory.resize(layout.bytes());
    segment = SegmentView(&layout, memory.data());
    group->Reset(segment, steps);
    group->BeginSegment(segment, segment);
  }
  static EnvSection Defaults() {
    EnvSection options;
    options.id = "Scripted";
    return options;
  }
  void Run() {
    for (int t = 0; t < layout.steps(); ++t) group->Step(segment, t);
  }
  std::vector<float> Obs(int t, int row = 0) const {
    const int width = group->spec().observation_elements();
    const auto* o = reinterpret_cast<const float*>(segment.obs(0, t)) + row * width;
    return {o, o + width};
  }
  std::vector<float> Final(int entry) const {
    const auto* o = reinterpret_cast<const float*>(segment.final_obs(0, entry));
    return {o, o + group->spec().observation_elements()};
  }
  ScriptedEnv* env;
  std::unique_ptr<RowGroup> group;
  SegmentLayout layout;
  std::vector<std::byte> memory;
  SegmentView segment;
};

// Golden: an episode of two steps that terminates, one of one step that is truncated, then one that runs on.
TEST(RowGroup, TransitionsAreThoseOfSameStepAutoreset) {
  std::ifstream in(std::string(MILLRACE_GOLDEN_DIR) + "/golden.json");
  const auto golden = nlohmann::json::parse(in)["autoreset_streams"]["same_step_mode"]["transitions"];
  Rig rig({{2, true, false}, {1, false, true}, {9, true, false}}, 1, 4);
  rig.Run();
  const auto name = [](const std::vector<float>& obs) {
    return std::string(1, static_cast<char>('a' + static_cast<int>(obs[1]))) +
           std::to_string(static_cast<int>(obs[2]));
  };
  ASSERT_EQ(golden.size(), 4u);
  int finals = 0;
  for (int t = 0; t < 4; ++t) {
    const bool truncated = rig.segment.truncated()[t] != 0, terminated = rig.segment.terminated()[t] != 0;
    EXPECT_EQ(name(rig.Obs(t)), golden[t][0]);
    EXPECT_EQ(terminated, golden[t][3].get<bool>());
    if (truncated) {
      EXPECT_EQ(rig.segment.final_index()[finals], t);
      EXPECT_EQ(name(rig.Final(finals++)), golden[t][2]);
    } else if (!terminated) {
      EXPECT_EQ(name(rig.Obs(t + 1)), golden[t][2]);
    }
  }
  EXPECT_EQ(finals, rig.segment.final_count());
  ASSERT_EQ(rig.segment.episode_count(), 2);
  EXPECT_EQ(rig.segment.episodes()[0].length, 2);
  EXPECT_EQ(rig.segment.episodes()[0].ret, 1 + 2);
  EXPECT_EQ(rig.segment.episodes()[1].index, 2);
}

TEST(RowGroup, ATimeLimitTruncatesAndKeepsTheFinalObservation) {
  EnvSection options = Rig::Defaults();
  options.time_limit = 3;
  Rig rig({{3, true, false}, {100, true, false}}, 2, 7, options);
  rig.Run();
  // Row 0 and 1 alike: terminated (and at the limit) at step 2, truncated at step 5.
  EXPECT_EQ(rig.segment.terminated()[2 * 2], 1);
  EXPECT_EQ(rig.segment.truncated()[2 * 2], 1);
  EXPECT_EQ(rig.segment.terminated()[5 * 2 + 1], 0);
  EXPECT_EQ(rig.segment.truncated()[5 * 2 + 1], 1);
  ASSERT_EQ(rig.segment.final_count(), 2);  // a terminated step needs none
  EXPECT_EQ(rig.segment.final_index()[1], 5 * 2 + 1);
  EXPECT_THAT(rig.Final(1), ElementsAre(1, 1, 3));
  EXPECT_THAT(rig.Obs(6, 1), ElementsAre(1, 2, 0));
}

TEST(RowGroup, ActionRepeatAddsRewardsAndStopsAtTheEnd) {
  EnvSection options = Rig::Defaults();
  options.action_repeat = 3;
  Rig rig({{5, false, true}}, 1, 2, options);
  rig.Run();
  EXPECT_EQ(rig.segment.reward()[0], 1 + 2 + 3);
  EXPECT_EQ(rig.segment.reward()[1], 4 + 5);  // the third repeat is after the end
  EXPECT_EQ(rig.segment.truncated()[1], 1);
  EXPECT_THAT(rig.Final(0), ElementsAre(0, 0, 5));
  EXPECT_THAT(rig.Obs(2), ElementsAre(0, 1, 0));
  EXPECT_EQ(rig.segment.episodes()[0].length, 5);
}

TEST(RowGroup, FramesStackNewestLastAndAnEpisodeBeginsWithCopies) {
  EnvSection options = Rig::Defaults();
  options.frame_stack = 2;
  Rig rig({{2, false, true}}, 1, 3, options);
  rig.Run();
  EXPECT_THAT(rig.group->spec().observations[0].shape, ElementsAre(2, 3));
  EXPECT_THAT(rig.Obs(0), ElementsAre(0, 0, 0, 0, 0, 0));
  EXPECT_THAT(rig.Obs(1), ElementsAre(0, 0, 0, 0, 0, 1));
  EXPECT_THAT(rig.Final(0), ElementsAre(0, 0, 1, 0, 0, 2));
  EXPECT_THAT(rig.Obs(2), ElementsAre(0, 1, 0, 0, 1, 0));
  EXPECT_THAT(rig.Obs(3), ElementsAre(0, 1, 0, 0, 1, 1));
}

TEST(RowGroup, AFullTableOfFinalObservationsMarksTheStepInvalid) {
  Rig rig({{1, false, true}}, 1, 3, Rig::Defaults(), /*finals=*/2);
  rig.Run();
  EXPECT_EQ(rig.segment.final_count(), 2);
  EXPECT_THAT(std::vector<int>(rig.segment.valid(), rig.segment.valid() + 3), ElementsAre(1, 1, 0));
}

TEST(RowGroup, AValueThatIsNotFiniteIsNamedAndNeverTrainedOn) {
  for (bool reward : {true, false}) {
    Rig rig({{9, true, false}}, 2, 3);
    (reward ? rig.env->bad_reward_at_ : rig.env->bad_obs_at_) = 2;
    rig.Run();
    ASSERT_NE(rig.group->fault(), nullptr);
    EXPECT_EQ(rig.group->fault()->row, 10u);
    EXPECT_EQ(rig.group->fault()->step, 2u);
    EXPECT_THAT(rig.group->fault()->ToStatus().message(),
                testing::HasSubstr(reward ? "Scripted: the reward of row 10"
                                          : "Scripted: observation `where`[1] of row 10"));
    EXPECT_THAT(std::vector<int>(rig.segment.valid(), rig.segment.valid() + 6),
                ElementsAre(1, 1, 0, 0, 1, 1));
    EXPECT_EQ(rig.segment.episode_count(), 0);
    EXPECT_THAT(rig.Obs(2, 1), ElementsAre(1, 1, 0));
    EXPECT_EQ(rig.segment.truncated()[2], 1);  // cut off, and not kept as a final observation
    EXPECT_EQ(rig.segment.final_count(), 0);
    rig.group->ClearFault();
    EXPECT_EQ(rig.group->fault(), nullptr);
  }
}

TEST(RowGroup, AFirstObservationThatIsNotFiniteIsNamed) {
  Rig rig({{2, true, false}}, 1, 3);
  rig.env->bad_first_obs_ = true;
  rig.Run();
  ASSERT_NE(rig.group->fault(), nullptr);
  EXPECT_THAT(rig.group->fault()->ToStatus().message(),
              testing::HasSubstr("the first observation `where` of row 10"));
  EXPECT_THAT(rig.Obs(2), ElementsAre(0, 0, 0));
}

TEST(RowGroup, MasksStandBesideTheObservationsTheyBelongTo) {
  Rig a({{3, false, true}}, 2, 4, Rig::Defaults(), -1, true),
      b({{3, false, true}}, 2, 4, Rig::Defaults(), -1, true);
  a.Run();
  const auto forbidden = [](const Rig& rig, int t, int row) {
    return rig.segment.mask()[(t * 2 + row) * 2] == 0 ? 0 : 1;
  };
  for (int t = 0; t <= 4; ++t) EXPECT_EQ(forbidden(a, t, 1), static_cast<int>(a.Obs(t, 1)[2]) % 2) << t;
  EXPECT_EQ(a.Obs(3, 1)[2], 0);  // reset in the same step: the mask is the new episode's
  std::vector<std::byte> state(a.group->row_state_bytes() * 2);
  a.group->SaveRows(a.segment, 4, state.data());
  b.group->LoadRows(b.segment, 4, state.data());
  b.group->BeginSegment(b.segment, b.segment);
  EXPECT_EQ(forbidden(b, 0, 0), forbidden(a, 4, 0));
  EXPECT_EQ(forbidden(b, 0, 1), forbidden(a, 4, 1));
}

TEST(RowGroup, SavedRowsGoOnExactlyInAnotherGroup) {
  EnvSection options = Rig::Defaults();
  options.frame_stack = 2;
  options.time_limit = 4;
  const std::vector<Ending> endings = {{3, true, false}, {7, true, false}};
  Rig a(endings, 2, 5, options), b(endings, 2, 5, options);
  a.Run();
  std::vector<std::byte> state(a.group->row_state_bytes() * 2);
  a.group->SaveRows(a.segment, 5, state.data());
  b.group->LoadRows(b.segment, 5, state.data());
  for (Rig* rig : {&a, &b}) {
    rig->group->BeginSegment(rig->segment, rig->segment);
    rig->Run();
  }
  for (int t = 0; t <= 5; ++t) {
    EXPECT_EQ(a.Obs(t, 0), b.Obs(t, 0));
    EXPECT_EQ(a.Obs(t, 1), b.Obs(t, 1));
  }
  EXPECT_EQ(std::memcmp(a.segment.truncated(), b.segment.truncated(), 10), 0);
  ASSERT_EQ(a.segment.episode_count(), 4);
  ASSERT_EQ(b.segment.episode_count(), 4);
  EXPECT_EQ(a.segment.episodes()[0].ret, b.segment.episodes()[0].ret);
}

// sleep_for promises at least what it was asked for; there is no upper bound to check.
TEST(RowGroup, AStepWaitsOnceForTheWholeGroupAndChangesNothing) {
  EnvSection slow = Rig::Defaults();
  slow.step_wait_us = 3000;
  const std::vector<Ending> endings = {{2, false, true}, {3, true, false}};
  Rig waits(endings, 4, 5, slow), plain(endings, 4, 5);
  const auto begin = std::chrono::steady_clock::now();
  waits.Run();
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 5 * std::chrono::microseconds(slow.step_wait_us));
  plain.Run();
  EXPECT_EQ(waits.memory, plain.memory);
}

}  // namespace
}  // namespace millrace
