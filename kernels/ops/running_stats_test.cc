#include "kernels/ops/running_stats.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/ops/philox.h"
#include "kernels/testing/golden.h"
#include "kernels/testing/same_bits.h"

namespace millrace {
namespace {

// Running statistics of one feature, fed batch by batch through the op.
struct One {
  double mean = 0.0, variance = 1.0, count;
  explicit One(double count0) : count(count0) {}
  RunningStats view() { return {1, &mean, &variance, &count}; }
  void Observe(const std::vector<float>& x) {
    double m, v;
    RunSerial<BatchMoments>({static_cast<int>(x.size()), 1, x.data(), 1, &m, &v});
    MergeInto(view(), &m, &v, static_cast<double>(x.size()));
  }
};

TEST(RunningStats, FollowTheGoldenMerges) {
  const auto& g = Golden("running_stats");
  for (const auto& [name, count0] :
       {std::pair<const char*, double>{"count0_1e-4", 1e-4}, {"count0_0", 0.0}}) {
    One s(count0);
    for (size_t b = 0; b < g.at("batches").size(); ++b) {
      s.Observe(Flat<float>(g.at("batches")[b]));
      const auto& want = g.at(name)[b];
      EXPECT_NEAR(s.mean, want.at("mean").get<double>(), 1e-10);
      EXPECT_NEAR(s.variance, want.at("var").get<double>(), 1e-10);
      EXPECT_NEAR(s.count, want.at("count").get<double>(), 1e-10);
    }
  }
}

TEST(RunningStats, NormaliseAndStayFrozen) {
  const auto& g = Golden("running_stats");
  One s(1e-4);
  for (const auto& batch : g.at("batches")) s.Observe(Flat<float>(batch));
  float mean, inv_std;
  NormalizerOf(s.view(), &mean, &inv_std);
  for (int call = 0; call < 3; ++call) {
    for (const auto& point : g.at("normalise_with_final_count0_1e-4")) {
      const float x = point.at("x").get<float>();
      float y;
      RunSerial<Normalize>({1, 1, &x, 1, &mean, &inv_std, 10.0f, &y, 1});
      EXPECT_TRUE(CloseF32(y, point.at("y").get<double>())) << x << ": " << y;
    }
  }
  const float nan = std::nanf("");
  EXPECT_TRUE(std::isnan(NormalizeValue(nan, mean, inv_std, 10.0f)));
}

TEST(RunningStats, MergeRanks) {
  const auto& g = Golden("running_stats").at("two_rank_merge");
  One a(0.0), b(0.0);
  a.Observe(Flat<float>(g.at("rank_a")));
  b.Observe(Flat<float>(g.at("rank_b")));
  MergeInto(a.view(), &b.mean, &b.variance, b.count);
  EXPECT_NEAR(a.mean, g.at("mean").get<double>(), 1e-10);
  EXPECT_NEAR(a.variance, g.at("var").get<double>(), 1e-10);
  EXPECT_GT(std::abs(a.variance - g.at("wrong_average_of_vars").get<double>()), 1.0);
}

TEST(RunningStats, DoNotCancel) {
  const auto& g = Golden("running_stats").at("cancellation");
  const std::vector<double> x = Flat<double>(g.at("x"));
  EXPECT_NEAR(MomentsOfReturns(4, x.data()).variance, g.at("var").get<double>(), 1e-10);
  double mean = 0.0, variance = 0.0;
  for (size_t i = 0; i < x.size(); ++i)
    MergeMoments(&mean, &variance, static_cast<double>(i), x[i], 0.0, 1.0);
  EXPECT_NEAR(variance, g.at("var").get<double>(), 1e-7);
}

TEST(RunningStats, MergingNothingChangesNothing) {
  One empty(0.0);
  const double zero = 0.0;
  MergeInto(empty.view(), &zero, &zero, 0.0);
  EXPECT_EQ(empty.mean, 0.0);
  EXPECT_EQ(empty.variance, 1.0);
}

TEST(RunningStats, ScaleRewardsAsGolden) {
  const auto& g = Golden("running_stats").at("reward_scaling");
  const double gamma = g.at("gamma").get<double>();
  One s(kInitialCount);
  double discounted = 0.0;
  for (size_t i = 0; i < g.at("rewards").size(); ++i) {
    const double reward = g.at("rewards")[i].get<double>();
    const auto& want = g.at("rows")[i];
    AccumulateReturns(1, &reward, gamma, &discounted);
    EXPECT_NEAR(discounted, want.at("discounted_return").get<double>(), 1e-10);
    const ValueMoments m = MomentsOfReturns(1, &discounted);
    MergeInto(s.view(), &m.mean, &m.variance, 1.0);
    EXPECT_NEAR(s.variance, want.at("var").get<double>(), 1e-10);
    EXPECT_NEAR(ScaleReward(reward, s.variance, 10.0), want.at("scaled_reward").get<double>(), 1e-8);
    const uint8_t ended = g.at("done")[i].get<bool>();
    ClearEndedReturns(1, &ended, &discounted);
  }
}

TEST(RunningStats, BatchMomentsOfManyColumns) {
  const int rows = 37, dims = 70, ld = 75;
  std::vector<float> x(static_cast<size_t>(rows) * ld);
  for (size_t i = 0; i < x.size(); ++i) x[i] = 1000.0f + UniformFloat(PhiloxAt(6, Purpose::kTest, 0, i).v[0]);
  std::vector<double> mean(dims), variance(dims);
  ExpectSameBits<BatchMoments>({rows, dims, x.data(), ld, mean.data(), variance.data()}, {mean, variance});
  for (int d = 0; d < dims; ++d) {
    double sum = 0.0, squares = 0.0;
    for (int r = 0; r < rows; ++r) sum += x[static_cast<size_t>(r) * ld + d];
    for (int r = 0; r < rows; ++r) squares += std::pow(x[static_cast<size_t>(r) * ld + d] - sum / rows, 2);
    EXPECT_NEAR(mean[d], sum / rows, 1e-9);
    EXPECT_NEAR(variance[d], squares / rows, 1e-9);
  }
  std::vector<float> y(static_cast<size_t>(rows) * dims), m(dims), inv(dims);
  NormalizerOf({dims, mean.data(), variance.data(), nullptr}, m.data(), inv.data());
  ExpectSameBits<Normalize>({rows, dims, x.data(), ld, m.data(), inv.data(), 1.5f, y.data(), dims}, {y});
  for (float v : y) EXPECT_LE(std::abs(v), 1.5f);
}

}  // namespace
}  // namespace millrace
