// How actions come about: the squashed policy on an environment's own bounds, and uniform ones.
#include "actor/policy_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "actor/env_pool.h"

namespace millrace {
namespace {

constexpr int kHorizon = 6;

RunOptions Sac(const std::string& env, uint32_t rows, uint32_t group_rows) {
  RunOptions options;
  options.algorithm = "sac";
  options.env.id = env;
  options.env.rows = rows;
  options.env.group_rows = group_rows;
  options.policy.hidden = {16};
  options.policy.gain_policy = 0.5;
  return options;
}

struct Policy {
  Policy(const EnvSpec& spec, const RunOptions& options, uint64_t seed = 5)
      : net(NetSpecFor(spec, options)), encoder(spec, false, 0) {
    parameters.resize(net.parameter_floats());
    packed.resize(net.packed_floats());
    net.Initialize(seed, options.policy, parameters.data());
    net.PackAll(parameters.data(), packed.data(), false);
  }
  PolicyView view(uint64_t version = 0) const {
    return {&net, &encoder, parameters.data(), packed.data(), version};
  }
  ActorCritic net;
  ObsEncoder encoder;
  std::vector<float> parameters, packed;
};

std::unique_ptr<EnvPool> MakePool(const RunOptions& options, ThreadPool& threads, uint64_t uniform_steps) {
  auto pool = EnvPool::Make(options.env, 3, kHorizon, threads, uniform_steps);
  MILL_CHECK(pool.ok());
  return *std::move(pool);
}

// Actions by global row, steps in order.
std::map<uint32_t, std::vector<float>> ActionsOf(const EnvPool& pool) {
  std::map<uint32_t, std::vector<float>> actions;
  for (size_t g = 0; g < pool.groups().size(); ++g) {
    const SegmentView& s = pool.segments()[g];
    for (int i = 0; i < s.layout().samples(); ++i) {
      const uint32_t row = pool.groups()[g]->first_row() + static_cast<uint32_t>(i % s.layout().rows());
      actions[row].push_back(static_cast<const float*>(s.action())[i]);
    }
  }
  return actions;
}

// A pendulum's torque is within 2: the density of the torque is that of tanh(u), halved.
TEST(PolicyRunner, SquashedActionsAndTheirDensityAreOnTheBounds) {
  ThreadPool threads(1);
  const RunOptions options = Sac("Pendulum-v1", 9, 9);
  const auto pool = MakePool(options, threads, 0);
  const Policy policy(pool->spec(), options);
  ASSERT_TRUE(policy.net.spec().squashed && !policy.net.spec().value);
  ActorCritic::Workspace w(policy.net, 9);
  for (const bool deterministic : {false, true}) {
    pool->Collect(policy.view(), 0, deterministic);
    const SegmentView& s = pool->segments()[0];
    float widest = 0;
    for (int t = 0; t < kHorizon; ++t) {
      const auto* x = reinterpret_cast<const float*>(s.obs(0, t));
      policy.net.Forward(policy.parameters.data(), policy.packed.data(), x, 3, 9, w);
      for (int r = 0; r < 9; ++r) {
        const double mean = w.logits[r * w.logits_ld], log_std = w.logits[r * w.logits_ld + 1];
        const double action = static_cast<const float*>(s.action())[t * 9 + r], unit = action / 2;
        widest = std::max(widest, static_cast<float>(std::fabs(action)));
        EXPECT_LE(std::fabs(action), 2.0);
        if (deterministic) {
          EXPECT_NEAR(action, 2 * std::tanh(mean), 1e-5);
        }
        EXPECT_EQ(s.value()[t * 9 + r], 0.0f);
        if (std::fabs(unit) > 0.999) continue;  // the inverse below loses its digits
        const double z = (std::atanh(unit) - mean) / std::exp(log_std);
        const double density = -0.5 * z * z - log_std - 0.5 * std::log(2 * M_PI) - std::log1p(-unit * unit);
        EXPECT_NEAR(s.log_prob()[t * 9 + r], density - std::log(2.0), 2e-3);
      }
    }
    EXPECT_GT(widest, deterministic ? 0.01f : 1.2f);  // beyond the unit box
  }
}

TEST(PolicyRunner, TheFirstStepsAreUniformWhateverThePolicyOrTheThreads) {
  std::map<uint32_t, std::vector<float>> first;
  for (const auto& [thread_count, group_rows] : {std::pair{1, 7u}, {3, 2u}, {2, 1u}}) {
    ThreadPool threads(thread_count);
    const RunOptions options = Sac("Pendulum-v1", 7, group_rows);
    const auto pool = MakePool(options, threads, 4);
    const Policy policy(pool->spec(), options, static_cast<uint64_t>(thread_count));
    pool->Collect(policy.view(), 0);
    EXPECT_NEAR(pool->segments()[0].log_prob()[0], -std::log(4.0), 1e-6);
    EXPECT_EQ(pool->segments()[0].policy_version()[0], 0u);
    const auto actions = ActionsOf(*pool);
    if (first.empty()) first = actions;
    std::set<float> different;
    for (const auto& row : actions) {
      for (int t = 0; t < kHorizon; ++t) {
        const auto at = static_cast<size_t>(t);
        EXPECT_LE(std::fabs(row.second[at]), 2.0f);
        if (t < 4) {
          EXPECT_EQ(row.second[at], first.at(row.first)[at]) << "row " << row.first << ", step " << t;
        }
        if (t >= 4 && thread_count > 1) {
          EXPECT_NE(row.second[at], first.at(row.first)[at]);
        }
        if (t < 4) different.insert(row.second[at]);
      }
    }
    EXPECT_EQ(different.size(), 7u * 4u);
    pool->Collect(policy.view(1), kHorizon);  // none of these
    EXPECT_NE(pool->segments()[0].log_prob()[0], pool->segments()[0].log_prob()[1]);
    EXPECT_EQ(pool->segments()[0].policy_version()[0], 1u);
  }
}

// An actor of async mode begins its rows at step 0 whenever it comes.
TEST(PolicyRunner, UniformStepsAreOverWhereTheRunIsPastThem) {
  ThreadPool threads(1);
  const RunOptions options = Sac("Pendulum-v1", 3, 3);
  const auto pool = MakePool(options, threads, 2 * kHorizon);
  const Policy policy(pool->spec(), options);
  const auto uniform = [&](uint64_t version, uint64_t first_step) {
    pool->Collect(policy.view(version), first_step);
    const SegmentView& s = pool->segments()[0];
    return std::all_of(s.log_prob(), s.log_prob() + s.layout().samples(),
                       [](float p) { return std::fabs(p + std::log(4.0f)) < 1e-6f; });
  };
  EXPECT_TRUE(uniform(0, 0));
  EXPECT_TRUE(uniform(1, kHorizon));
  EXPECT_TRUE(uniform(1, 5 * kHorizon)) << "the actor is ahead of the others";
  EXPECT_FALSE(uniform(2, 0));
}

TEST(PolicyRunner, StepsCountOverAllRows) {
  RunOptions options = Sac("Pendulum-v1", 7, 0);
  options.sac.random_steps = 15;
  EXPECT_EQ(UniformSteps(options), 3u);
  options.sac.random_steps = 0;
  EXPECT_EQ(UniformSteps(options), 0u);
  options.sac.random_steps = 15;
  options.algorithm = "ppo";
  EXPECT_EQ(UniformSteps(options), 0u);
}

// Options that a mask forbids are never drawn, the others equally often.
TEST(UniformActions, DrawWhatTheMaskAllows) {
  EnvSpec spec;
  spec.observations = {{"x", DType::kF32, {1}}};
  spec.action.kind = ActionSpec::Kind::kMultiDiscrete;
  spec.action.nvec = {4, 2};
  spec.action_mask = true;
  constexpr int kRows = 3000;
  const SegmentLayout layout(spec, 1, kRows, 0);
  std::vector<uint64_t> memory(layout.bytes() / 8 + 16);
  const SegmentView segment(&layout, reinterpret_cast<std::byte*>(memory.data()));
  const uint8_t mask[6] = {1, 0, 1, 1, 0, 1};
  for (int r = 0; r < kRows; ++r) std::copy_n(mask, 6, segment.mask() + r * 6);
  UniformActions(spec.action).Act(segment, 0, 1, Purpose::kTest, 0, 0);
  int count[4] = {0, 0, 0, 0};
  for (int r = 0; r < kRows; ++r) {
    const int32_t* action = static_cast<const int32_t*>(segment.action()) + r * 2;
    ASSERT_TRUE(action[0] >= 0 && action[0] < 4 && mask[action[0]] != 0);
    ASSERT_EQ(action[1], 1);
    ++count[action[0]];
    ASSERT_NEAR(segment.log_prob()[r], -std::log(3.0), 1e-6);
  }
  for (const int option : {0, 2, 3}) EXPECT_NEAR(count[option], kRows / 3, 120);  // 4.6 deviations
}

}  // namespace
}  // namespace millrace
