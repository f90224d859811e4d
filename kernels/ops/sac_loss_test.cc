#include "kernels/ops/sac_loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/ops/adam.h"
#include "kernels/ops/sac_discrete.h"
#include "kernels/testing/golden.h"
#include "kernels/testing/same_bits.h"

namespace millrace {
namespace {

using Floats = std::vector<float>;

Floats Noise(size_t n, uint32_t row, float scale) {
  Floats x(n);
  for (size_t i = 0; i < n; ++i)
    x[i] = scale * (UniformFloat(PhiloxAt(21, Purpose::kTest, row, i).v[0]) - 0.5f);
  return x;
}

TEST(SacTarget, FollowsGoldenAndStaysFarFromKnownMistakes) {
  const auto& g = Golden("sac");
  const float gamma = g.at("gamma").get<float>(), log_alpha = std::log(g.at("alpha").get<float>());
  const int32_t subset[] = {0, 1};
  for (const auto& t : g.at("targets")) {
    const float q[] = {t.at("q1_target").get<float>(), t.at("q2_target").get<float>()};
    const float log_prob = t.at("next_log_prob").get<float>(), reward = t.at("reward").get<float>();
    const float discount = t.at("terminated").get<bool>() ? 0.0f : gamma;
    float y = 0;
    RunSerial<SacTarget>({1, 2, subset, q, 1, &log_prob, &reward, &discount, &log_alpha, &y});
    EXPECT_TRUE(CloseF32(y, t.at("target").get<double>())) << y;
    for (const char* wrong : {"wrong_entropy_outside_mask", "wrong_entropy_undiscounted"}) {
      const double other = t.at(wrong).get<double>();
      if (std::abs(other - t.at("target").get<double>()) < 1e-6) continue;
      EXPECT_GT(std::abs(y - other), 1e-3);
    }
  }
}

TEST(SacTarget, LooksAtItsSubsetOnlyAndSeesANan) {
  const Floats q = {1, 2, 7, 8, 3, 1};  // three critics of two rows
  const Floats zero = {0, 0}, one = {1, 1};
  const float log_alpha = -HUGE_VALF;  // alpha 0
  const int32_t subset[] = {1, 2};
  Floats y(2);
  ExpectSameBits<SacTarget>(
      {2, 2, subset, q.data(), 2, one.data(), zero.data(), one.data(), &log_alpha, y.data()}, {y});
  EXPECT_EQ(y, (Floats{3, 1}));
  for (int at : {2, 4}) {
    Floats bad = q;
    bad[static_cast<size_t>(at)] = NAN;
    RunSerial<SacTarget>(
        {2, 2, subset, bad.data(), 2, one.data(), zero.data(), one.data(), &log_alpha, y.data()});
    EXPECT_TRUE(std::isnan(y[0])) << at;
  }
}

TEST(CriticLoss, FollowsGolden) {
  const auto& g = Golden("sac").at("critic_loss");
  const Floats y = Flat<float>(g.at("y")), weight = {1, 1};
  Floats q = Flat<float>(g.at("q1")), dq(4), td(2);
  for (float v : Flat<float>(g.at("q2"))) q.push_back(v);
  SacCriticStats stats;
  RunSerial<CriticLoss>(
      {2, 2, 1, nullptr, q.data(), dq.data(), 2, y.data(), weight.data(), 0.5f, td.data(), &stats});
  EXPECT_TRUE(CloseF32(stats.loss / 2, g.at("half_sum_of_mse").get<double>()));
  EXPECT_EQ(dq, (Floats{-0.25f, 0.5f, -0.75f, 1.0f}));
  EXPECT_EQ(td, (Floats{1.0f, 1.5f}));
  EXPECT_EQ(stats.q_abs_max, 3.0);
}

TEST(CriticLoss, GradientsAreThoseOfTheWeightedMeanForEveryTeam) {
  const int rows = 300, critics = 3, columns = 4;
  const size_t stride = rows * columns + 1;
  const Floats q = Noise(critics * stride, 1, 6), y = Noise(rows, 2, 6), weight = Noise(rows, 3, 1);
  std::vector<int32_t> action(rows);
  for (int r = 0; r < rows; ++r) action[static_cast<size_t>(r)] = r * 7 % columns;
  Floats dq(critics * stride, 9.0f), td(rows);
  std::vector<SacCriticStats> stats(3);
  ExpectSameBits<CriticLoss>({rows, critics, columns, action.data(), q.data(), dq.data(), stride, y.data(),
                              weight.data(), 1.0f / rows, td.data(), stats.data()},
                             {dq, td, stats});
  double loss = 0, most = 0;
  for (size_t r = 0; r < rows; ++r) {
    double error_sum = 0;
    for (size_t i = 0; i < critics; ++i) {
      for (size_t c = 0; c < columns; ++c) {
        const size_t at = i * stride + r * columns + c;
        const bool chosen = static_cast<int32_t>(c) == action[r];
        const double error = static_cast<double>(q[at]) - y[r];
        EXPECT_NEAR(dq[at], chosen ? weight[r] * error / rows : 0.0, 1e-8);
        if (!chosen) continue;
        loss += 0.5 * weight[r] * error * error;
        error_sum += std::abs(error);
        most = std::max(most, std::abs(static_cast<double>(q[at])));
      }
    }
    EXPECT_NEAR(td[r], error_sum / critics, 1e-6);
  }
  SacCriticStats sum;
  for (const SacCriticStats& s : stats) sum.Add(s);
  EXPECT_NEAR(sum.loss, loss, 1e-5 * std::abs(loss));
  EXPECT_EQ(sum.q_abs_max, most);
  EXPECT_EQ(sum.nonfinite, 0.0);
  EXPECT_EQ(dq[stride - 1], 9.0f) << "written between critics";
}

TEST(CriticLoss, CountsRowsThatAreNotFinite) {
  const Floats q = {1, 2, 3}, y = {1, NAN, HUGE_VALF}, weight = {1, 1, 1};
  Floats dq(3), td(3);
  SacCriticStats stats;
  RunSerial<CriticLoss>(
      {3, 1, 1, nullptr, q.data(), dq.data(), 3, y.data(), weight.data(), 1.0f, td.data(), &stats});
  EXPECT_EQ(stats.nonfinite, 2.0);
}

TEST(PolicyQ, FollowsGoldenAndPullsAtTheLeastCritic) {
  const auto& g = Golden("sac").at("actor_loss");
  const Floats log_prob = Flat<float>(g.at("log_prob")), least = Flat<float>(g.at("min_q"));
  const size_t n = least.size();
  Floats q(3 * n), dq(3 * n);
  for (size_t r = 0; r < n; ++r) {
    for (size_t i = 0; i < 3; ++i) q[i * n + r] = least[r] + (i == r % 3 ? 0.0f : 0.5f);
  }
  const float log_alpha = std::log(g.at("alpha").get<float>());
  SacPolicyStats stats;
  const float share = 1.0f / static_cast<float>(n);
  ExpectSameBits<PolicyQ>(
      {static_cast<int>(n), 3, false, q.data(), dq.data(), n, log_prob.data(), &log_alpha, share, &stats},
      {dq, Output(&stats, 1)});
  EXPECT_TRUE(CloseF32(stats.loss / static_cast<double>(n), g.at("loss").get<double>()));
  for (size_t r = 0; r < n; ++r) {
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(dq[i * n + r], i == r % 3 ? -share : 0.0f);
  }
  RunSerial<PolicyQ>(
      {static_cast<int>(n), 3, true, q.data(), dq.data(), n, log_prob.data(), &log_alpha, share, &stats});
  for (float v : dq) EXPECT_FLOAT_EQ(v, -share / 3);
}

TEST(TemperatureGradient, FiveStepsOfAdamFollowGolden) {
  const auto& g = Golden("sac").at("alpha_update");
  SacPolicyStats stats[2];
  const Floats log_probs = Flat<float>(g.at("log_probs"));
  stats[0].log_prob = static_cast<double>(log_probs[0]) + static_cast<double>(log_probs[1]);
  stats[1].log_prob = static_cast<double>(log_probs[2]) + static_cast<double>(log_probs[3]);
  float log_alpha = std::log(g.at("alpha0").get<float>()), m = 0, v = 0, gradient = 0;
  AdamStep step;
  step.lr = 3e-4f;
  int64_t t = 0;
  for (const auto& want : g.at("adam_lr3e-4_five_steps").at("log_form")) {
    const TemperatureGradient::Params p{2, stats, 4.0, g.at("target_entropy").get<double>(), &gradient};
    ExpectSameBits<TemperatureGradient>(p, {Output(&gradient, 1)});
    EXPECT_TRUE(CloseF32(gradient, g.at("grad_log_alpha_log_form").get<double>()));
    step.Set(0.9, 0.999, 1e-8, 0.0, ++t);
    RunSerial<Adam>({&log_alpha, &gradient, &m, &v, 1, &step, true});
    EXPECT_TRUE(CloseF32(log_alpha, want.at("log_alpha").get<double>())) << log_alpha;
  }
}

// The discrete forms against the formulas in double.
struct Discrete {
  static constexpr int kRows = 140, kActions = 5;
  static constexpr size_t kStride = kRows * kActions + 3;
  Floats logits = Noise(kRows * (kActions + 1), 4, 6), q = Noise(2 * kStride, 5, 8);
  std::vector<uint8_t> mask = std::vector<uint8_t>(kRows * kActions, 1);
  double alpha = 0.3;

