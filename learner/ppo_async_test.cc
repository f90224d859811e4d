// Updates in async mode: old policies corrected, segments of any groups.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "learner/testing/ppo_reference.h"

namespace millrace {
namespace {

// With an epsilon this large Adam's first step follows the gradient itself and not its sign alone.
RunOptions AsyncOptions(bool shared) {
  RunOptions options = SmallOptions(shared);
  options.mode = RunMode::kAsync;
  options.ppo.learning_rate = 1;
  options.ppo.adam_eps = 1;
  return options;
}

StateTensor Tensor(PpoLearner& learner, const std::string& name) {
  for (const auto& tensor : learner.State()) {
    if (tensor.name == name) return tensor;
  }
  ADD_FAILURE() << "no " << name << " in the state";
  return {};
}

std::vector<double> RewardState(PpoLearner& learner) {
  const auto tensor = Tensor(learner, "statistics/reward");
  return {tensor.f64, tensor.f64 + tensor.shape.at(0)};
}

class PpoVtrace : public testing::TestWithParam<std::tuple<bool, Kind>> {};

TEST_P(PpoVtrace, AnUpdateOffPolicyMatchesTheFormulasInDouble) {
  const auto [shared, kind] = GetParam();
  RunOptions options = AsyncOptions(shared);
  options.learner.rho_bar = 1.1;
  options.learner.c_bar = 0.9;
  const EnvSpec spec = SmallSpec(kind);
  ThreadPool threads(2);
  const auto learner = MakeLearner(options, spec, threads);
  const Batch batch(spec);
  Reference reference(options, spec, learner->net(), learner->policy().parameters);
  const std::vector<double> expected = reference.Update(batch);
  const auto report = learner->Update(batch.segments, 0.0);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_DOUBLE_EQ(report->rho_clip_fraction, reference.rho_clip_fraction());
  EXPECT_GT(report->rho_clip_fraction, 0);
  EXPECT_LT(report->rho_clip_fraction, 1);
  const std::vector<float> after = Weights(*learner);
  for (size_t i = 0; i < after.size(); ++i) EXPECT_NEAR(after[i], expected[i], 2e-6) << i;
}
INSTANTIATE_TEST_SUITE_P(All, PpoVtrace,
                         testing::Combine(testing::Bool(),
                                          testing::Values(Kind::kDiscrete, Kind::kMaskedMultiDiscrete,
                                                          Kind::kBox)));

// V-trace's remark: on policy its targets are the lambda returns. The value tower learns from them alone.
TEST(PpoAsync, OnPolicyTheValuesLearnFromTheReturnsOfGae) {
  RunOptions options = AsyncOptions(false);
  options.ppo.max_grad_norm = 0;  // the policy's gradient would scale the values'
  const EnvSpec spec = SmallSpec(Kind::kDiscrete);
  ThreadPool threads(1);
  const Batch batch(spec);
  std::vector<std::vector<float>> results;
  for (RunMode mode : {RunMode::kSync, RunMode::kAsync}) {
    options.mode = mode;
    const auto learner = MakeLearner(options, spec, threads);
    Reference(options, spec, learner->net(), learner->policy().parameters).ActOnPolicy(batch);
    const std::vector<float> before = Weights(*learner);
    ASSERT_TRUE(learner->Update(batch.segments, 0.0).ok());
    results.push_back({});
    for (const ParameterTensor& tensor : learner->net().tensors()) {
      if (tensor.name.rfind("value/", 0) != 0) continue;
      for (int i = 0; i < tensor.rows * tensor.cols; ++i) {
        const size_t at = tensor.offset + static_cast<size_t>(i);
        results.back().push_back(learner->policy().parameters[at] - before[at]);
      }
    }
  }
  double most = 0;
  for (size_t i = 0; i < results[0].size(); ++i) {
    EXPECT_NEAR(results[0][i], results[1][i], 1e-6);
    most = std::max(most, std::abs(static_cast<double>(results[0][i])));
  }
  EXPECT_GT(most, 0.01);
}

TEST(PpoAsync, TheRatioAloneIsTheUpdateOfSyncMode) {
  RunOptions options = AsyncOptions(true);
  options.learner.correction = Correction::kRatio;
  const EnvSpec spec = SmallSpec(Kind::kBox);
  const Batch batch(spec);
  ThreadPool threads(1);
  const auto async = MakeLearner(options, spec, threads);
  const auto report = async->Update(batch.segments, 0.0, std::vector<uint32_t>{6, 3});
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE(std::isnan(report->rho_clip_fraction));
  options.mode = RunMode::kSync;
  const auto sync = MakeLearner(options, spec, threads);
  const auto sync_report = sync->Update(batch.segments, 0.0);
  ASSERT_TRUE(sync_report.ok());
  EXPECT_TRUE(std::isnan(sync_report->policy_lag_mean));
  EXPECT_TRUE(std::isnan(sync_report->policy_lag_max));
  EXPECT_EQ(Weights(*async), Weights(*sync));
}

TEST(PpoAsync, WhatAnInvalidStepHoldsReachesNothing) {
  const RunOptions options = AsyncOptions(false);
  const EnvSpec spec = SmallSpec(Kind::kDiscrete);
  ThreadPool threads(1);
  const Batch batch(spec);
  const auto plain = MakeLearner(options, spec, threads);
  ASSERT_TRUE(plain->Update(batch.segments, 0.0).ok());
  const SegmentView& segment = batch.segments[1];
  segment.reward()[2] = 1000;
  segment.value()[2] = -1000;
  segment.log_prob()[2] = NAN;
  static_cast<int32_t*>(segment.action())[2] = 77;
  const auto poisoned = MakeLearner(options, spec, threads);
  const auto report = poisoned->Update(batch.segments, 0.0);
  ASSERT_TRUE(report.ok()) << report.status();
  const std::vector<float> a = Weights(*plain), b = Weights(*poisoned);
  // (V - r) / gamma and back leaves the rounding of a number as large as the reward.
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5) << i;
}

TEST(PpoAsync, TheLagIsThatOfEachStep) {
  RunOptions options = AsyncOptions(false);
  const EnvSpec spec = SmallSpec(Kind::kDiscrete);
  ThreadPool threads(1);
  const Batch batch(spec);
  const auto learner = MakeLearner(options, spec, threads);
  ASSERT_TRUE(learner->Loaded(10, 0).ok());
  for (uint64_t t = 0; t < kSteps; ++t) {
    batch.segments[0].policy_version()[t] = 6 + t;  // 4, 3, 2, 1, 0 updates old
    batch.segments[1].policy_version()[t] = 12;     // acted before the learner went back
  }
  const auto report = learner->Update(batch.segments, 0.0);
  ASSERT_TRUE(report.ok());
  EXPECT_DOUBLE_EQ(report->policy_lag_mean, 2 * (4 + 3 + 2 + 1) / 15.0);
  EXPECT_EQ(report->policy_lag_max, 4);
}

TEST(PpoAsync, BitsDoNotDependOnThreads) {
  RunOptions options = AsyncOptions(false);
  options.ppo.epochs = 3;
  options.ppo.minibatch_size = 6;
  options.ppo.learning_rate = 0.01;
  options.env.scale_reward = options.env.normalize_obs = true;
  const EnvSpec spec = SmallSpec(Kind::kDiscrete);
  const std::vector<int> rows(5, 2);
  const Batch batch(spec, rows);
  const std::vector<std::vector<uint32_t>> groups = {{0, 1, 2, 3, 4}, {7, 1, 7, 7, 2}, {12, 12, 0, 1, 12}};
  std::vector<std::vector<float>> weights;
  std::vector<std::vector<double>> rewards;
  for (int n : {1, 2, 5}) {
    ThreadPool threads(n);
    const auto learner = MakeLearner(options, spec, threads, rows);
    for (const auto& g : groups) ASSERT_TRUE(learner->Update(batch.segments, 0.0, g).ok());
    weights.push_back(Weights(*learner));
    rewards.push_back(RewardState(*learner));
  }
  for (size_t i : {1, 2}) {
    EXPECT_EQ(weights[0], weights[i]);
    EXPECT_EQ(rewards[0], rewards[i]);
  }
}

// The discounted return of a row, from all its rewards in their order.
class PlainReturns {
 public:
  void Observe(const SegmentView& s, size_t first_row, double gamma) {
    const int rows = s.layout().rows();
    returns_.resize(std::max(returns_.size(), first_row + static_cast<size_t>(rows)));
    for (int i = 0; i < s.layout().samples(); ++i) {
      double& g = returns_[first_row + static_cast<size_t>(i % rows)];
      g = gamma * g + s.reward()[i];
      if ((s.terminated()[i] | s.truncated()[i]) != 0) g = 0;
    }
  }
  const std::vector<double>& returns() const { return returns_; }

