// A replay that was saved and loaded goes on as if nothing had happened.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>

#include "common/text.h"
#include "learner/testing/replay_feed.h"

namespace millrace {
namespace {

using replay_testing::Batch;
using replay_testing::Feed;
using replay_testing::FeedSpec;
using replay_testing::MakeReplay;
using replay_testing::Small;

// A copy of all tensors, as a checkpoint has it.
class Saved {
 public:
  explicit Saved(const std::vector<StateTensor>& tensors) : tensors_(tensors) {
    for (const StateTensor& tensor : tensors) {
      const std::byte* from = Memory(tensor);
      bytes_.emplace_back(from, from + Bytes(tensor));
    }
  }
  // What a loader does: shapes must agree, and then the bytes go where the replay wants them.
  Status Load(Replay& replay) const {
    for (const StateTensor& tensor : tensors_) {
      MILL_RETURN_IF_ERROR(replay.ResizeState(tensor.name, tensor.shape[0]));
    }
    const std::vector<StateTensor> to = replay.State();
    if (to.size() != tensors_.size()) return absl::InvalidArgumentError("other tensors");
    for (size_t i = 0; i < to.size(); ++i) {
      if (to[i].name != tensors_[i].name || to[i].shape != tensors_[i].shape) {
        return absl::InvalidArgumentError(Cat("tensor ", to[i].name));
      }
      if (!bytes_[i].empty()) std::memcpy(Memory(to[i]), bytes_[i].data(), bytes_[i].size());
    }
    return replay.Loaded();
  }
  std::vector<std::byte>& BytesOf(const std::string& name) {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (tensors_[i].name == name) return bytes_[i];
    }
    ADD_FAILURE() << name;
    return bytes_[0];
  }
  bool operator==(const Saved& other) const { return bytes_ == other.bytes_; }

 private:
  static std::byte* Memory(const StateTensor& t) {
    if (t.f32 != nullptr) return reinterpret_cast<std::byte*>(t.f32);
    return t.i64 != nullptr ? reinterpret_cast<std::byte*>(t.i64) : t.bytes;
  }
  static size_t Bytes(const StateTensor& t) {
    return t.elements() * (t.f32 != nullptr ? sizeof(float) : t.i64 != nullptr ? sizeof(int64_t) : 1);
  }
  std::vector<StateTensor> tensors_;
  std::vector<std::vector<std::byte>> bytes_;
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
        td[k] = std::fmod(batch.x[k * static_cast<size_t>(batch.view.ld)], 3.0f);
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
    const Saved saved(replay_->State());
    auto other = MakeReplay(options_, spec_, encoder_);
    const Status status = saved.Load(*other);
    ASSERT_TRUE(status.ok()) << status;
    ExpectGoesOnAlike(*other);
    ASSERT_FALSE(HasFailure()) << "after " << steps;
  }
}

TEST_P(ReplayState, ShadowStaysWhileTheReplayGoesOn) {
  if (GetParam()) {  // and from file to file
    options_.file = testing::TempDir() + "shadow-" + std::to_string(::getpid());
    replay_ = MakeReplay(options_, spec_, encoder_);
  }
  auto shadow = replay_->MakeShadow();
  ASSERT_TRUE(shadow.ok()) << shadow.status();
  for (int steps : {3, 20, 100, 1}) {
    Run(*replay_, a_, b_, steps, 0, batch_);
    replay_->UpdateShadow(**shadow);
    const Saved now(replay_->State());
    Feed a = a_, b = b_;
    Run(*replay_, a, b, 4, 77, batch_);
    const Saved then((*shadow)->state());
    EXPECT_TRUE(then == now) << "after " << steps;
    a_ = a;
    b_ = b;
  }
  if (GetParam()) {
    for (const char* end : {"", ".copy"}) EXPECT_EQ(std::remove((options_.file + end).c_str()), 0) << end;
  }
}

