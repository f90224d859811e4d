#include "learner/weight_publisher.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "common/mutex.h"
#include "kernels/testing/double_net.h"

namespace millrace {
namespace {

// A policy of 2 observations and 3 actions.
struct Policy {
  explicit Policy(bool normalize) : encoder(Spec(), normalize, 0), net(NetSpecFor(Spec(), PolicySection())) {
    parameters = Noise(net.parameter_floats(), 4, 1.0f);
    const double mean[] = {1.0 / 3, -2}, variance[] = {0.1, 1e-9};
    encoder.SetStatistics(mean, variance);
  }
  static EnvSpec Spec() {
    EnvSpec spec;
    spec.observations = {{"x", DType::kF32, {2}}};
    spec.action.nvec = {3};
    return spec;
  }
  PolicyView View(uint64_t version) const { return {&net, &encoder, parameters.data(), nullptr, version}; }

  ObsEncoder encoder;
  ActorCritic net;
  std::vector<float> parameters;
};

TEST(WeightPublisher, TheBlobIsParametersThenMeansThenVariances) {
  WeightPublisher publisher;
  const Policy policy(true), raw(false);
  const WeightsPtr blob = publisher.Pack(policy.View(7));
  EXPECT_EQ(blob->version, 7u);
  const size_t parameters = policy.parameters.size() * sizeof(float);
  ASSERT_EQ(blob->bytes.size(), parameters + 4 * sizeof(double));
  EXPECT_EQ(std::memcmp(blob->bytes.data(), policy.parameters.data(), parameters), 0);
  const double statistics[] = {1.0 / 3, -2, 0.1, 1e-9};
  EXPECT_EQ(std::memcmp(blob->bytes.data() + parameters, statistics, sizeof(statistics)), 0);
  EXPECT_EQ(blob->checksum, WeightsChecksum(blob->version, blob->bytes.data(), blob->bytes.size()));
  EXPECT_EQ(publisher.Pack(raw.View(8))->bytes.size(), parameters);
}

TEST(WeightPublisher, ABufferIsUsedAgainOnceItsReadersAreGone) {
  WeightPublisher publisher;
  const Policy policy(false);
  WeightsPtr first = publisher.Pack(policy.View(1));
  const WeightsPtr second = publisher.Pack(policy.View(2));
  const WeightsPtr third = publisher.Pack(policy.View(3));
  EXPECT_EQ(first->version, 1u);
  EXPECT_EQ(second->version, 2u);
  const std::byte* memory = first->bytes.data();
  first.reset();
  for (uint64_t version = 4; version < 9; ++version) {
    const WeightsPtr next = publisher.Pack(policy.View(version));
    EXPECT_EQ(next->bytes.data(), memory);
    EXPECT_EQ(next->version, version);
  }
  EXPECT_EQ(publisher.buffers(), 3u);
  EXPECT_EQ(second->version, 2u);
  EXPECT_EQ(third->version, 3u);
}

// Readers hold versions for as long as they like: each must find the bytes that its checksum is of.
TEST(WeightPublisher, NoReaderSeesAChange) {
  constexpr uint64_t kLast = 300;
  WeightPublisher publisher;
  Policy policy(true);
  Mutex mutex;
  WeightsPtr newest = publisher.Pack(policy.View(0));
  std::vector<std::thread> readers;
  std::atomic<int> bad{0};
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      for (uint64_t seen = 0; seen < kLast;) {
        WeightsPtr mine;
        {
          MutexLock lock(mutex);
          mine = newest;
        }
        bad += mine->checksum != WeightsChecksum(mine->version, mine->bytes.data(), mine->bytes.size()) ||
               mine->version < seen;
        seen = mine->version;
        std::this_thread::yield();
      }
    });
  }
  for (uint64_t version = 1; version <= kLast; ++version) {
    policy.parameters[0] = static_cast<float>(version);
    WeightsPtr next = publisher.Pack(policy.View(version));
    MutexLock lock(mutex);
    newest = std::move(next);
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(bad, 0);
  EXPECT_LE(publisher.buffers(), 4u);
}

}  // namespace
}  // namespace millrace
