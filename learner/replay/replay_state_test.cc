// A replay that was saved and loaded goes on as if nothing had happened.
#include <gtest/gtest.h>

#include <cstring>

#include "common/safetensors.h"
#include "learner/testing/replay_feed.h"

namespace millrace {
namespace {

using replay_testing::Batch;
using replay_testing::Feed;
using replay_testing::FeedSpec;
using replay_testing::MakeReplay;
using replay_testing::Small;

// Through the bytes of a file.
struct Saved {
  explicit Saved(const Replay::State& state) {
    const auto header = BuildSafetensorsHeader(state.tensors, {});
    EXPECT_TRUE(header.ok()) << header.status();
    file = header->bytes;
    for (size_t i : header->order) {
      const auto& bytes = state.tensors[i].bytes;
      file.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    auto read = ReadSafetensors(std::as_bytes(std::span<const char>(file)));
    EXPECT_TRUE(read.ok()) << read.status();
    content = *read;
  }
  // A copy of one tensor's bytes, in place of the original.
  std::vector<std::byte>& Change(const std::string& name) {
    for (NamedTensor& tensor : content.tensors) {
      if (tensor.name != name) continue;
      changed.assign(tensor.bytes.begin(), tensor.bytes.end());
      tensor.bytes = changed;
    }
    return changed;
  }
  std::string file;
  SafetensorsContent content;
  std::vector<std::byte> changed;
};

class ReplayState : public ::testing::TestWithParam<bool> {
 protected:
  ReplayState() {
    options_.prioritized = GetParam();
    options_.frame_stack = 3;
    options_.n_step = 2;
    replay_ = MakeReplay(options_, spec_, encoder_);
  }
  void Run(Replay& replay, Feed& a, Feed& b, int steps, uint64_t draw, Batch& batch) {
    for (int i = 0; i < steps; ++i) {
      ASSERT_TRUE(replay.Add(a.Next(), 3).ok());
      if (i % 2 == 0) {
        ASSERT_TRUE(replay.Add(b.Next(), 900).ok());
      }
      replay.Sample(draw + static_cast<uint64_t>(i), 0.5f, batch.view);
      std::vector<float> td(batch.reward.size());
      for (size_t k = 0; k < td.size(); ++k)
        td[k] = std::fmod(batch.x[k * static_cast<size_t>(batch.ld)], 3.0f);
      ASSERT_TRUE(replay.UpdatePriorities(batch.index.data(), td.data(), static_cast<int>(td.size())).ok());
    }
  }
  void ExpectGoesOnAlike(Replay& other) {
    EXPECT_EQ(other.size(), replay_->size());
    EXPECT_EQ(other.added(), replay_->added());
    Feed a = a_, b = b_;
    Batch one(64, 3, 2), two(64, 3, 2);
    Run(*replay_, a_, b_, 50, 1000, one);
    Run(other, a, b, 50, 1000, two);
    EXPECT_EQ(one.x, two.x);
    EXPECT_EQ(one.next_x, two.next_x);
    EXPECT_EQ(one.reward, two.reward);
    EXPECT_EQ(one.weight, two.weight);
    EXPECT_EQ(one.index, two.index);
  }

  const EnvSpec spec_ = FeedSpec(1, 3);
  const ObsEncoder encoder_{spec_, false, 0};
  ReplayOptions options_ = Small(200, 4);
  std::unique_ptr<Replay> replay_;
  Feed a_{spec_, 2, 3, {.05, .05, .02}, 1, 1}, b_{spec_, 2, 1, {.05, .05, .02}, 2, 500'000};
  Batch batch_{64, 3, 2};
};

TEST_P(ReplayState, GoesOnToTheBit) {
  for (int steps : {3, 20, 100}) {  // nearly empty, full, gone round
    Run(*replay_, a_, b_, steps, 0, batch_);
    const Saved saved(*replay_->SaveState());
    auto other = MakeReplay(options_, spec_, encoder_);
    const Status status = other->LoadState(saved.content);
    ASSERT_TRUE(status.ok()) << status;
    ExpectGoesOnAlike(*other);
    ASSERT_FALSE(HasFailure()) << "after " << steps;
  }
}

TEST_P(ReplayState, ShadowStaysWhileTheReplayGoesOn) {
  auto shadow = replay_->MakeShadow();
  ASSERT_TRUE(shadow.ok()) << shadow.status();
  for (int steps : {3, 20, 100, 1}) {
    Run(*replay_, a_, b_, steps, 0, batch_);
    replay_->UpdateShadow(**shadow);
    const Saved now(*replay_->SaveState());
    Feed a = a_, b = b_;
    Run(*replay_, a, b, 4, 77, batch_);
    const Saved then((*shadow)->state());
    EXPECT_EQ(then.file, now.file) << "after " << steps;
    a_ = a;
    b_ = b;
  }
}

TEST_P(ReplayState, OfAnotherReplayIsRefused) {
  Run(*replay_, a_, b_, 20, 0, batch_);
  const Saved saved(*replay_->SaveState());
  const auto why = [&](const ReplayOptions& options, const EnvSpec& spec) {
    const ObsEncoder encoder(spec, false, 0);
    auto other = MakeReplay(options, spec, encoder);
    const Status status = other->LoadState(saved.content);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  ReplayOptions options = options_;
  options.capacity = 300;
  EXPECT_NE(why(options, spec_).find("replay.capacity 200, this run's is 300"), std::string::npos);
  options = options_;
  options.prioritized = !options.prioritized;
  EXPECT_NE(why(options, spec_).find("replay.prioritized"), std::string::npos);
  EXPECT_NE(why(options_, FeedSpec(2, 3)).find("layout"), std::string::npos);
}

TEST_P(ReplayState, OneThatDoesNotHoldTogetherIsRefused) {
  Run(*replay_, a_, b_, 100, 0, batch_);
  for (const char* name :
       {"replay/pages", "replay/lanes", "replay/flags", "replay/counters", "replay/groups"}) {
    Saved saved(*replay_->SaveState());
    auto& bytes = saved.Change(name);
    ASSERT_FALSE(bytes.empty()) << name;
    std::memset(bytes.data(), 0x5a, bytes.size());
    auto other = MakeReplay(options_, spec_, encoder_);
    EXPECT_FALSE(other->LoadState(saved.content).ok()) << name;
    EXPECT_EQ(other->size(), 0u) << name;
    Feed fresh(spec_, 2, 3, {}, 1, 1);
    EXPECT_TRUE(other->Add(fresh.Next(), 3).ok()) << "empty, and in use again";
  }
}

INSTANTIATE_TEST_SUITE_P(All, ReplayState, ::testing::Bool(), [](const auto& param) {
  return std::string(param.param ? "Prioritized" : "Uniform");
});

}  // namespace
}  // namespace millrace
