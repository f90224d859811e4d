#include "actor/weight_subscriber.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>
#include "common/weights.h"

#include <cstring>
#include <thread>

namespace millrace {
namespace {

using testing::HasSubstr;

EnvSpec Spec() {
  EnvSpec spec;
  spec.id = "Test";
  spec.observations = {{"x", DType::kF32, {3}}};
  spec.action.nvec = {2};
  return spec;
}

RunOptions Options(bool normalize) {
  RunOptions options;
  options.policy.hidden = {8};
  options.env.normalize_obs = normalize;
  return options;
}

// Parameters that are all `value`, mean 1, variance 4.
std::string Blob(const ActorCritic& net, float value, bool normalize) {
  const std::vector<float> parameters(net.parameter_floats(), value);
  std::string blob(reinterpret_cast<const char*>(parameters.data()), parameters.size() * sizeof(float));
  const double statistics[] = {1, 1, 1, 4, 4, 4};
  if (normalize) blob.append(reinterpret_cast<const char*>(statistics), sizeof(statistics));
  return blob;
}

std::vector<WeightsChunk> Pieces(uint64_t version, const std::string& blob, size_t piece) {
  std::vector<WeightsChunk> chunks;
  for (size_t at = 0; at < blob.size(); at += piece) {
    chunks.push_back({.version = version,
                      .total_bytes = blob.size(),
                      .offset = at,
                      .checksum = WeightsChecksum(version, blob.data(), blob.size()),
                      .data = blob.substr(at, piece)});
  }
  return chunks;
}

class WeightSubscriberTest : public testing::TestWithParam<bool> {
 protected:
  void TakeAll(uint64_t version, float value) {
    const std::vector<WeightsChunk> pieces = Pieces(version, Blob(subscriber.net(), value, GetParam()), 100);
    for (const WeightsChunk& chunk : pieces) {
      const auto taken = subscriber.Take(chunk);
      ASSERT_TRUE(taken.ok()) << taken.status();
      EXPECT_EQ(*taken, &chunk == &pieces.back());
    }
  }
  WeightSubscriber subscriber{Spec(), Options(GetParam())};
};
INSTANTIATE_TEST_SUITE_P(Normalize, WeightSubscriberTest, testing::Bool());

TEST_P(WeightSubscriberTest, GivesWhatTheLearnerWouldActBy) {
  WeightSubscriber::Reader reader(subscriber);
  uint64_t version = 0;
  EXPECT_EQ(reader.Newest().net, nullptr);
  EXPECT_FALSE(subscriber.newest(&version));
  TakeAll(7, 0.5f);
  ASSERT_TRUE(subscriber.newest(&version));
  EXPECT_EQ(version, 7u);
  const PolicyView view = reader.Newest();
  ASSERT_EQ(view.net, &subscriber.net());
  EXPECT_EQ(view.version, 7u);
  EXPECT_EQ(view.parameters[0], 0.5f);
  std::vector<float> packed(view.net->packed_floats());
  view.net->PackAll(view.parameters, packed.data(), false);
  EXPECT_EQ(std::memcmp(packed.data(), view.packed, packed.size() * sizeof(float)), 0);

  const SegmentLayout layout(Spec(), 0, 1, 0);
  std::vector<std::byte> memory(layout.bytes());
  const SegmentView segment(&layout, memory.data());
  reinterpret_cast<float*>(segment.obs(0, 0))[1] = 5;
  float x[3];
  view.encoder->EncodeRow(segment, 0, 0, x);
  EXPECT_FLOAT_EQ(x[1], GetParam() ? 2.0f : 5.0f);
}

TEST_P(WeightSubscriberTest, AReaderKeepsItsVersionAndMemoryIsUsedAgain) {
  WeightSubscriber::Reader slow(subscriber), fast(subscriber);
  TakeAll(1, 1.0f);
  const PolicyView first = slow.Newest();
  std::vector<const float*> seen;
  for (uint64_t v = 2; v < 10; ++v) {
    TakeAll(v, static_cast<float>(v));
    const PolicyView view = fast.Newest();
    EXPECT_EQ(view.version, v);
    EXPECT_EQ(view.parameters[3], static_cast<float>(v));
    if (std::find(seen.begin(), seen.end(), view.parameters) == seen.end()) seen.push_back(view.parameters);
  }
  EXPECT_LE(seen.size(), 2u);
  EXPECT_EQ(slow.Same().version, 1u);
  EXPECT_EQ(first.parameters[0], 1.0f);
  EXPECT_EQ(slow.Newest().version, 9u);
}

TEST_P(WeightSubscriberTest, WhatIsBegunAnewReplacesWhatWasBegun) {
  const std::vector<WeightsChunk> older = Pieces(1, Blob(subscriber.net(), 1, GetParam()), 100);
  ASSERT_TRUE(subscriber.Take(older[0]).ok());
  TakeAll(2, 2.0f);
  EXPECT_THAT(std::string(subscriber.Take(older[1]).status().message()),
              HasSubstr("weights of version 1: a piece"));
  uint64_t version = 0;
  ASSERT_TRUE(subscriber.newest(&version));
  EXPECT_EQ(version, 2u);
}

TEST_P(WeightSubscriberTest, RefusesWhatIsDamagedOrOfAnotherNetwork) {
  TakeAll(1, 1.0f);
  std::string blob = Blob(subscriber.net(), 2, GetParam());
  std::vector<WeightsChunk> pieces = Pieces(2, blob, 100);
  pieces[1].data[5] ^= 1;
  StatusOr<bool> taken = false;
  for (const WeightsChunk& chunk : pieces) taken = subscriber.Take(chunk);
  EXPECT_EQ(taken.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(taken.status().message()), HasSubstr("version 2 were damaged"));
  EXPECT_FALSE(subscriber.Take(pieces.back()).ok());

  pieces = Pieces(3, blob, 100);
  ASSERT_TRUE(subscriber.Take(pieces[0]).ok());
  EXPECT_EQ(subscriber.Take(pieces[2]).status().code(), absl::StatusCode::kDataLoss);  // one is missing

  taken = subscriber.Take(Pieces(4, blob + "x", 100)[0]);
  EXPECT_EQ(taken.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(taken.status().message()), HasSubstr("version 4 have"));
  pieces = Pieces(5, blob, 100);
  pieces[0].data += std::string(blob.size(), 'x');
  EXPECT_EQ(subscriber.Take(pieces[0]).status().code(), absl::StatusCode::kDataLoss);

  WeightSubscriber::Reader reader(subscriber);
  EXPECT_EQ(reader.Newest().version, 1u);
  TakeAll(6, 6.0f);
  EXPECT_EQ(reader.Newest().version, 6u);
}

TEST_P(WeightSubscriberTest, ReadersNeverSeeAVersionHalfMade) {
  TakeAll(0, 0.0f);
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      WeightSubscriber::Reader reader(subscriber);
      uint64_t last = 0;
      while (!done.load()) {
        const PolicyView view = reader.Newest();
        ASSERT_GE(view.version, last);
        last = view.version;
        const size_t n = view.net->parameter_floats();
        ASSERT_EQ(view.parameters[0], static_cast<float>(last));
        ASSERT_EQ(view.parameters[n - 1], static_cast<float>(last));
      }
    });
  }
  for (uint64_t v = 1; v <= 300; ++v) TakeAll(v, static_cast<float>(v));
  done.store(true);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace millrace
