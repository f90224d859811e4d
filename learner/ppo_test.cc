#include "learner/ppo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "learner/testing/ppo_reference.h"

namespace millrace {
namespace {

class PpoUpdate : public testing::TestWithParam<std::tuple<bool, Kind>> {};

TEST_P(PpoUpdate, OneMinibatchMatchesTheFormulasInDouble) {
  const auto [shared, kind] = GetParam();
  const RunOptions options = SmallOptions(shared);
  const EnvSpec spec = SmallSpec(kind);
  ThreadPool threads(2);
  const auto learner = MakeLearner(options, spec, threads);
  const Batch batch(spec);
  const std::vector<double> expected =
      Reference(options, spec, learner->net(), learner->policy().parameters).Update(batch);
  const auto report = learner->Update(batch.segments, 0.0);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->minibatches, 1);
  EXPECT_EQ(learner->updates(), 1u);
  const std::vector<float> after = Weights(*learner);
  // A step is learning_rate in size; where a gradient is near eps its direction in float32 is less certain.
  for (size_t i = 0; i < after.size(); ++i) EXPECT_NEAR(after[i], expected[i], 3e-6) << i;
}
INSTANTIATE_TEST_SUITE_P(All, PpoUpdate,
                         testing::Combine(testing::Bool(),
                                          testing::Values(Kind::kDiscrete, Kind::kMaskedMultiDiscrete,
                                                          Kind::kBox)));

TEST(PpoLearner, BitsDoNotDependOnThreads) {
  RunOptions options = SmallOptions(false);
  options.ppo.epochs = 3;
  options.ppo.minibatch_size = 6;
  const EnvSpec spec = SmallSpec(Kind::kDiscrete);
  const Batch batch(spec);
  std::vector<std::vector<float>> results;
  for (int n : {1, 2, 5}) {
    ThreadPool threads(n);
    const auto learner = MakeLearner(options, spec, threads);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(learner->Update(batch.segments, 0.1 * i).ok());
    results.push_back(Weights(*learner));
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST(PpoLearner, TargetKlEndsTheUpdate) {
  RunOptions options = SmallOptions(false);
  options.ppo.epochs = 50;
  options.ppo.learning_rate = 0.1;
  const EnvSpec spec = SmallSpec(Kind::kDiscrete);
  const Batch batch(spec);
  ThreadPool threads(1);
  options.ppo.target_kl = 1e-4;
  const auto report = MakeLearner(options, spec, threads)->Update(batch.segments, 0.0);
  ASSERT_TRUE(report.ok());
  EXPECT_LT(report->minibatches, 50);
  options.ppo.target_kl = 0;
  EXPECT_EQ(MakeLearner(options, spec, threads)->Update(batch.segments, 0.0)->minibatches, 50);
}

TEST(PpoLearner, SchedulesFollowProgress) {
  RunOptions options = SmallOptions(false);
  options.ppo.lr_schedule = Schedule::kLinear;
  options.ppo.clip_schedule = Schedule::kCosine;
  const EnvSpec spec = SmallSpec(Kind::kDiscrete);
  const Batch batch(spec);
  ThreadPool threads(1);
  const auto learner = MakeLearner(options, spec, threads);
  const auto report = learner->Update(batch.segments, 0.75);
  EXPECT_DOUBLE_EQ(report->learning_rate, options.ppo.learning_rate * 0.25);
  EXPECT_NEAR(report->clip_range, 0.2 * 0.5 * (1 + std::cos(0.75 * std::numbers::pi)), 1e-12);
}

TEST(PpoLearner, ALossThatIsNotFiniteStopsOrIsSkippedAndTheWeightsStand) {
  for (OnNonfinite mode : {OnNonfinite::kStop, OnNonfinite::kSkip}) {
    RunOptions options = SmallOptions(false);
    options.run.on_nonfinite = mode;
    const EnvSpec spec = SmallSpec(Kind::kDiscrete);
    Batch batch(spec);
    batch.segments[0].log_prob()[1] = NAN;
    ThreadPool threads(1);
    const auto learner = MakeLearner(options, spec, threads);
    const std::vector<float> before = Weights(*learner);
    const auto report = learner->Update(batch.segments, 0.0);
    EXPECT_EQ(Weights(*learner), before);
    if (mode == OnNonfinite::kStop) {
      ASSERT_FALSE(report.ok());
      EXPECT_THAT(report.status().message(), testing::HasSubstr("op ppo_loss"));
    } else {
      ASSERT_TRUE(report.ok());
      EXPECT_EQ(report->skipped, 1);
      // The bad gradients are gone: a good batch still trains.
      const Batch good(spec);
      EXPECT_EQ(learner->Update(good.segments, 0.0)->skipped, 0);
      EXPECT_NE(Weights(*learner), before);
    }
  }
}

TEST(PpoLearner, ObservationStatisticsComeFromFreshFramesOnly) {
  RunOptions options = SmallOptions(false);
  options.env.normalize_obs = true;
  const EnvSpec spec = SmallSpec(Kind::kDiscrete);
  const Batch batch(spec);
  ThreadPool threads(2);
  const auto learner = MakeLearner(options, spec, threads);
  ASSERT_TRUE(learner->Update(batch.segments, 0.0).ok());
  double sum = 0, count = 0;
  for (const SegmentView& s : batch.segments) {
    const auto* obs = reinterpret_cast<const float*>(s.obs(0, 1));
    for (int i = 0; i < s.layout().samples(); ++i, ++count) sum += obs[i * 4];
  }
  for (const auto& tensor : learner->State()) {
    if (tensor.name != "statistics/observation") continue;
    EXPECT_NEAR(tensor.f64[0], sum / (count + 1e-4), 1e-9);
    EXPECT_NEAR(tensor.f64[8], count + 1e-4, 1e-9);
    return;
  }
  FAIL() << "no statistics in the state";
}

TEST(PpoLearner, SettingsThatMayChangeWhileARunGoesOnTakeEffectAtTheNextUpdate) {
  RunOptions options = SmallOptions(false);
  const EnvSpec spec = SmallSpec(Kind::kDiscrete);
  const Batch batch(spec);
  ThreadPool threads(1);
  const auto changed = MakeLearner(options, spec, threads);
  options.ppo.learning_rate = 0.007;
  options.ppo.entropy_coef = 0.5;
  options.ppo.clip_range = 0.1;
  options.ppo.target_kl = 3;
  options.ppo.max_grad_norm = 1.5;
  options.learner.max_policy_lag = 9;
  const auto fresh = MakeLearner(options, spec, threads);
  ASSERT_TRUE(changed->Apply(options).ok());
  EXPECT_EQ(changed->Update(batch.segments, 0.0)->learning_rate, 0.007);
  ASSERT_TRUE(fresh->Update(batch.segments, 0.0).ok());
  EXPECT_EQ(Weights(*changed), Weights(*fresh));
  RunOptions other = options;
  other.ppo.learning_rate = 1;
  other.ppo.gamma = 0.5;
  EXPECT_THAT(changed->Apply(other).message(), testing::HasSubstr("only learning_rate, "));
  EXPECT_EQ(changed->Update(batch.segments, 0.0)->learning_rate, 0.007);
}

}  // namespace
}  // namespace millrace
