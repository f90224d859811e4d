#include "kernels/ops/gaussian.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/testing/golden.h"
#include "kernels/testing/same_bits.h"

namespace millrace {
namespace {

TEST(Gaussian, LogProbEntropyAndKlFollowGolden) {
  const auto& g = Golden("diag_gaussian");
  const auto mean = Flat<float>(g.at("mean")), log_std = Flat<float>(g.at("log_std"));
  const auto action = Flat<float>(g.at("action"));
  const auto mean_b = Flat<float>(g.at("kl_to").at("mean")),
             log_std_b = Flat<float>(g.at("kl_to").at("log_std"));
  double log_prob = 0.0, entropy = 0.0, kl = 0.0;
  for (size_t d = 0; d < 2; ++d) {
    log_prob += GaussianLogProb((action[d] - mean[d]) * Exp(-log_std[d]), log_std[d]);
    entropy += GaussianEntropy(log_std[d]);
    kl += GaussianKl(mean[d], log_std[d], mean_b[d], log_std_b[d]);
  }
  EXPECT_TRUE(CloseF32(log_prob, g.at("log_prob").get<double>()));
  EXPECT_TRUE(CloseF32(entropy, g.at("entropy").get<double>()));
  EXPECT_TRUE(CloseF32(kl, g.at("kl_to").at("kl").get<double>()));
  const auto& under = g.at("float32_exp_underflow");
  EXPECT_EQ(Exp(under.at("log_std").get<float>()), under.at("exp_in_float32").get<float>());
  EXPECT_GT(Exp(ClampLogStd(under.at("log_std").get<float>())), 0.0f);
}

TEST(Gaussian, LogStdMapsFollowGolden) {
  for (const auto& m : Golden("tanh_gaussian").at("log_std_maps")) {
    const float raw = m.at("raw").get<float>();
    EXPECT_EQ(ClampLogStd(raw), m.at("clamp_-20_2").get<float>());
    EXPECT_TRUE(CloseF32(SqueezeLogStd(raw, -5.0f, 2.0f), m.at("tanh_map_-5_2").get<double>()));
    EXPECT_TRUE(CloseF32(SqueezeLogStd(raw, -5.0f, 0.0f), m.at("tanh_map_-5_0").get<double>()));
  }
}

TEST(TanhGaussian, FollowsTheGoldenPoints) {
  for (const auto& p : Golden("tanh_gaussian").at("points")) {
    const TanhGaussianSample s =
        SampleTanhGaussian(p.at("mean").get<float>(), p.at("log_std").get<float>(), p.at("eps").get<float>());
    SCOPED_TRACE(p.dump());
    EXPECT_TRUE(CloseF32(s.pre_tanh, p.at("pre_tanh").get<double>())) << s.pre_tanh;
    EXPECT_TRUE(CloseF32(s.action, p.at("action").get<double>())) << s.action;
    EXPECT_TRUE(CloseF32(TanhLogDet(s.pre_tanh), p.at("log_det_correction").get<double>()));
    EXPECT_TRUE(CloseF32(s.log_prob, p.at("log_prob").get<double>())) << s.log_prob;
    EXPECT_TRUE(CloseF32(s.log_prob - kLogTwo, p.at("log_prob_scale2").get<double>()));
    EXPECT_TRUE(CloseF32(s.dlog_prob_dmean, p.at("dlogp_dmean_reparam").get<double>())) << s.dlog_prob_dmean;
    EXPECT_TRUE(CloseF32(s.dlog_prob_dlog_std, p.at("dlogp_dlogstd_reparam").get<double>()))
        << s.dlog_prob_dlog_std;
  }
}

TEST(TanhGaussian, SumsOverDimensionsAndBounds) {
  const auto& g = Golden("tanh_gaussian").at("three_dim_with_bounds");
  double sum = 0.0, in_env_units = 0.0;
  for (size_t d = 0; d < 3; ++d) {
    const TanhGaussianSample s = SampleTanhGaussian(
        g.at("mean")[d].get<float>(), g.at("log_std")[d].get<float>(), g.at("eps")[d].get<float>());
    const double scale = g.at("scale")[d].get<double>();
    EXPECT_TRUE(CloseF32(s.action, g.at("action")[d].get<double>()));
    EXPECT_TRUE(
        CloseF32(s.action * scale + g.at("bias")[d].get<double>(), g.at("env_action")[d].get<double>()));
    sum += s.log_prob;
    in_env_units += s.log_prob - std::log(scale);
  }
  EXPECT_TRUE(CloseF32(sum, g.at("log_prob_sum").get<double>()));
  EXPECT_TRUE(CloseF32(in_env_units, g.at("log_prob_sum_in_env_units").get<double>()));
}

TEST(TanhGaussian, GradientsMatchFiniteDifferences) {
  const auto log_prob = [](double mean, double log_std, double eps) {
    const double u = mean + std::exp(log_std) * eps;
    return -0.5 * eps * eps - log_std - 0.5 * std::log(2 * std::acos(-1.0)) -
           2 * (std::log(2.0) - u - std::log1p(std::exp(-2 * u)));
  };
  const double h = 1e-5;
  for (double mean : {-0.8, 0.1, 1.5}) {
    for (double log_std : {-1.0, 0.3}) {
      const double eps = 0.7;
      const TanhGaussianSample s =
          SampleTanhGaussian(static_cast<float>(mean), static_cast<float>(log_std), 0.7f);
      EXPECT_NEAR(s.dlog_prob_dmean,
                  (log_prob(mean + h, log_std, eps) - log_prob(mean - h, log_std, eps)) / (2 * h), 1e-5);
      EXPECT_NEAR(s.dlog_prob_dlog_std,
                  (log_prob(mean, log_std + h, eps) - log_prob(mean, log_std - h, eps)) / (2 * h), 1e-5);
    }
  }
}

struct Sampled {
  std::vector<float> mean, log_std, action, log_prob, entropy;
};

Sampled Sample(int rows, int dims, bool deterministic) {
  const size_t n = static_cast<size_t>(rows);
  const int ld = dims + 3;
  Sampled s{std::vector<float>(n * ld), std::vector<float>(dims), std::vector<float>(n * dims),
            std::vector<float>(n), std::vector<float>(n)};
  for (size_t i = 0; i < s.mean.size(); ++i) s.mean[i] = std::sin(static_cast<float>(i % ld));
  for (int d = 0; d < dims; ++d) s.log_std[d] = 0.3f * static_cast<float>(d) - 1.0f;
  ExpectSameBits<SampleGaussian>({.rows = rows,
                                  .mean = s.mean.data(),
                                  .ld = ld,
                                  .log_std = s.log_std.data(),
                                  .dims = dims,
                                  .seed = 5,
                                  .purpose = Purpose::kTest,
                                  .first_row = 3,
                                  .step = 4,
                                  .deterministic = deterministic,
                                  .action = s.action.data(),
                                  .log_prob = s.log_prob.data(),
                                  .entropy = s.entropy.data()},
                                 {s.action, s.log_prob, s.entropy});
  return s;
}

TEST(Gaussian, SamplesAreStandardNormalAndIndependent) {
  const int rows = 20000, dims = 6;
  const Sampled s = Sample(rows, dims, false);
  std::vector<double> z(static_cast<size_t>(rows) * dims);
  for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
    double log_prob = 0.0, entropy = 0.0;
    for (size_t d = 0; d < dims; ++d) {
      const double log_std = s.log_std[d];
      z[r * dims + d] = (s.action[r * dims + d] - s.mean[r * (dims + 3) + d]) / std::exp(log_std);
      log_prob += -0.5 * z[r * dims + d] * z[r * dims + d] - log_std - 0.5 * std::log(2 * std::acos(-1.0));
      entropy += log_std + 0.5 + 0.5 * std::log(2 * std::acos(-1.0));
    }
    ASSERT_NEAR(s.log_prob[r], log_prob, 2e-5 * std::max(1.0, std::abs(log_prob)));
    ASSERT_NEAR(s.entropy[r], entropy, 1e-5);
  }
  // Mean, variance, fourth moment and tail of each dimension, and the correlation with the next one, within 5
  // sigma.
  for (size_t d = 0; d < dims; ++d) {
    double m1 = 0, m2 = 0, m4 = 0, tail = 0, next = 0;
    for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
      const double x = z[r * dims + d];
      m1 += x / rows;
      m2 += x * x / rows;
      m4 += x * x * x * x / rows;
      tail += (std::abs(x) > 1.959964) / static_cast<double>(rows);
      next += x * z[r * dims + (d + 1) % dims] / rows;
    }
    const double sigma = 5.0 / std::sqrt(rows);
    EXPECT_NEAR(m1, 0.0, sigma);
    EXPECT_NEAR(m2, 1.0, sigma * std::sqrt(2.0));
    EXPECT_NEAR(m4, 3.0, sigma * std::sqrt(96.0));
    EXPECT_NEAR(tail, 0.05, sigma * std::sqrt(0.05 * 0.95));
    EXPECT_NEAR(next, 0.0, sigma);
  }
}

TEST(Gaussian, DeterministicIsTheMean) {
  const Sampled s = Sample(5, 2, true);
  for (size_t r = 0; r < 5; ++r) {
    for (size_t d = 0; d < 2; ++d) EXPECT_EQ(s.action[r * 2 + d], s.mean[r * 5 + d]);
  }
}

TEST(Gaussian, ExtremeWordsStayFinite) {
  for (uint32_t a : {0u, 255u, 0xffffffffu}) {
    for (uint32_t b : {0u, 0x3fffffffu, 0x40000000u, 0x80000000u, 0xc0000000u, 0xffffffffu}) {
      const NormalPair x = BoxMuller(a, b);
      EXPECT_TRUE(IsFinite(x.a) && IsFinite(x.b));
      EXPECT_LT(std::hypot(x.a, x.b), 5.8);
    }
  }
}

}  // namespace
}  // namespace millrace