  Discrete() {
    for (size_t i = 0; i < mask.size(); ++i) mask[i] = i % kActions == 0 || i % 3 != 0;
  }
  double Q(size_t row, size_t a) const {
    return std::min(q[row * kActions + a], q[kStride + row * kActions + a]);
  }
  // sum_a p(a) (alpha log p(a) - Q(a)) of one row
  double Loss(size_t row, const double* x) const {
    double sum = 0, loss = 0;
    for (size_t a = 0; a < kActions; ++a) sum += mask[row * kActions + a] != 0 ? std::exp(x[a]) : 0;
    for (size_t a = 0; a < kActions; ++a) {
      if (mask[row * kActions + a] == 0) continue;
      const double p = std::exp(x[a]) / sum;
      loss += p * (alpha * std::log(p) - Q(row, a));
    }
    return loss;
  }
  std::vector<double> Row(size_t row) const {
    const auto at = logits.begin() + static_cast<ptrdiff_t>(row * (kActions + 1));
    return {at, at + kActions};
  }
};

TEST(DiscreteSac, TargetIsTheExpectationOverThePolicy) {
  const Discrete d;
  const Floats reward = Noise(d.kRows, 6, 2), discount = Noise(d.kRows, 7, 1);
  const int32_t subset[] = {1, 0};
  const float log_alpha = static_cast<float>(std::log(d.alpha));
  Floats y(d.kRows), weight(d.kRows * d.kActions);
  ExpectSameBits<DiscreteSacTarget>(
      {d.kRows, d.kActions, d.logits.data(), d.kActions + 1, d.mask.data(), 2, subset, d.q.data(), d.kStride,
       reward.data(), discount.data(), &log_alpha, weight.data(), y.data()},
      {y, weight});
  for (size_t r = 0; r < d.kRows; ++r)
    EXPECT_NEAR(y[r], reward[r] - discount[r] * d.Loss(r, d.Row(r).data()), 1e-5);
}

TEST(DiscreteSac, PolicyGradientMatchesFiniteDifferences) {
  const Discrete d;
  const int32_t all[] = {0, 1};
  const float log_alpha = static_cast<float>(std::log(d.alpha));
  Floats dlogits(d.logits.size(), 9.0f), weight(d.kRows * d.kActions);
  std::vector<SacPolicyStats> stats(2);
  ExpectSameBits<DiscretePolicyLoss>(
      {d.kRows, d.kActions, d.logits.data(), d.kActions + 1, d.mask.data(), 2, false, d.q.data(), d.kStride,
       all, &log_alpha, 1.0f / d.kRows, weight.data(), dlogits.data(), stats.data()},
      {dlogits, weight, stats});
  double loss = 0;
  for (size_t r = 0; r < d.kRows; ++r) {
    std::vector<double> x = d.Row(r);
    loss += d.Loss(r, x.data());
    for (size_t a = 0; a < d.kActions; ++a) {
      const double kept = x[a], h = 1e-5;
      x[a] = kept + h;
      const double up = d.Loss(r, x.data());
      x[a] = kept - h;
      const double down = d.Loss(r, x.data());
      x[a] = kept;
      EXPECT_NEAR(dlogits[r * 6 + a], (up - down) / (2 * h) / d.kRows, 1e-7);
      if (d.mask[r * d.kActions + a] != 0) continue;
      EXPECT_EQ(dlogits[r * 6 + a], 0.0f);
    }
    EXPECT_EQ(dlogits[r * 6 + 5], 9.0f) << "written beyond the actions";
  }
  stats[0].Add(stats[1]);
  EXPECT_NEAR(stats[0].loss, loss, 1e-4);
}

}  // namespace
}  // namespace millrace
