#include "actor/env_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>

namespace millrace {
namespace {

constexpr int kHorizon = 40;

struct Rollout {
  std::map<uint32_t, std::vector<float>> obs, log_prob, value, reward;  // by global row, steps in order
  std::map<uint32_t, std::vector<uint8_t>> ended;
};

struct Policy {
  explicit Policy(const EnvSpec& spec) : net(NetSpecFor(spec, PolicySection{})), encoder(spec, false, 0) {
    parameters.resize(net.parameter_floats());
    packed.resize(net.packed_floats());
    net.Initialize(5, PolicySection{}, parameters.data());
    net.PackAll(parameters.data(), packed.data(), false);
  }
  PolicyView view() const { return {&net, &encoder, parameters.data(), packed.data(), 7}; }
  ActorCritic net;
  ObsEncoder encoder;
  std::vector<float> parameters, packed;
};

EnvSection CartPole(uint32_t rows, uint32_t group_rows) {
  EnvSection env;
  env.id = "CartPole-v1";
  env.rows = rows;
  env.group_rows = group_rows;
  return env;
}

void Append(const EnvPool& pool, Rollout& out) {
  for (size_t g = 0; g < pool.groups().size(); ++g) {
    const SegmentView& s = pool.segments()[g];
    const int rows = s.layout().rows();
    for (int i = 0; i < s.layout().samples(); ++i) {
      const uint32_t row = pool.groups()[g]->first_row() + static_cast<uint32_t>(i % rows);
      const auto* obs = reinterpret_cast<const float*>(s.obs(0, 0)) + i * 4;
      out.obs[row].insert(out.obs[row].end(), obs, obs + 4);
      out.log_prob[row].push_back(s.log_prob()[i]);
      out.value[row].push_back(s.value()[i]);
      out.reward[row].push_back(s.reward()[i]);
      out.ended[row].push_back(static_cast<uint8_t>(s.terminated()[i] | s.truncated()[i]));
    }
  }
}

Rollout Collect(int thread_count, uint32_t group_rows) {
  ThreadPool threads(thread_count);
  auto pool = EnvPool::Make(CartPole(24, group_rows), 3, kHorizon, threads);
  EXPECT_TRUE(pool.ok()) << pool.status();
  const Policy policy((*pool)->spec());
  Rollout out;
  for (uint64_t i = 0; i < 3; ++i) {
    (*pool)->Collect(policy.view(), i * kHorizon);
    Append(**pool, out);
  }
  EXPECT_EQ((*pool)->segments()[0].policy_version()[kHorizon - 1], 7u);
  return out;
}

TEST(EnvPool, BitsDependNeitherOnThreadsNorOnGroups) {
  const Rollout one = Collect(1, 5);
  for (const auto& [threads, group_rows] : {std::pair{2, 5}, {5, 5}, {2, 1}, {1, 24}, {3, 0}}) {
    const Rollout other = Collect(threads, static_cast<uint32_t>(group_rows));
    EXPECT_EQ(one.obs, other.obs);
    EXPECT_EQ(one.log_prob, other.log_prob);
    EXPECT_EQ(one.value, other.value);
    EXPECT_EQ(one.reward, other.reward);
    EXPECT_EQ(one.ended, other.ended);
  }
}

TEST(EnvPool, RowsActDifferently) {
  const Rollout rollout = Collect(1, 0);
  EXPECT_NE(rollout.obs.at(0), rollout.obs.at(1));
  EXPECT_NE(rollout.obs.at(3), rollout.obs.at(17));
}

TEST(EnvPool, SavedRowsGoOnExactly) {
  ThreadPool threads(2);
  auto a = EnvPool::Make(CartPole(10, 4), 3, kHorizon, threads);
  auto b = EnvPool::Make(CartPole(10, 4), 99, kHorizon, threads);  // another seed: its rows are replaced
  ASSERT_TRUE(a.ok() && b.ok());
  const Policy policy((*a)->spec());
  (*a)->Collect(policy.view(), 0);
  auto same_seed = EnvPool::Make(CartPole(10, 4), 3, kHorizon, threads);
  ASSERT_TRUE(same_seed.ok());
  ASSERT_TRUE((*same_seed)->LoadRows((*a)->SaveRows()).ok());
  Rollout on_a, on_b;
  (*a)->Collect(policy.view(), kHorizon);
  (*same_seed)->Collect(policy.view(), kHorizon);
  Append(**a, on_a);
  Append(**same_seed, on_b);
  EXPECT_EQ(on_a.obs, on_b.obs);
  EXPECT_EQ(on_a.log_prob, on_b.log_prob);
  EXPECT_FALSE((*b)->LoadRows(std::vector<std::byte>(3)).ok());
}

TEST(EnvPool, AnUnknownEnvironmentIsRefused) {
  ThreadPool threads(1);
  EnvSection env = CartPole(2, 0);
  env.id = "CartPol-v1";
  const auto pool = EnvPool::Make(env, 1, 4, threads);
  ASSERT_FALSE(pool.ok());
  EXPECT_THAT(pool.status().message(), testing::HasSubstr("CartPole-v1"));
}

}  // namespace
}  // namespace millrace
