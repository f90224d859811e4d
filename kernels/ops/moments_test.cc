#include "kernels/ops/moments.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "kernels/ops/philox.h"
#include "kernels/testing/golden.h"
#include "kernels/testing/same_bits.h"

namespace millrace {
namespace {

MomentsResult Of(const std::vector<float>& x) {
  MomentsResult out;
  RunSerial<Moments>({static_cast<int>(x.size()), x.data(), nullptr, &out});
  return out;
}

std::vector<float> Normalised(const std::vector<float>& x) {
  const MomentsResult m = Of(x);
  const ShiftScale s = AdvantageScale(m.mean, m.variance, m.count);
  std::vector<float> y;
  for (float v : x) y.push_back((v - s.shift) * s.scale);
  return y;
}

TEST(Moments, DoNotCancel) {
  const auto& g = Golden("running_stats").at("cancellation");
  const MomentsResult m = Of(Flat<float>(g.at("x")));
  // The golden numbers are not float32; what float32 holds of them is what must come out.
  const std::vector<float> x = Flat<float>(g.at("x"));
  const double mean = std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
  double variance = 0.0;
  for (float v : x) variance += (v - mean) * (v - mean) / static_cast<double>(x.size());
  EXPECT_EQ(m.mean, mean);
  EXPECT_EQ(m.variance, variance);
  // The same with a base that float32 can hold.
  const MomentsResult near = Of({8388608.0f, 8388609.0f, 8388610.0f, 8388611.0f});
  EXPECT_NEAR(near.variance, g.at("var").get<double>(), 1e-10);
}

TEST(Moments, SumInAnyOrderOfMagnitudes) {
  const auto& g = Golden("precision").at("adv_sum_fp32_order");
  const MomentsResult m = Of(Flat<float>(g.at("x")));
  EXPECT_EQ(m.mean * m.count, g.at("exact").get<double>());
  EXPECT_NE(m.mean * m.count, g.at("left_to_right_fp32").get<double>());
}

TEST(Moments, NormaliseAdvantagesAsGolden) {
  const auto& g = Golden("ppo_minibatch");
  const std::vector<float> got = Normalised(Flat<float>(g.at("advantages")));
  ExpectCloseF32(got, Flat<double>(g.at("advantage_norm_unbiased")));
  EXPECT_GT(Distance(got, Flat<double>(g.at("advantage_norm_population"))), 0.05);
}

TEST(Moments, EdgeCasesOfNormalisation) {
  const auto& g = Golden("ppo_minibatch").at("edge_cases");
  for (const char* name : {"batch_of_one", "constant_advantages"}) {
    ExpectCloseF32(Normalised(Flat<float>(g.at(name).at("advantage"))),
                   Flat<double>(g.at(name).at("expected")));
  }
  const ShiftScale empty = AdvantageScale(0.0, 0.0, 0.0);
  EXPECT_EQ(empty.shift, 0.0f);
  EXPECT_EQ(empty.scale, 1.0f);
}

TEST(Moments, GatherThroughTheIndex) {
  const std::vector<float> x = {1.0f, 100.0f, 2.0f, 4.0f};
  const std::vector<int32_t> index = {3, 0, 2};
  MomentsResult out;
  RunSerial<Moments>({3, x.data(), index.data(), &out});
  EXPECT_NEAR(out.mean, 7.0 / 3.0, 1e-12);
  EXPECT_NEAR(out.variance, 14.0 / 9.0, 1e-12);
  EXPECT_EQ(out.count, 3.0);
  RunSerial<Moments>({0, x.data(), nullptr, &out});
  EXPECT_EQ(out.count, 0.0);
  EXPECT_EQ(out.variance, 0.0);
}

TEST(Moments, HaveTheSameBitsForEveryTeam) {
  std::vector<float> x(1003);
  std::vector<int32_t> index(777);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = UniformFloat(PhiloxAt(5, Purpose::kTest, 0, i).v[0]) * 3.0f - 1.0f;
  for (size_t i = 0; i < index.size(); ++i) index[i] = static_cast<int32_t>(i * 37 % x.size());
  MomentsResult out;
  ExpectSameBits<Moments>({1003, x.data(), nullptr, &out}, {{&out, 1}});
  ExpectSameBits<Moments>({777, x.data(), index.data(), &out}, {{&out, 1}});
}

}  // namespace
}  // namespace millrace
