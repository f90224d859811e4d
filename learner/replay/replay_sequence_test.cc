// Sequences: what stands at each position, by the record of what happened.
#include <gtest/gtest.h>

#include "kernels/testing/golden.h"
#include "learner/testing/replay_feed.h"

namespace millrace {
namespace {

using replay_testing::Feed;
using replay_testing::FeedSpec;
using replay_testing::MakeReplay;
using replay_testing::Small;
using replay_testing::TrueStep;

struct Sequences {
  Sequences(int rows, int burn_in, int length, int width) : positions(burn_in + length), ld(width + 2) {
    const auto n = static_cast<size_t>(rows * positions);
    x.assign(static_cast<size_t>(rows * (positions + 1) * ld), -7);
    reward.resize(n);
    discount.resize(n);
    valid.resize(n);
    begin.resize(n);
    view.rows = rows;
    view.burn_in = burn_in;
    view.length = length;
    view.ld = ld;
    view.x = x.data();
    view.reward = reward.data();
    view.discount = discount.data();
    view.valid = valid.data();
    view.begin = begin.data();
  }
  float X(int row, int position, int element) const {
    return x[static_cast<size_t>((row * (positions + 1) + position) * ld + element)];
  }
  int positions, ld;
  std::vector<float> x, reward, discount;
  std::vector<uint8_t> valid, begin;
  SequenceBatch view;
};

// The frames at a position are those of the record.
void ExpectStack(const Sequences& s, int row, int position, const std::vector<float>& stack) {
  for (size_t f = 0; f < stack.size(); ++f) {
    EXPECT_EQ(s.X(row, position, static_cast<int>(f)), stack[f]) << "row " << row << " position " << position;
  }
}

void ExpectSequence(const Sequences& s, int row, int burn_in, int frames,
                    const std::map<float, TrueStep>& truth) {
  const auto at = [&](int position) { return static_cast<size_t>(row * s.positions + position); };
  ASSERT_TRUE(s.valid[at(burn_in)]) << "what was drawn is a step";
  const TrueStep* last = nullptr;
  for (int p = 0; p <= s.positions && !::testing::Test::HasFailure(); ++p) {
    const bool here = p < s.positions && s.valid[at(p)] != 0;
    if (last != nullptr) {
      const bool over = last->terminated || last->truncated;
      ASSERT_FALSE(over && here) << "past an episode's end";
      if (last->terminated) {
        ExpectStack(s, row, p, std::vector<float>(static_cast<size_t>(frames), 0.0f));
      } else {
        ExpectStack(s, row, p, last->next_stack);
      }
    }
    if (!here) {
      last = nullptr;
      if (p < s.positions) {
        ASSERT_EQ(s.discount[at(p)], 0);
      }
      continue;
    }
    const auto found = truth.find(s.X(row, p, frames - 1));
    ASSERT_NE(found, truth.end());
    last = &found->second;
    ASSERT_TRUE(last->valid);
    ExpectStack(s, row, p, last->stack);
    EXPECT_EQ(s.reward[at(p)], last->reward);
    EXPECT_EQ(s.discount[at(p)], last->terminated ? 0.0f : 0.9f);
    const bool first = last->stack.front() == last->stack.back();
    if (frames > 1) {
      EXPECT_EQ(s.begin[at(p)] != 0, first);
    }
    if (p > 0 && s.valid[at(p - 1)] == 0 && p <= burn_in && s.begin[at(p)] != 0) {
      EXPECT_TRUE(frames == 1 || first) << "burn-in reaches back as far as the run does";
    }
  }
}

TEST(ReplaySequences, AreWhatHappened) {
  for (int frames : {1, 3}) {
    const EnvSpec spec = FeedSpec(1, frames);
    const ObsEncoder encoder(spec, false, 0);
    ReplayOptions options = Small(300, 4);
    options.frame_stack = frames;
    options.gamma = 0.9;
    auto replay = MakeReplay(options, spec, encoder);
    Feed feed(spec, 3, 4, {.04, .04, .02}, 1, 1);
    Sequences s(40, 4, 5, frames);
    int whole = 0, reached = 0;
    for (int i = 0; i < 150; ++i) {
      ASSERT_TRUE(replay->Add(feed.Next(), 0).ok());
      replay->SampleSequences(static_cast<uint64_t>(i), 1, s.view, 0, 40);
      for (int row = 0; row < 40; ++row) {
        ExpectSequence(s, row, 4, frames, feed.truth());
        ASSERT_FALSE(HasFailure()) << "after segment " << i << ", frames " << frames;
        whole += s.valid[static_cast<size_t>(row * 9)] != 0 && s.valid[static_cast<size_t>(row * 9 + 8)] != 0;
        for (int p = 0; p <= 4; ++p) reached += s.begin[static_cast<size_t>(row * 9 + p)];
      }
    }
    EXPECT_GT(whole, 1000) << "most sequences have all positions";
    EXPECT_GT(reached, 100) << "some begin with their episode";
  }
}

TEST(ReplaySequences, AnyCutHasTheSameBits) {
  const EnvSpec spec = FeedSpec(1);
  const ObsEncoder encoder(spec, false, 0);
  auto replay = MakeReplay(Small(300, 4), spec, encoder);
  Feed feed(spec, 3, 4, {.04, .04, .02}, 1, 1);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(replay->Add(feed.Next(), 0).ok());
  Sequences whole(40, 2, 3, 1), cut(40, 2, 3, 1);
  replay->SampleSequences(9, 1, whole.view, 0, 40);
  replay->SampleSequences(9, 1, cut.view, 35, 5);
  replay->SampleSequences(9, 1, cut.view, 0, 35);
  EXPECT_EQ(whole.x, cut.x);
  EXPECT_EQ(whole.valid, cut.valid);
}

TEST(ReplaySequences, GoldenError) {
  const auto& golden = Golden("per").at("n_step_with_per").at("td_sequence_priority_eta0.9");
  const auto td = Flat<float>(golden.at("abs_td"));
  EXPECT_TRUE(CloseF32(SequenceError(td.data(), static_cast<int>(td.size()), 0.9f),
                       golden.at("priority").get<double>()));
}

}  // namespace
}  // namespace millrace
