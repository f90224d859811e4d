// GradReduce, ClipGlobalNorm and Adam: what stands between the shards' gradients and the weights.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/ops/adam.h"
#include "kernels/ops/grad_reduce.h"
#include "kernels/ops/philox.h"
#include "kernels/testing/golden.h"
#include "kernels/testing/same_bits.h"

namespace millrace {
namespace {

std::vector<float> Noise(size_t n, uint32_t row) {
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i) x[i] = UniformFloat(PhiloxAt(9, Purpose::kTest, row, i).v[0]) - 0.5f;
  return x;
}

TEST(GradReduce, AddsInShardOrderAndClears) {
  const int n = 9000;
  const size_t stride = 9016;
  for (int shards : {1, 2, 3, 7}) {
    std::vector<float> buffers = Noise(stride * static_cast<size_t>(shards), 1);
    const std::vector<float> before = buffers;
    std::vector<float> sum(n);
    std::vector<double> squares(static_cast<size_t>(GradReduce::Chunks(n)));
    ExpectSameBits<GradReduce>({.n = n,
                                .shards = shards,
                                .shard_gradients = buffers.data(),
                                .shard_stride = stride,
                                .gradients = sum.data(),
                                .chunk_squares = squares.data()},
                               {buffers, sum, squares});
    ASSERT_EQ(squares.size(), 3u);
    double total = 0.0;
    for (size_t i = 0; i < n; ++i) {
      float want = before[i];
      for (int s = 1; s < shards; ++s) want += before[static_cast<size_t>(s) * stride + i];
      ASSERT_EQ(sum[i], want);
      total += static_cast<double>(want) * want;
      for (int s = 0; s < shards; ++s) ASSERT_EQ(buffers[static_cast<size_t>(s) * stride + i], 0.0f);
    }
    EXPECT_NEAR(squares[0] + squares[1] + squares[2], total, 1e-5 * total);
    for (size_t i = n; i < stride; ++i) ASSERT_EQ(buffers[i], before[i]) << "beyond n";
  }
}

// The golden clip cases, through the ops: reduce, norm, scale.
std::vector<float> Clipped(std::vector<float> gradient, float max_norm, float* norm, AdamStep* step) {
  const int n = static_cast<int>(gradient.size());
  std::vector<float> sum(gradient.size());
  double squares = 0.0;
  RunSerial<GradReduce>({n, 1, gradient.data(), gradient.size(), sum.data(), &squares});
  RunSerial<ClipGlobalNorm>({1, &squares, max_norm, step, norm});
  for (float& x : sum) x *= step->grad_scale;
  return sum;
}

TEST(GradClip, FollowsGolden) {
  const auto& g = Golden("grad_clip");
  float norm;
  AdamStep step;
  const auto got = Clipped(Flat<float>(g.at("tensors")), g.at("max_norm").get<float>(), &norm, &step);
  ExpectCloseF32(got, Flat<double>(g.at("clipped")));
  EXPECT_GT(Distance(got, Flat<double>(g.at("wrong_per_tensor"))), 0.01);
  EXPECT_TRUE(CloseF32(norm, g.at("total_norm").get<double>()));
  EXPECT_EQ(step.skip, 0);

  const auto& below = g.at("below_norm_unchanged");
  EXPECT_EQ(Clipped(Flat<float>(below.at("tensor")), below.at("max_norm").get<float>(), &norm, &step),
            Flat<float>(below.at("clipped")));

  const auto& ranks = g.at("two_ranks");
  const auto clipped =
      Clipped(Flat<float>(ranks.at("mean")), ranks.at("max_norm").get<float>(), &norm, &step);
  ExpectCloseF32(clipped, Flat<double>(ranks.at("clipped_after_mean")));
  EXPECT_GT(Distance(clipped, Flat<double>(ranks.at("wrong_clip_then_mean"))), 0.01);
}

TEST(GradClip, NoLimitMeansNoClipping) {
  float norm;
  AdamStep step;
  EXPECT_EQ(Clipped({3.0f, 4.0f}, 0.0f, &norm, &step), (std::vector<float>{3.0f, 4.0f}));
  EXPECT_EQ(norm, 5.0f);
}

TEST(GradClip, SkipsWhatIsNotFinite) {
  for (float bad : {INFINITY, -INFINITY, std::nanf(""), 3e38f}) {
    float norm;
    AdamStep step;
    Clipped({1.0f, bad}, 0.5f, &norm, &step);
    EXPECT_EQ(step.skip, 1);
    std::vector<float> w = {1.0f, 2.0f}, g = {1.0f, bad}, m = {0.1f, 0.2f}, v = {0.3f, 0.4f};
    const auto w0 = w, m0 = m, v0 = v;
    RunSerial<Adam>({w.data(), g.data(), m.data(), v.data(), 2, &step, true});
    EXPECT_EQ(w, w0);
    EXPECT_EQ(m, m0);
    EXPECT_EQ(v, v0);
    EXPECT_EQ(g, (std::vector<float>{0.0f, 0.0f}));
  }
}

TEST(GradClip, AnEstimateBeyondTheKlLimitStopsTheRestOfTheUpdate) {
  const double squares = 4.0;
  float norm;
  AdamStep step;
  int32_t stop = 0;
  const auto gate = [&](double kl) {
    RunSerial<ClipGlobalNorm>({1, &squares, 0.0f, &step, &norm, &kl, 0.5, &stop});
    return step.skip;
  };
  EXPECT_EQ(gate(0.4), 0);
  EXPECT_EQ(gate(0.6), 1);
  EXPECT_EQ(stop, 1);
  EXPECT_EQ(gate(0.4), 1);  // the flag stays
}

TEST(Adam, AMomentWithoutGradientsBecomesZeroAndNeverDenormal) {
  AdamStep step;
  step.lr = 1e-3f;
  float w = 1.0f, g = 0.0f, m = 1e-3f, v = 1e-6f;
  for (int t = 1; t <= 100000; ++t) {
    step.Set(0.9, 0.999, 1e-8, 0.0, t);
    RunSerial<Adam>({&w, &g, &m, &v, 1, &step, false});
    ASSERT_TRUE(m == 0.0f || std::abs(m) > 1e-31f);
    ASSERT_TRUE(v == 0.0f || v > 1e-31f);
  }
  EXPECT_EQ(m, 0.0f);
  EXPECT_EQ(v, 0.0f);
}

void FollowAdam(const char* name, double eps, double decay) {
  const auto& g = Golden("adam");
  float w = g.at("theta0").get<float>(), m = 0.0f, v = 0.0f;
  AdamStep step;
  step.lr = g.at("lr").get<float>();
  for (size_t t = 0; t < g.at("grads").size(); ++t) {
    float grad = g.at("grads")[t].get<float>();
    step.Set(g.at("betas")[0].get<double>(), g.at("betas")[1].get<double>(), eps, decay,
             static_cast<int64_t>(t) + 1);
    RunSerial<Adam>({&w, &grad, &m, &v, 1, &step, true});
    const auto& want = g.at(name)[t];
    EXPECT_TRUE(CloseF32(w, want.at("theta").get<double>())) << name << " " << t << ": " << w;
    EXPECT_TRUE(CloseF32(m, want.at("m").get<double>()));
    EXPECT_NEAR(v, want.at("v").get<double>(), 2e-5 * want.at("v").get<double>());
    EXPECT_EQ(grad, 0.0f);
  }
}

TEST(Adam, FollowsGolden) {
  FollowAdam("eps_1e-8", 1e-8, 0.0);
  FollowAdam("eps_1e-5", 1e-5, 0.0);
  FollowAdam("adamw_wd0.1_eps_1e-8", 1e-8, 0.1);
}

TEST(Adam, TinyGradientsMeetEpsilonAfterTheBiasCorrection) {
  const auto& g = Golden("adam");
  const auto first_step = [](float gradient, double eps) {
    float w = 0.0f, m = 0.0f, v = 0.0f;
    AdamStep step;
    step.lr = 0.01f;
    step.Set(0.9, 0.999, eps, 0.0, 1);
    RunSerial<Adam>({&w, &gradient, &m, &v, 1, &step, false});
    return -static_cast<double>(w);
  };
  const auto& tiny = g.at("tiny_gradient");
  const float gradient = tiny.at("grad").get<float>();
  EXPECT_NEAR(first_step(gradient, 1e-8), tiny.at("step_eps_1e-8").get<double>(), 2e-7);
  EXPECT_NEAR(first_step(gradient, 1e-5), tiny.at("step_eps_1e-5").get<double>(), 2e-7);
  const auto& lr_sized = g.at("first_step_size_is_lr");
  EXPECT_NEAR(1.0 - first_step(lr_sized.at("grad").get<float>(), lr_sized.at("eps").get<double>()),
              lr_sized.at("theta1").get<double>(), 2e-7);
}

TEST(Adam, ScalesTheGradientAndHasTheSameBitsForEveryTeam) {
  const int n = 5000;
  std::vector<float> w = Noise(n, 1), g = Noise(n, 2), m = Noise(n, 3), v = Noise(n, 4);
  for (float& x : v) x = x * x;
  std::vector<float> w2 = w, g2 = g, m2 = m, v2 = v;
  AdamStep step;
  step.lr = 0.01f;
  step.Set(0.9, 0.999, 1e-5, 0.01, 3);
  step.grad_scale = 0.25f;
  ExpectSameBits<Adam>({w.data(), g.data(), m.data(), v.data(), n, &step, true}, {w, g, m, v});
  for (float& x : g2) x *= 0.25f;
  step.grad_scale = 1.0f;
  RunSerial<Adam>({w2.data(), g2.data(), m2.data(), v2.data(), n, &step, false});
  EXPECT_EQ(w, w2);
  EXPECT_EQ(m, m2);
  EXPECT_EQ(g, std::vector<float>(n, 0.0f));
}

TEST(Adam, AveragesATargetInTheSamePass) {
  const auto& g = Golden("sac").at("polyak");
  float target = g.at("target0").get<float>();
  AdamStep step;
  step.Set(0.9, 0.999, 1e-8, 0.0, 1);
  for (size_t i = 0; i < g.at("online_sequence").size(); ++i) {
    float w = g.at("online_sequence")[i].get<float>(), grad = 1.0f, m = 0.0f, v = 0.0f;  // at a rate of 0
    Adam::Params p{&w, &grad, &m, &v, 1, &step, false};
    p.target = &target, p.tau = g.at("tau").get<float>();
    RunSerial<Adam>(p);
    EXPECT_TRUE(CloseF32(target, g.at("target_sequence")[i].get<double>())) << i << ": " << target;
  }
  // It is the new weights that are averaged, all of them with tau 1, and none after a skipped step.
  const int n = 5000;
  std::vector<float> w = Noise(n, 1), grad = Noise(n, 2), m = Noise(n, 3), v(n, 0.5f), average = Noise(n, 4);
  step.lr = 0.01f;
  Adam::Params p{w.data(), grad.data(), m.data(), v.data(), n, &step, false, average.data(), 1.0f};
  ExpectSameBits<Adam>(p, {w, grad, m, v, average});
  EXPECT_EQ(average, w);
  step.skip = 1;
  p.tau = 0.5f;
  w[0] += 1.0f;
  const std::vector<float> before = average;
  RunSerial<Adam>(p);
  EXPECT_EQ(average, before);
}

// Masters stay float32: ten steps of 3e-4 from 1.0 arrive, where bf16 weights would not move.
TEST(Adam, KeepsFloat32Masters) {
  const auto& p = Golden("precision").at("bf16_weight_minus_lr");
  float w = p.at("w").get<float>();
  for (int i = 0; i < 10; ++i) w -= p.at("lr_times_g").get<float>();
  EXPECT_NEAR(w, p.at("fp32_master_after_10_steps").get<double>(), 1e-9);
  EXPECT_NE(w, p.at("result_bf16").get<float>());
}

}  // namespace
}  // namespace millrace
