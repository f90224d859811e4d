// Prioritised draws: the golden data's weights, what new items begin with, how often items come, and errors
// that are none.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/testing/golden.h"
#include "learner/testing/replay_feed.h"

namespace millrace {
namespace {

using replay_testing::Batch;
using replay_testing::Feed;
using replay_testing::FeedSpec;
using replay_testing::MakeReplay;
using replay_testing::Small;

// One row whose items are numbered 0, 1, 2 ... by their observation.
class Priorities : public ::testing::Test {
 protected:
  void Make(uint64_t capacity, double alpha, double eps) {
    ReplayOptions options = Small(capacity, 1);
    options.prioritized = true;
    options.alpha = alpha;
    options.priority_eps = eps;
    replay_ = MakeReplay(options, spec_, encoder_);
  }
  void Add(int n) {
    for (int i = 0; i < n; ++i) ASSERT_TRUE(replay_->Add(feed_.Next(), 0).ok());
  }
  int Item(size_t row) const { return static_cast<int>(batch_.x[row * 3]); }
  // Draws until each of n items has been seen: their slots and weights.
  void DrawAll(size_t n, float beta) {
    slot_.assign(n, 0);
    weight_.assign(n, -1.0f);
    times_.assign(n, 0);
    for (uint64_t draw = 0; draw < 400; ++draw) {
      replay_->Sample(draw, beta, batch_.view);
      for (size_t row = 0; row < batch_.index.size(); ++row) {
        const auto item = static_cast<size_t>(Item(row));
        ASSERT_LT(item, n);
        slot_[item] = batch_.index[row];
        weight_[item] = batch_.weight[row];
        ++times_[item];
      }
    }
  }
  void Update(const std::vector<float>& td) {
    ASSERT_TRUE(replay_->UpdatePriorities(slot_.data(), td.data(), static_cast<int>(td.size())).ok());
  }

  const EnvSpec spec_ = FeedSpec(1);
  const ObsEncoder encoder_{spec_, false, 0};
  Feed feed_{spec_, 1, 1, {}, 1, 0};
  std::unique_ptr<Replay> replay_;
  Batch batch_{256, 1, 2};
  std::vector<uint32_t> slot_;
  std::vector<float> weight_;
  std::vector<int> times_;
};

TEST_F(Priorities, Golden) {
  const auto& golden = Golden("per");
  const auto td = Flat<float>(golden.at("td_errors"));
  Make(50, golden.at("alpha").get<double>(), golden.at("eps").get<double>());
  Add(static_cast<int>(td.size()));
  DrawAll(td.size(), 0.4f);
  EXPECT_EQ(weight_, std::vector<float>(td.size(), 1.0f)) << "all new";
  Update(td);
  // The least likely item comes about once in 23,000 draws: its weight is the largest, 1, by definition.
  const auto probabilities = Flat<double>(golden.at("probabilities"));
  const auto unnormalised = Flat<double>(golden.at("weights_unnormalised"));
  const double most = *std::max_element(unnormalised.begin(), unnormalised.end());
  DrawAll(td.size(), golden.at("beta").get<float>());
  const double draws = 400.0 * 256;
  for (size_t i = 0; i < td.size(); ++i) {
    if (times_[i] > 0) {
      EXPECT_TRUE(CloseF32(weight_[i], unnormalised[i] / most)) << i << ": " << weight_[i];
    }
    const double expected = draws * probabilities[i];
    EXPECT_NEAR(times_[i], expected, 5 * std::sqrt(expected) + 2) << i;
  }
  const auto sampled = Flat<size_t>(golden.at("sampled"));
  const auto want = Flat<double>(golden.at("weights_norm_buffer_max"));
  for (size_t i = 0; i < sampled.size(); ++i) EXPECT_TRUE(CloseF32(weight_[sampled[i]], want[i])) << i;
  DrawAll(td.size(), 1.0f);
  const auto one = Flat<double>(golden.at("beta_1").at("weights_norm_buffer_max"));
  for (size_t i = 0; i < sampled.size(); ++i) EXPECT_TRUE(CloseF32(weight_[sampled[i]], one[i])) << i;
}

TEST_F(Priorities, NewItemsBeginWithTheLargest) {
  const auto& golden = Golden("per").at("new_item_priority");
  Make(50, 0.6, 1e-9);
  Add(2);
  DrawAll(2, 1);
  const auto history = Flat<float>(golden.at("history_of_raw_priorities"));
  Update({history[1], history[2]});
  Update({history[1], 1.0f});  // what once was largest still counts
  Add(1);
  DrawAll(3, 1);
  const double least = std::pow(0.3, 0.6);
  EXPECT_NEAR(weight_[2], least / golden.at("stored_value").get<double>(), 1e-5);
  EXPECT_NEAR(weight_[1], least, 1e-5);
  EXPECT_EQ(weight_[0], 1.0f);
}

TEST_F(Priorities, AnErrorThatIsNoneIsNamedAndChangesNothing) {
  Make(50, 0.6, 1e-6);
  Add(3);
  DrawAll(3, 1);
  Update({1, 2, 3});
  DrawAll(3, 1);
  const std::vector<float> before = weight_;
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), -0.5f, std::numeric_limits<float>::infinity()}) {
    const float td[3] = {7, 7, bad};
    const Status status = replay_->UpdatePriorities(slot_.data(), td, 3);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_NE(status.message().find("row 2"), absl::string_view::npos) << status;
  }
  DrawAll(3, 1);
  EXPECT_EQ(weight_, before);
}

