#include "kernels/ops/tanh_gaussian.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/testing/golden.h"
#include "kernels/testing/same_bits.h"

namespace millrace {
namespace {

struct Sampled {
  int rows, dims, ld;
  std::vector<float> out, action, log_prob, noise;
};

Sampled Sample(int rows, int dims, bool deterministic, uint64_t step = 4) {
  const size_t n = static_cast<size_t>(rows), d = static_cast<size_t>(dims);
  Sampled s{rows, dims, 2 * dims + 1, {}, {}, {}, {}};
  s.out.resize(n * static_cast<size_t>(s.ld));
  for (size_t i = 0; i < s.out.size(); ++i) s.out[i] = 0.9f * std::sin(static_cast<float>(i));
  s.action.resize(n * (d + 2), 9.0f);
  s.log_prob.resize(n);
  s.noise.resize(n * d);
  ExpectSameBits<SampleSquashed>({rows, s.out.data(), s.ld, dims, 5, Purpose::kTest, 3, step, deterministic,
                                  s.action.data(), dims + 2, s.log_prob.data(), s.noise.data()},
                                 {s.action, s.log_prob, s.noise});
  return s;
}

TEST(SampleSquashed, ActionsAndLogProbsFollowTheFormulasInDouble) {
  const Sampled s = Sample(300, 6, false);
  for (size_t r = 0; r < 300; ++r) {
    double log_prob = 0;
    for (size_t d = 0; d < 6; ++d) {
      const double mean = s.out[r * 13 + d], log_std = s.out[r * 13 + 6 + d], eps = s.noise[r * 6 + d];
      const double u = mean + std::exp(log_std) * eps, a = std::tanh(u);
      EXPECT_NEAR(s.action[r * 8 + d], a, 1e-6);
      log_prob += -0.5 * eps * eps - log_std - 0.5 * std::log(2 * std::acos(-1.0)) -
                  2 * (std::log(2.0) - u - std::log1p(std::exp(-2 * u)));
    }
    EXPECT_NEAR(s.log_prob[r], log_prob, 2e-5 * std::max(1.0, std::abs(log_prob)));
    EXPECT_EQ(s.action[r * 8 + 6], 9.0f) << "written beyond the action";
  }
}

TEST(SampleSquashed, RowsOfAnyCutAndOfEveryStepHaveTheirOwnNoise) {
  const Sampled all = Sample(300, 6, false), later = Sample(300, 6, false, 5);
  EXPECT_NE(all.noise, later.noise);
  std::vector<float> action(100 * 8), log_prob(100), noise(600);
  RunSerial<SampleSquashed>({100, all.out.data() + 200 * 13, 13, 6, 5, Purpose::kTest, 203, 4, false,
                             action.data(), 8, log_prob.data(), noise.data()});
  EXPECT_EQ(noise, std::vector<float>(all.noise.begin() + 1200, all.noise.end()));
  EXPECT_EQ(log_prob, std::vector<float>(all.log_prob.begin() + 200, all.log_prob.end()));
}

TEST(SampleSquashed, DeterministicIsTheMeansTanh) {
  const Sampled s = Sample(5, 2, true);
  for (size_t r = 0; r < 5; ++r) {
    for (size_t d = 0; d < 2; ++d) EXPECT_EQ(s.action[r * 4 + d], Tanh(s.out[r * 5 + d]));
  }
}

// mean(alpha * log_prob + sum of critics' pull . action) of given noise, in double.
double Loss(const Sampled& s, const std::vector<double>& out, double alpha, const std::vector<float>& pull) {
  double loss = 0;
  for (int r = 0; r < s.rows; ++r) {
    for (int d = 0; d < s.dims; ++d) {
      const double mean = out[static_cast<size_t>(r * s.ld + d)];
      const double log_std = std::clamp(out[static_cast<size_t>(r * s.ld + s.dims + d)], -20.0, 2.0);
      const size_t at = static_cast<size_t>(r * s.dims + d);
      const double eps = s.noise[at];
      const double u = mean + std::exp(log_std) * eps;
      const double log_prob = -log_std - 2 * (std::log(2.0) - u - std::log1p(std::exp(-2 * u)));
      loss += alpha * log_prob / s.rows + pull[at] * std::tanh(u) +
              pull[at + static_cast<size_t>(s.rows * s.dims)] * std::tanh(u);
    }
  }
  return loss;
}

TEST(SquashedBackward, MatchesFiniteDifferencesAndIsZeroBeyondTheClamp) {
  Sampled s = Sample(150, 3, false);
  s.out[3] = 2.5f;        // row 0: log_std of its first dimension
  s.out[7 + 4] = -20.5f;  // row 1: of its second
  RunSerial<SampleSquashed>({s.rows, s.out.data(), s.ld, s.dims, 5, Purpose::kTest, 3, 4, false,
                             s.action.data(), s.dims + 2, s.log_prob.data(), s.noise.data()});
  std::vector<float> pull(2 * 450), dout(s.out.size(), 9.0f);
  for (size_t i = 0; i < pull.size(); ++i) pull[i] = 0.02f * std::cos(static_cast<float>(i));
  const float log_alpha = -0.7f;
  ExpectSameBits<SquashedBackward>({s.rows, s.out.data(), s.ld, s.dims, s.noise.data(), s.action.data(),
                                    s.dims + 2, 2, pull.data(), 450, &log_alpha, 1.0f / 150, dout.data()},
                                   {dout});
  std::vector<double> out(s.out.begin(), s.out.end());
  for (size_t i = 0; i < out.size(); ++i) {
    if (i % 7 == 6) {
      EXPECT_EQ(dout[i], 9.0f) << "written beyond the outputs";
      continue;
    }
    const double kept = out[i], h = 1e-5;
    out[i] = kept + h;
    const double up = Loss(s, out, std::exp(-0.7), pull);
    out[i] = kept - h;
    const double down = Loss(s, out, std::exp(-0.7), pull);
    out[i] = kept;
    EXPECT_NEAR(dout[i], (up - down) / (2 * h), 2e-6) << i;
  }
  EXPECT_EQ(dout[3], 0.0f);
  EXPECT_EQ(dout[7 + 4], 0.0f);
}

// The whole path of one dimension against the published numbers.
TEST(SquashedBackward, FollowsGolden) {
  for (const auto& point : Golden("tanh_gaussian").at("points")) {
    const float out[2] = {point.at("mean").get<float>(), point.at("log_std").get<float>()};
    if (out[1] < kLogStdMin || out[1] > kLogStdMax) continue;
    const float noise = point.at("eps").get<float>(), action = point.at("action").get<float>();
    const float pull = 0.0f, log_alpha = 0.0f;
    float dout[2];
    RunSerial<SquashedBackward>({1, out, 2, 1, &noise, &action, 1, 1, &pull, 1, &log_alpha, 1.0f, dout});
    EXPECT_TRUE(CloseF32(dout[0], point.at("dlogp_dmean_reparam").get<double>())) << dout[0];
    EXPECT_TRUE(CloseF32(dout[1], point.at("dlogp_dlogstd_reparam").get<double>())) << dout[1];
  }
}

}  // namespace
}  // namespace millrace
