#include "actor/leased_rows.h"

#include <gtest/gtest.h>

#include <cstring>

#include "actor/env_pool.h"

namespace millrace {
namespace {
constexpr int kHorizon = 16;
constexpr uint64_t kSeed = 5;

EnvSection Section(const char* id) {
  EnvSection env;
  env.id = id;
  env.rows = 8;
  env.group_rows = 4;
  env.time_limit = 11;  // truncations in every segment
  env.frame_stack = 2;
  return env;
}

// A network with some weights, and segments in memory that is scribbled over between uses.
class LeasedRowsTest : public testing::Test {
 protected:
  LeasedRowsTest() {
    auto rows = LeasedRows::Make(Section("CartPole-v1"), kSeed, 4, 4, kHorizon);
    EXPECT_TRUE(rows.ok()) << rows.status();
    rows_ = *std::move(rows);
    net_ = std::make_unique<ActorCritic>(NetSpecFor(rows_->group().spec(), PolicySection{}));
    encoder_ = std::make_unique<ObsEncoder>(rows_->group().spec(), false, 0);
    parameters_.resize(net_->parameter_floats());
    packed_.resize(net_->packed_floats());
    net_->Initialize(3, {}, parameters_.data());
    net_->PackAll(parameters_.data(), packed_.data(), false);
    collector_ = std::make_unique<SegmentCollector>(*net_, rows_->group().spec(), 4);
    auto memory = AlignedBytes::Make(rows_->layout().bytes());
    EXPECT_TRUE(memory.ok());
    memory_ = *std::move(memory);
    segment_ = SegmentView(&rows_->layout(), memory_.data());
  }
  PolicyView Policy(uint64_t version = 0) const {
    return {net_.get(), encoder_.get(), parameters_.data(), packed_.data(), version};
  }
  // Whole segments, one after another in the same memory.
  void Collect(LeasedRows& rows) {
    std::memset(memory_.data(), 0xab, memory_.size());
    rows.Collect(
        *collector_, segment_, [this] { return Policy(); }, &fault_);
  }
  std::string Snapshot(const LeasedRows& rows) const {
    return {reinterpret_cast<const char*>(segment_.snapshot()),
            static_cast<size_t>(rows.group().rows()) * rows.layout().row_state_bytes()};
  }

  std::unique_ptr<LeasedRows> rows_;
  std::unique_ptr<ActorCritic> net_;
  std::unique_ptr<ObsEncoder> encoder_;
  std::vector<float> parameters_, packed_;
  std::unique_ptr<SegmentCollector> collector_;
  AlignedBytes memory_;
  SegmentView segment_;
  std::string fault_;
};

TEST_F(LeasedRowsTest, HasTheBitsOfAPool) {
  ThreadPool threads(1);
  auto pool = EnvPool::Make(Section("CartPole-v1"), kSeed, kHorizon, threads);
  ASSERT_TRUE(pool.ok()) << pool.status();
  ASSERT_TRUE(rows_->Begin("", 0).ok());
  const size_t state_bytes = rows_->layout().row_state_bytes() * 4;
  for (uint64_t i = 0; i < 3; ++i) {
    (*pool)->Collect(Policy(), i * kHorizon);
    Collect(*rows_);
    const SegmentView& expected = (*pool)->segments()[1];
    const size_t observations = (kHorizon + 1) * 4 * segment_.obs_row_bytes(0);
    EXPECT_EQ(std::memcmp(segment_.obs(0, 0), expected.obs(0, 0), observations), 0);
    EXPECT_EQ(std::memcmp(segment_.log_prob(), expected.log_prob(), kHorizon * 4 * sizeof(float)), 0);
    EXPECT_EQ(std::memcmp(segment_.action(), expected.action(), kHorizon * 4 * sizeof(float)), 0);
    ASSERT_EQ(segment_.final_count(), expected.final_count());
    EXPECT_GT(segment_.final_count(), 0);
    EXPECT_EQ(segment_.episode_count(), expected.episode_count());
    std::string state(state_bytes, '\0');
    (*pool)->groups()[1]->SaveRows(expected, kHorizon, reinterpret_cast<std::byte*>(state.data()));
    EXPECT_EQ(Snapshot(*rows_), state);
    EXPECT_TRUE(CheckSegment(segment_).ok()) << CheckSegment(segment_);
  }
  EXPECT_EQ(rows_->next_step(), 3u * kHorizon);
  EXPECT_EQ(fault_, "");
}

TEST_F(LeasedRowsTest, AnotherHolderGoesOnFromTheSnapshot) {
  ASSERT_TRUE(rows_->Begin("", 0).ok());
  Collect(*rows_);
  const std::string state = Snapshot(*rows_);
  Collect(*rows_);
  const std::string expected = Snapshot(*rows_);
  auto other = LeasedRows::Make(Section("CartPole-v1"), kSeed, 4, 4, kHorizon);
  ASSERT_TRUE(other.ok());
  ASSERT_TRUE((*other)->Begin(state, kHorizon).ok());
  Collect(**other);
  EXPECT_EQ(Snapshot(**other), expected);
}

TEST_F(LeasedRowsTest, EachStepHasThePolicyThatWasThereThen) {
  ASSERT_TRUE(rows_->Begin("", 0).ok());
  uint64_t version = 10;
  rows_->Collect(
      *collector_, segment_, [&] { return Policy(++version); }, &fault_);
  for (uint64_t t = 0; t < kHorizon; ++t) EXPECT_EQ(segment_.policy_version()[t], 11 + t);
}

TEST_F(LeasedRowsTest, RefusesAStateOfAnotherSize) {
  const Status status = rows_->Begin("short", 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("rows 4 .. 7 has 5 bytes"), std::string::npos) << status;
}

}  // namespace
}  // namespace millrace