TEST_P(ReplayState, OfAnotherReplayIsRefused) {
  Run(*replay_, a_, b_, 20, 0, batch_);
  const Saved saved(replay_->State());
  const auto why = [&](const ReplayOptions& options, const EnvSpec& spec) {
    const ObsEncoder encoder(spec, false, 0);
    auto other = MakeReplay(options, spec, encoder);
    const Status status = saved.Load(*other);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  ReplayOptions options = options_;
  options.capacity = 201;
  EXPECT_NE(why(options, spec_).find("replay.capacity 200, this run's is 201"), std::string::npos);
  options.capacity = 100;
  EXPECT_FALSE(why(options, spec_).empty());
  options = options_;
  options.prioritized = !options.prioritized;
  EXPECT_FALSE(why(options, spec_).empty());
  EXPECT_FALSE(why(options_, FeedSpec(2, 3)).empty());
}

TEST_P(ReplayState, OneThatDoesNotHoldTogetherIsRefused) {
  Run(*replay_, a_, b_, 100, 0, batch_);
  for (const char* name : {"replay/pages", "replay/lanes", "replay/flags", "replay/counters", "replay/groups",
                           "replay/priorities"}) {
    if (!GetParam() && std::string(name) == "replay/priorities") continue;
    Saved saved(replay_->State());
    auto& bytes = saved.BytesOf(name);
    ASSERT_FALSE(bytes.empty()) << name;
    std::memset(bytes.data(), 0xff, bytes.size() / 2);
    auto other = MakeReplay(options_, spec_, encoder_);
    const Status status = saved.Load(*other);
    EXPECT_FALSE(status.ok()) << name;
    EXPECT_NE(status.message().find("replay"), std::string::npos) << status;
    EXPECT_EQ(other->size(), 0u) << name;
    Feed fresh(spec_, 2, 3, {}, 1, 1);
    EXPECT_TRUE(other->Add(fresh.Next(), 3).ok()) << "empty, and in use again";
  }
}

// Single values, each of which would lead a draw or an Add astray.
TEST_P(ReplayState, WhatIsBrokenIsNamed) {
  Run(*replay_, a_, b_, 100, 0, batch_);
  const auto put = [](auto value) {
    return [value](std::vector<std::byte>& bytes) { std::memcpy(bytes.data(), &value, sizeof(value)); };
  };
  struct Case {
    const char* tensor;
    std::function<void(std::vector<std::byte>&)> spoil;
    const char* says;
    bool prioritized = false;
  };
  const Case cases[] = {
      {"replay/lanes", put(int64_t{1} << 20), "the newest page of row 0"},
      {"replay/pages", put(uint32_t{77777}), "the links of page 0"},
      {"replay/groups", [](auto& bytes) { bytes[16] = std::byte{200}; }, "the rows of group 3"},
      {"replay/counters", [](auto& bytes) { ++reinterpret_cast<int64_t*>(bytes.data())[4]; }, "transitions"},
      {"replay/priorities", put(std::nanf("")), "slot 0 has nan", true},
      {"replay/largest_priority", put(-1.0f), "it is -1", true},
  };
  for (const Case& c : cases) {
    if (c.prioritized && !GetParam()) continue;
    Saved saved(replay_->State());
    c.spoil(saved.BytesOf(c.tensor));
    auto other = MakeReplay(options_, spec_, encoder_);
    const Status status = saved.Load(*other);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << c.tensor;
    for (const char* part : {c.tensor, c.says, "earlier checkpoint", "checkpoint.replay=false"}) {
      EXPECT_NE(status.message().find(part), std::string::npos) << part << ": " << status;
    }
    EXPECT_EQ(other->size(), 0u) << c.tensor;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ReplayState, ::testing::Bool(), [](const auto& param) {
  return std::string(param.param ? "Prioritized" : "Uniform");
});

}  // namespace
}  // namespace millrace
