#include "learner/replay/replay.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "kernels/testing/golden.h"
#include "learner/testing/replay_feed.h"

namespace millrace {
namespace {

using replay_testing::Batch;
using replay_testing::Feed;
using replay_testing::FeedSpec;
using replay_testing::MakeReplay;
using replay_testing::Small;
using replay_testing::TrueStep;

// What a window of n steps from the step at `number` must be, by the record.
struct Want {
  double reward = 0;
  float discount = 0;
  const TrueStep* last = nullptr;
};
Want WindowByRecord(const std::map<float, TrueStep>& truth, float number, int n, double gamma) {
  Want want;
  double power = 1;
  for (int k = 0; k < n; ++k) {
    const auto found = truth.find(number);
    if (found == truth.end() || !found->second.valid) break;  // the head, or a step that is not valid
    want.reward += power * found->second.reward;
    power *= gamma;
    want.last = &found->second;
    number = found->second.next;
    if (found->second.terminated || found->second.truncated) break;
  }
  want.discount = want.last->terminated ? 0.0f : static_cast<float>(power);
  return want;
}

void ExpectRow(const Batch& batch, int row, int elements, int frames, int n, double gamma,
               const std::map<float, TrueStep>& truth) {
  const float* x = &batch.x[static_cast<size_t>(row * batch.view.ld)];
  const float* next = &batch.next_x[static_cast<size_t>(row * batch.view.ld)];
  const float number = x[elements * frames - 1];
  const auto found = truth.find(number);
  ASSERT_NE(found, truth.end()) << number;
  const TrueStep& step = found->second;
  ASSERT_TRUE(step.valid) << number;
  const Want want = WindowByRecord(truth, number, n, gamma);
  EXPECT_FLOAT_EQ(batch.reward[static_cast<size_t>(row)], static_cast<float>(want.reward));
  EXPECT_FLOAT_EQ(batch.discount[static_cast<size_t>(row)], want.discount);
  for (int f = 0; f < frames; ++f) {
    for (int e = 0; e < elements; ++e) {
      EXPECT_EQ(x[f * elements + e], step.stack[static_cast<size_t>(f)]) << "frame " << f << " of " << number;
      if (want.discount == 0) continue;
      EXPECT_EQ(next[f * elements + e], want.last->next_stack[static_cast<size_t>(f)])
          << "frame " << f << " after " << number;
    }
  }
  EXPECT_NEAR(x[elements * frames], (step.action + 2) / 4 - 1, 1e-6);
  EXPECT_NEAR(x[elements * frames + 1], -0.75, 1e-6);
  EXPECT_EQ(next[elements * frames], -7.0f) << "the action's part of next_x is the actor's";
}

struct Case {
  const char* name;
  int steps, rows, elements, frames, n;
  uint64_t capacity;
  Feed::Chances chances;
  int segments, restart_every;
};

class ReplayContent : public ::testing::TestWithParam<Case> {};

// Whatever is drawn is what happened: windows, stacks, ends, breaks, and the ring going round many times.
TEST_P(ReplayContent, IsWhatHappened) {
  const Case& c = GetParam();
  const EnvSpec spec = FeedSpec(c.elements, c.frames);
  const ObsEncoder encoder(spec, false, 0);
  ReplayOptions options = Small(c.capacity, 2 * c.rows);
  options.frame_stack = c.frames;
  options.n_step = c.n;
  options.gamma = 0.9;
  auto replay = MakeReplay(options, spec, encoder);
  Feed a(spec, c.steps, c.rows, c.chances, 1, 1), b(spec, c.steps, c.rows, c.chances, 2, 500'000);
  Batch batch(64, encoder.width(), 2);
  for (int i = 0; i < c.segments; ++i) {
    ASSERT_TRUE(replay->Add(a.Next(), 0).ok());
    if (i % 3 == 0) {  // a slow group
      ASSERT_TRUE(replay->Add(b.Next(), 7).ok());
    }
    if (c.restart_every > 0 && i % c.restart_every == 0) a.Restart();
    EXPECT_LE(replay->size(), c.capacity);
    if (!replay->can_sample()) continue;
    replay->Sample(static_cast<uint64_t>(i), 1, batch.view);
    std::map<float, TrueStep> truth = a.truth();
    truth.insert(b.truth().begin(), b.truth().end());
    for (int row = 0; row < 64 && !HasFailure(); ++row) {
      ExpectRow(batch, row, c.elements, c.frames, c.n, 0.9, truth);
    }
    ASSERT_FALSE(HasFailure()) << "after segment " << i;
  }
  EXPECT_GT(replay->size(), c.capacity / 3);
}

INSTANTIATE_TEST_SUITE_P(
    All, ReplayContent,
    ::testing::Values(Case{"OneStepSegments", 1, 4, 3, 1, 1, 400, {.05, .05, .02}, 400, 0},
                      Case{"LongSegments", 9, 3, 3, 1, 1, 500, {.05, .05, .02}, 120, 7},
                      Case{"Windows", 1, 4, 3, 1, 5, 400, {.05, .05, .02}, 400, 11},
                      Case{"NoEnds", 2, 1, 1, 1, 3, 50, {}, 200, 0},
                      Case{"EveryStepIsTruncated", 1, 2, 2, 1, 3, 100, {0, 1, 0}, 300, 0},
                      Case{"EveryStepTerminates", 1, 2, 2, 1, 3, 100, {1, 0, 0}, 300, 0},
                      Case{"Stacks", 1, 2, 2, 4, 1, 300, {.05, .05, .02}, 500, 13},
                      Case{"StacksAndWindows", 5, 3, 2, 3, 4, 600, {.03, .03, .01}, 200, 9}),
    [](const auto& param) { return param.param.name; });

TEST(Replay, AnyCutOfABatchHasTheSameBits) {
  const EnvSpec spec = FeedSpec();
  const ObsEncoder encoder(spec, false, 0);
  auto replay = MakeReplay(Small(1000, 8), spec, encoder);
  Feed feed(spec, 4, 8, {.05, .05, 0}, 3, 1);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(replay->Add(feed.Next(), 0).ok());
  Batch whole(100, encoder.width(), 2), cut(100, encoder.width(), 2);
  replay->Sample(5, 1, whole.view);
  for (int begin : {90, 33, 0})
    replay->SampleRows(5, 1, cut.view, begin, begin == 90 ? 10 : begin == 33 ? 57 : 33);
  EXPECT_EQ(whole.x, cut.x);
  EXPECT_EQ(whole.index, cut.index);
  replay->Sample(6, 1, cut.view);
  EXPECT_NE(whole.index, cut.index) << "another draw draws others";
}

TEST(Replay, EveryTransitionIsDrawnEquallyOften) {
  const EnvSpec spec = FeedSpec();
  const ObsEncoder encoder(spec, false, 0);
  auto replay = MakeReplay(Small(200, 3), spec, encoder);
  Feed feed(spec, 1, 3, {.1, .1, .1}, 3, 1);
  for (int i = 0; i < 150; ++i) ASSERT_TRUE(replay->Add(feed.Next(), 0).ok());
  constexpr int kBatch = 100, kDraws = 400;
  Batch batch(kBatch, encoder.width(), 2);
  std::map<uint32_t, int> times;
  for (int i = 0; i < kDraws; ++i) {
    replay->Sample(static_cast<uint64_t>(i), 1, batch.view);
    for (uint32_t slot : batch.index) ++times[slot];
  }
  ASSERT_EQ(times.size(), replay->size());
  const double expected = 1.0 * kBatch * kDraws / static_cast<double>(replay->size());
  double chi2 = 0;
  for (const auto& [slot, n] : times) chi2 += (n - expected) * (n - expected) / expected;
  const double dof = static_cast<double>(replay->size()) - 1;
  EXPECT_LT(chi2, dof + 5 * std::sqrt(2 * dof));
}

// The ring of the golden data: what stops a window at the ring's head and at both kinds of end.
TEST(Replay, GoldenWindows) {
  const auto& golden = Golden("n_step");
  const EnvSpec spec = FeedSpec(1);
  const ObsEncoder encoder(spec, false, 0);
  const auto rewards = Flat<float>(golden.at("rewards"));
  const auto terminated = Flat<int>(golden.at("terminated")), truncated = Flat<int>(golden.at("truncated"));
  ReplayOptions options = Small(100, 1);
  options.n_step = golden.at("n").get<int>();
  options.gamma = golden.at("gamma").get<double>();
  auto replay = MakeReplay(options, spec, encoder);
  const auto steps = static_cast<int>(rewards.size());
  const SegmentLayout layout(spec, steps, 1, steps);
  std::vector<uint64_t> memory(layout.bytes() / 8 + 1);
  const SegmentView view(&layout, reinterpret_cast<std::byte*>(memory.data()));
  for (int t = 0; t <= steps; ++t) *reinterpret_cast<float*>(view.obs(0, t)) = static_cast<float>(t);
  for (int t = 0; t < steps; ++t) {
    const auto at = static_cast<size_t>(t);
    view.reward()[t] = rewards[at];
    view.terminated()[t] = static_cast<uint8_t>(terminated[at]);
    view.truncated()[t] = static_cast<uint8_t>(truncated[at]);
    view.valid()[t] = 1;
    if (truncated[at] == 0) continue;
    *reinterpret_cast<float*>(view.final_obs(0, view.final_count())) = static_cast<float>(t) + 0.5f;
    view.final_index()[view.final_count()++] = t;
  }
  ASSERT_TRUE(replay->Add(view, 0).ok());
  ASSERT_EQ(replay->size(), static_cast<uint64_t>(steps));
  Batch batch(200, 1, 2);
  replay->Sample(0, 1, batch.view);
  std::set<int> seen;
  for (size_t i = 0; i < 200; ++i) {
    const int start = static_cast<int>(batch.x[i * 3]);
    seen.insert(start);
    const auto& want = golden.at("rows").at(static_cast<size_t>(start));
    EXPECT_TRUE(CloseF32(batch.reward[i], want.at("return").get<double>())) << start;
    EXPECT_TRUE(CloseF32(batch.discount[i], want.at("bootstrap_discount").get<double>())) << start;
    if (!want.at("bootstrap").get<bool>()) continue;
    const int after = want.at("next_obs_is_obs_after_step").get<int>();
    const float next = truncated[static_cast<size_t>(after)] != 0 ? static_cast<float>(after) + 0.5f
                                                                  : static_cast<float>(after) + 1;
    EXPECT_EQ(batch.next_x[i * 3], next) << start;
  }
  EXPECT_EQ(seen.size(), rewards.size());
}

TEST(Replay, BytesPerTransition) {
  const auto per_transition = [](const EnvSpec& spec, int rows, int frames) {
    ReplayOptions options;
    options.rows = rows;
    options.frame_stack = frames;
    return static_cast<double>(*Replay::Bytes(options, spec)) / static_cast<double>(options.capacity);
  };
  EnvSpec cheetah = FeedSpec(17);
  cheetah.action.low.assign(6, -1);
  cheetah.action.high.assign(6, 1);
  EXPECT_LE(per_transition(cheetah, 1, 1), 1.05 * (17 * 4 + 6 * 4 + 4 + 1));
  EXPECT_LE(per_transition(cheetah, 1024, 1), 1.05 * (17 * 4 + 6 * 4 + 4 + 1));
  EnvSpec pendulum = FeedSpec(3);
  pendulum.action.low.assign(1, -2);
  pendulum.action.high.assign(1, 2);
  EXPECT_LE(per_transition(pendulum, 8, 1), 1.05 * (3 * 4 + 4 + 4 + 1));
  EnvSpec pixels = FeedSpec(84 * 84, 4);
  pixels.observations[0].dtype = DType::kU8;
  EXPECT_LE(per_transition(pixels, 8, 4), 1.05 * (84 * 84 + 8 + 4 + 1)) << "each frame once";
}

// What replay.h says of the capacity: stacks cost it nothing, truncated episodes of L steps one part in L
// + 1.
TEST(Replay, ReachesItsCapacity) {
  for (const int frames : {1, 64}) {
    for (const int length : {1, 2, 20, 0}) {  // 0: episodes do not end
      constexpr int kRows = 4;
      constexpr uint64_t kCapacity = 600;
      const EnvSpec spec = FeedSpec(2, frames);
      const ObsEncoder encoder(spec, false, 0);
      ReplayOptions options = Small(kCapacity, kRows);
      options.frame_stack = frames;
      auto replay = MakeReplay(options, spec, encoder);
      Feed feed(spec, 1, kRows, {0, 0, 0, length}, 1, 1);
      uint64_t most = 0;  // after the first rounds; it goes down by a page at a time
      for (uint64_t i = 0; i < kCapacity; ++i) {
        ASSERT_TRUE(replay->Add(feed.Next(), 0).ok());
        if (i > kCapacity / 2) most = std::max(most, replay->size());
      }
      const auto steps = static_cast<uint64_t>(length);
      EXPECT_GE(most, length == 0 ? kCapacity : kCapacity * steps / (steps + 1))
          << frames << " frames, episodes of " << length;
      if (length == 1 && frames == 1) {
        EXPECT_LT(most, kCapacity * 0.6);
      }
    }
  }
}

TEST(Replay, RefusesWhatCannotBe) {
  const EnvSpec spec = FeedSpec();
  const ObsEncoder encoder(spec, false, 0);
  const auto why = [&](const ReplayOptions& options) {
    return std::string(Replay::Make(options, spec, encoder).status().message());
  };
  ReplayOptions options = Small(100, 1);
  options.batch_size = 101;
  EXPECT_NE(why(options).find("replay.capacity 100 is smaller than a batch of 101"), std::string::npos);
  options = Small(100, 20);
  options.n_step = 6;
  EXPECT_NE(why(options).find("window of 6 steps for each of 20 rows"), std::string::npos);
  options = Small(1000, 16);
  options.frame_stack = 256;
  EXPECT_NE(
      Replay::Bytes(options, FeedSpec(1, 256))
          .status()
          .message()
          .find("window of 1 steps and 255 older frames (env.frame_stack) for each of 16 rows; make it 4096"),
      absl::string_view::npos);
  options = Small(1'000'000, 1);
  options.available_memory = [] { return uint64_t{1} << 20; };
  EXPECT_EQ(Replay::Make(options, spec, encoder).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(why(options).find(std::to_string(*Replay::Bytes(options, spec))), std::string::npos)
      << why(options);
  // Room for the replay, but not for the copy that its checkpoints are written from.
  options = Small(1000, 1);
  const uint64_t alone = *Replay::Bytes(options, spec);
  options.available_memory = [alone] { return alone + alone / 2; };
  EXPECT_TRUE(Replay::Make(options, spec, encoder).ok());
  options.shadow = true;
  EXPECT_EQ(*Replay::Bytes(options, spec), 2 * alone);
  EXPECT_NE(why(options).find(std::to_string(2 * alone)), std::string::npos) << why(options);
  EXPECT_NE(why(options).find("checkpoint.replay=false"), std::string::npos) << why(options);
  auto replay = MakeReplay(Small(20, 4), spec, encoder);
  Feed wide(FeedSpec(4), 1, 4, {}, 1, 1), many(spec, 1, 2000, {}, 1, 1), fewer(spec, 1, 3, {}, 1, 1);
  EXPECT_EQ(replay->Add(wide.Next(), 0).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(replay->Add(many.Next(), 0).code(), absl::StatusCode::kInvalidArgument);
  Feed most(spec, 1, static_cast<int>(replay->most_rows()), {}, 1, 1);
  EXPECT_TRUE(MakeReplay(Small(20, 4), spec, encoder)->Add(most.Next(), 0).ok());
  EXPECT_TRUE(replay->Add(fewer.Next(), 0).ok());
  Feed other(spec, 1, 2, {}, 1, 1);
  EXPECT_EQ(replay->Add(other.Next(), 0).code(), absl::StatusCode::kInvalidArgument)
      << "another size of group 0";
}

}  // namespace
}  // namespace millrace