 private:
  std::vector<double> returns_;
};

TEST(PpoAsync, DiscountedReturnsFollowTheRowsThroughAnyOrderOfSegments) {
  RunOptions options = AsyncOptions(false);
  options.env.scale_reward = true;
  const EnvSpec spec = SmallSpec(Kind::kDiscrete);
  const std::vector<int> rows = {2, 2, 1};  // five rows of an actor; block b begins at group 3 b, row 5 b
  ThreadPool threads(2);
  const auto learner = MakeLearner(options, spec, threads, rows);
  EXPECT_EQ(RewardState(*learner).size(), 3u + 5u);
  PlainReturns plain;
  const auto update = [&](const std::vector<uint32_t>& groups, uint32_t stream) {
    std::vector<int> sizes;
    for (uint32_t g : groups) sizes.push_back(rows[g % 3]);
    const Batch batch(spec, sizes, stream);
    for (size_t i = 0; i < groups.size(); ++i) {
      plain.Observe(batch.segments[i], groups[i] / 3 * 5 + groups[i] % 3 * 2, options.ppo.gamma);
    }
    ASSERT_TRUE(learner->Update(batch.segments, 0.0, groups).ok());
    const std::vector<double> state = RewardState(*learner);
    ASSERT_GE(state.size(), 3 + plain.returns().size());
    for (size_t row = 0; row < plain.returns().size(); ++row) {
      EXPECT_DOUBLE_EQ(state[3 + row], plain.returns()[row]) << row;
    }
  };
  update({0, 1, 2}, 20);
  update({4, 2, 4}, 50);  // the second actor appears, with two segments of one group
  update({1, 7, 0}, 80);
  update({4, 8, 1}, 110);
  const std::vector<double> state = RewardState(*learner);
  ASSERT_EQ(state.size(), 3u + 15u);
  ASSERT_EQ(plain.returns().size(), 15u);
  EXPECT_NEAR(state[2], 25 + 25 + 30 + 25 + 1e-4, 1e-9);  // samples behind mean and variance
}

TEST(PpoAsync, StatisticsOfAnyNumberOfActorsAreRestored) {
  RunOptions options = AsyncOptions(false);
  options.env.scale_reward = true;
  const EnvSpec spec = SmallSpec(Kind::kDiscrete);
  const Batch batch(spec);
  ThreadPool threads(1);
  const auto learner = MakeLearner(options, spec, threads), again = MakeLearner(options, spec, threads);
  ASSERT_TRUE(learner->Update(batch.segments, 0.0, std::vector<uint32_t>{4, 1}).ok());
  const std::vector<double> saved = RewardState(*learner);
  ASSERT_EQ(saved.size(), 3u + 9u);
  ASSERT_TRUE(again->ResizeState("statistics/observation", 3 + 18).ok());
  ASSERT_TRUE(again->ResizeState("statistics/reward", 3 + 10).ok());  // not whole actors
  EXPECT_EQ(RewardState(*again).size(), 3u + 3u);
  ASSERT_TRUE(again->ResizeState("statistics/reward", saved.size()).ok());
  for (const auto& tensor : again->State()) {
    const auto from = Tensor(*learner, tensor.name);
    ASSERT_EQ(tensor.shape, from.shape) << tensor.name;
    const size_t n = tensor.elements();
    if (tensor.f32 != nullptr) std::copy_n(from.f32, n, tensor.f32);
    if (tensor.f64 != nullptr) std::copy_n(from.f64, n, tensor.f64);
  }
  ASSERT_TRUE(again->Loaded(learner->updates(), learner->optimizer_steps()).ok());
  for (PpoLearner* l : {learner.get(), again.get()}) {
    ASSERT_TRUE(l->Update(batch.segments, 0.0, std::vector<uint32_t>{4, 5}).ok());
  }
  EXPECT_EQ(RewardState(*learner), RewardState(*again));
  EXPECT_EQ(Weights(*learner), Weights(*again));

  options.mode = RunMode::kSync;
  const auto sync = MakeLearner(options, spec, threads);
  ASSERT_TRUE(sync->ResizeState("statistics/reward", saved.size()).ok());
  EXPECT_EQ(RewardState(*sync).size(), 3u + 3u);
}

// A bandit whose data always comes from the uniform policy: only action 1 pays. Values and policy must get
// there although nothing that they do changes the data.
TEST(PpoAsync, LearnsFromAPolicyThatStaysBehind) {
  for (Correction correction : {Correction::kVtrace, Correction::kRatio}) {
    RunOptions options = AsyncOptions(false);
    options.learner.correction = correction;
    options.ppo.learning_rate = 0.02;
    options.ppo.adam_eps = 1e-5;
    options.ppo.epochs = 4;
    options.ppo.entropy_coef = 0;
    options.ppo.clip_range = 10;
    const EnvSpec spec = SmallSpec(Kind::kDiscrete);
    const std::vector<int> rows = {2, 1};
    ThreadPool threads(1);
    const auto learner = MakeLearner(options, spec, threads, rows);
    for (uint32_t update = 0; update < 60; ++update) {
      const Batch batch(spec, rows, 20 + 30 * update);
      for (const SegmentView& s : batch.segments) {
        for (int i = 0; i < s.layout().samples(); ++i) {
          s.valid()[i] = s.terminated()[i] = 1;
          s.truncated()[i] = 0;
          s.value()[i] = 0;
          s.log_prob()[i] = -std::log(3.0f);
          s.reward()[i] = static_cast<const int32_t*>(s.action())[i] == 1 ? 1.0f : 0.0f;
        }
        s.final_count() = 0;
      }
      ASSERT_TRUE(learner->Update(batch.segments, 0.0, std::vector<uint32_t>{0, 1}).ok());
    }
    const std::vector<float> w = Weights(*learner);
    const std::vector<double> logits =
        DoubleNet{learner->net(), {w.begin(), w.end()}}.Tower(0, Noise(4, 7, 3.0f).data());
    double sum = 0;
    for (double x : logits) sum += std::exp(x);
    EXPECT_GT(std::exp(logits[1]) / sum, 0.9) << (correction == Correction::kVtrace ? "vtrace" : "ratio");
  }
}

}  // namespace
}  // namespace millrace
