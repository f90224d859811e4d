#include "learner/sac_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "learner/testing/sac_reference.h"

namespace millrace {
namespace {

using sac_testing::Flatten;
using sac_testing::kObs;
using sac_testing::Reference;
using sac_testing::SmallBatch;
using sac_testing::SmallOptions;
using sac_testing::SmallSpec;
using sac_testing::Tensors;

std::unique_ptr<SacStep> Make(const RunOptions& options, bool box, ThreadPool& threads, int batch) {
  auto step = SacStep::Make(options, SmallSpec(box), kObs, batch, threads);
  EXPECT_TRUE(step.ok()) << step.status();
  return *std::move(step);
}

void ExpectNear(const std::vector<double>& got, const std::vector<double>& want, const char* what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-6) << what << " " << i;
}

class SacStepFormulas : public testing::TestWithParam<std::tuple<bool, int>> {};

TEST_P(SacStepFormulas, OneStepMatchesThemInDouble) {
  const bool box = std::get<0>(GetParam());
  RunOptions options = SmallOptions();
  switch (std::get<1>(GetParam())) {
    case 1:  // many critics, and their mean for the policy
      options.sac.critics = 3;
      break;
    case 2:
      options.sac.layer_norm = true;
      options.sac.max_grad_norm = 0.05;
      break;
    case 3:
      options.sac.activation_checkpoint = 1;
      options.policy.activation = Activation::kSilu;
      options.sac.critic_hidden = {7, 4, 5};
      break;
    default:
      break;
  }
  ThreadPool threads(2);
  SmallBatch batch(7, box);
  const auto step = Make(options, box, threads, 7);
  Reference reference(options, SmallSpec(box), *step);
  reference.Step(batch);
  const SacStepResult result = step->Run(0, batch.view, batch.td.data());
  EXPECT_EQ(result.bad, "");
  EXPECT_TRUE(result.policy_stepped);
  const auto after = Tensors(*step);
  ExpectNear(Flatten(step->critics(), "weights/", after), reference.critics, "critics");
  ExpectNear(Flatten(step->critics(), "target/", after), reference.target, "target");
  ExpectNear(Flatten(step->actor().mlp(), "weights/", after), reference.policy, "policy");
  EXPECT_NEAR(after.at("log_alpha")[0], reference.log_alpha, 1e-6);
}
INSTANTIATE_TEST_SUITE_P(All, SacStepFormulas, testing::Combine(testing::Bool(), testing::Range(0, 4)));

class SacStepKinds : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(All, SacStepKinds, testing::Bool());

TEST_P(SacStepKinds, BitsDoNotDependOnThreadsOrCheckpoints) {
  RunOptions options = SmallOptions();
  options.policy.hidden = {40, 70, 20};
  options.sac.layer_norm = true;
  options.sac.critics = 3;
  std::vector<std::map<std::string, std::vector<double>>> results;
  for (const auto& [n, checkpoint] : std::vector<std::pair<int, uint32_t>>{{1, 0}, {2, 0}, {5, 0}, {2, 2}}) {
    ThreadPool threads(n);
    options.sac.activation_checkpoint = checkpoint;
    const auto step = Make(options, GetParam(), threads, 200);
    SmallBatch batch(200, GetParam());
    for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(step->Run(i, batch.view, batch.td.data()).bad, "");
    results.push_back(Tensors(*step));
  }
  for (size_t i = 1; i < results.size(); ++i) EXPECT_EQ(results[i], results[0]) << i;
}

TEST(SacStep, CheckpointsTakeLessMemory) {
  RunOptions options = SmallOptions();
  options.policy.hidden = std::vector<uint32_t>(9, 64);
  ThreadPool threads(1);
  const auto all = Make(options, true, threads, 256);
  options.sac.activation_checkpoint = 3;
  EXPECT_LT(Make(options, true, threads, 256)->activation_bytes(), all->activation_bytes() * 6 / 10);
}

TEST(SacStep, DelayAndIntervalAndFixedAlphaHoldBackWhatTheySay) {
  RunOptions options = SmallOptions();
  options.sac.policy_delay = 2;
  options.sac.target_interval = 3;
  options.sac.auto_alpha = false;
  ThreadPool threads(1);
  const auto step = Make(options, true, threads, 7);
  SmallBatch batch(7, true);
  auto before = Tensors(*step);
  const double log_alpha = before.at("log_alpha")[0];
  for (uint64_t i = 0; i < 6; ++i) {
    const bool policy = step->Run(i, batch.view, batch.td.data()).policy_stepped;
    auto after = Tensors(*step);
    EXPECT_EQ(policy, i % 2 == 1);
    EXPECT_EQ(after.at("weights/policy/0/weight") != before.at("weights/policy/0/weight"), policy);
    EXPECT_EQ(after.at("target/critic0/0/weight") != before.at("target/critic0/0/weight"), i % 3 == 2);
    EXPECT_NE(after.at("weights/critic1/0/weight"), before.at("weights/critic1/0/weight"));
    EXPECT_EQ(after.at("log_alpha")[0], log_alpha);
    before = std::move(after);
  }
  EXPECT_EQ(step->counters()[0], 6);
  EXPECT_EQ(step->counters()[1], 3);
}

void SetTensor(SacStep& step, const std::string& name, float value) {
  for (const SacStep::Tensor& t : step.State()) {
    if (t.name == name) t.data[0] = value;
  }
}

TEST(SacStep, ASavedAlphaIsGoneOnWithWhereItIsTunedAndNotWhereItIsFixed) {
  RunOptions options = SmallOptions();
  options.sac.alpha = 0.05;
  ThreadPool threads(1);
  const auto after_loading = [&](float log_alpha) {
    const auto step = Make(options, true, threads, 7);
    SetTensor(*step, "log_alpha", log_alpha);
    step->Loaded();
    return step->alpha();
  };
  EXPECT_NEAR(after_loading(std::log(0.38f)), 0.38, 1e-6);
  EXPECT_NEAR(after_loading(-HUGE_VALF), 0.05, 1e-6) << "a fixed alpha of 0 was saved";
  options.sac.auto_alpha = false;
  EXPECT_NEAR(after_loading(std::log(0.38f)), 0.05, 1e-6);
}

TEST(SacStep, AnAlphaThatIsNoNumberIsHeldAtItsLimitAndTunedOnFromThere) {
  ThreadPool threads(1);
  const auto step = Make(SmallOptions(), true, threads, 7);
  for (const char* name : {"log_alpha", "adam_m/log_alpha", "adam_v/log_alpha"}) SetTensor(*step, name, NAN);
  step->LimitAlpha(2);
  EXPECT_NEAR(step->alpha(), 2, 1e-6);
  SmallBatch batch(7, true);
  EXPECT_TRUE(step->Run(0, batch.view, batch.td.data()).policy_stepped);
  EXPECT_TRUE(std::isfinite(step->alpha()));
}

TEST(SacStep, NamesTheFirstTensorThatIsNotFiniteAndLeavesTheWeights) {
  RunOptions options = SmallOptions();
  ThreadPool threads(2);
  const auto run = [&](auto spoil, const char* name) {
    const auto step = Make(options, true, threads, 7);
    SmallBatch batch(7, true);
    spoil(*step, batch);
    step->Loaded();
    const auto before = Tensors(*step);
    EXPECT_THAT(step->Run(0, batch.view, batch.td.data()).bad, testing::StartsWith(name));
    const auto after = Tensors(*step);
    EXPECT_EQ(after.at("weights/critic0/2/bias"), before.at("weights/critic0/2/bias")) << name;
    EXPECT_EQ(after.at("weights/policy/0/bias"), before.at("weights/policy/0/bias")) << name;
  };
  run([](SacStep&, SmallBatch& b) { b.reward[3] = NAN; }, "batch/reward");
  run([](SacStep&, SmallBatch& b) { b.x[2] = HUGE_VALF; }, "batch/x");
  run([](SacStep& s, SmallBatch&) { SetTensor(s, "weights/policy/2/bias", NAN); }, "next_log_prob");
  run([](SacStep& s, SmallBatch&) { SetTensor(s, "target/critic1/2/bias", NAN); }, "target_q");
  run([](SacStep& s, SmallBatch&) { SetTensor(s, "weights/critic1/2/bias", NAN); }, "q (of the critics)");
}

TEST(SacStep, ActionsThatItDoesNotCoverAreErrors) {
  ThreadPool threads(1);
  EnvSpec spec = SmallSpec(false);
  spec.action.kind = ActionSpec::Kind::kMultiDiscrete;
  spec.action.nvec = {2, 2};
  EXPECT_THAT(SacStep::Make(SmallOptions(), spec, kObs, 7, threads).status().message(),
              testing::HasSubstr("the actions of Small are several choices at once"));
  spec = SmallSpec(true);
  spec.action.high[1] = HUGE_VALF;
  EXPECT_EQ(SacStep::Make(SmallOptions(), spec, kObs, 7, threads).status().message(),
            "env.id: action 1 of Small is not between two finite bounds (-2 to inf), as algorithm sac needs; "
            "take algorithm ppo");
  spec.action.high[1] = spec.action.low[1];
  EXPECT_FALSE(SacStep::Make(SmallOptions(), spec, kObs, 7, threads).ok());
}

TEST(SacStep, ATargetEntropyThatNoPolicyHasIsAnError) {
  ThreadPool threads(1);
  RunOptions options = SmallOptions();
  options.sac.auto_target_entropy = false;
  const auto make = [&](bool box, double target) {
    options.sac.target_entropy = target;
    return SacStep::Make(options, SmallSpec(box), kObs, 7, threads).status();
  };
  EXPECT_EQ(
      make(true, 1.4).message(),
      "sac.target_entropy: no policy has the entropy 1.4 over the actions of Small; give 1.38629 at most, "
      "the uniform policy's");
  EXPECT_EQ(make(false, 1.4).message(),
            "sac.target_entropy: no policy has the entropy 1.4 over the actions of Small; give 0 or more and "
            "1.38629 at most, the uniform policy's");
  EXPECT_FALSE(make(false, -0.1).ok());
  EXPECT_FALSE(make(true, NAN).ok());
  EXPECT_TRUE(make(true, -5).ok());
  EXPECT_TRUE(make(false, 1.38).ok());
  options.sac.auto_alpha = false;  // then nothing reads it
  EXPECT_TRUE(make(true, 1.4).ok());
}

// One step an episode, the reward -(a - 0.5)^2: the policy must come to 0.5, and its critics to its return.
TEST(SacStep, LearnsTheBestActionOfOneStep) {
  RunOptions options = SmallOptions();
  options.policy.hidden = {32};
  options.policy.activation = Activation::kRelu;
  options.sac.adam_eps = 1e-8;
  options.sac.actor_learning_rate = options.sac.critic_learning_rate = 5e-3;
  options.sac.auto_alpha = false;
  options.sac.alpha = 0.005;
  ThreadPool threads(2);
  const auto step = Make(options, true, threads, 64);
  SacStepResult result;
  for (uint64_t i = 0; i < 600; ++i) {
    SmallBatch batch(64, true, 100 + static_cast<uint32_t>(i));
    for (size_t r = 0; r < 64; ++r) {
      const float a = batch.x[r * 5 + 3];
      batch.discount[r] = 0;
      batch.reward[r] = -(a - 0.5f) * (a - 0.5f);
    }
    result = step->Run(i, batch.view, batch.td.data());
    ASSERT_EQ(result.bad, "");
  }
  ActorCritic::Workspace w(step->actor(), 1);
  const float obs[kObs] = {0.1f, -0.2f, 0.3f};
  step->actor().Forward(step->actor_parameters(), step->actor_packed(), obs, kObs, 1, w);
  EXPECT_NEAR(std::tanh(w.logits[0]), 0.5, 0.15);
  EXPECT_LT(result.critic_loss, 0.02);
}

}  // namespace
}  // namespace millrace