TEST_F(Priorities, ZeroErrorsCanStillBeDrawn) {
  Make(50, 1, 1e-6);
  Add(4);
  DrawAll(4, 1);
  Update({0, 0, 0, 0});
  DrawAll(4, 1);
  EXPECT_EQ(weight_, std::vector<float>(4, 1.0f));
  for (int n : times_) EXPECT_GT(n, 0);
}

// Ends, slots without a step and pages that went must never be drawn, however the ring turns.
TEST_F(Priorities, OnlyStepsAreDrawn) {
  ReplayOptions options = Small(100, 4);
  options.prioritized = true;
  replay_ = MakeReplay(options, spec_, encoder_);
  Feed feed(spec_, 3, 4, {.1, .2, .1}, 5, 0);
  for (uint64_t i = 0; i < 200; ++i) {
    ASSERT_TRUE(replay_->Add(feed.Next(), 0).ok());
    replay_->Sample(i, 0.5f, batch_.view);
    std::vector<float> td(256);
    for (size_t row = 0; row < 256; ++row) {
      const auto found = feed.truth().find(batch_.x[row * 3]);
      ASSERT_NE(found, feed.truth().end());
      ASSERT_TRUE(found->second.valid);
      ASSERT_GT(batch_.weight[row], 0);
      ASSERT_LE(batch_.weight[row], 1);
      td[row] = std::fmod(batch_.x[row * 3], 5.0f);
    }
    ASSERT_TRUE(replay_->UpdatePriorities(batch_.index.data(), td.data(), 256).ok());
  }
}

TEST_F(Priorities, AnyCutHasTheSameBits) {
  Make(500, 0.6, 1e-6);
  Add(400);
  Batch cut(256, 1, 2);
  replay_->Sample(3, 0.5f, batch_.view);
  for (int begin = 224; begin >= 0; begin -= 32) replay_->SampleRows(3, 0.5f, cut.view, begin, 32);
  EXPECT_EQ(cut.index, batch_.index);
  replay_->SampleRows(3, 0.5f, cut.view, 101, 155);
  replay_->SampleRows(3, 0.5f, cut.view, 0, 101);
  EXPECT_EQ(cut.index, batch_.index);
  EXPECT_EQ(cut.weight, batch_.weight);
}

TEST_F(Priorities, RefusesSettings) {
  ReplayOptions options = Small(100, 1);
  options.prioritized = true;
  for (double alpha : {-0.1, 1.1, std::nan("")}) {
    options.alpha = alpha;
    EXPECT_EQ(Replay::Make(options, spec_, encoder_).status().code(), absl::StatusCode::kInvalidArgument);
  }
  options.alpha = 0.6;
  options.priority_eps = 0;
  EXPECT_FALSE(Replay::Make(options, spec_, encoder_).ok());
}

}  // namespace
}  // namespace millrace
