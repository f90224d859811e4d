#include "kernels/ops/action_log_prob.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/testing/same_bits.h"

namespace millrace {
namespace {

constexpr int kRows = 200;  // a whole tile and a part of one

std::vector<float> Random(size_t n, uint32_t stream, float lo, float hi) {
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i)
    x[i] = lo + (hi - lo) * UniformFloat(PhiloxAt(3, Purpose::kTest, stream, i).v[0]);
  return x;
}

void CheckDiscrete(const std::vector<int32_t>& nvec, bool masked) {
  const int heads = static_cast<int>(nvec.size());
  int width = 0;
  for (const int32_t n : nvec) width += n;
  const int ld = width + 1;
  const std::vector<float> logits = Random(static_cast<size_t>(kRows) * ld, 1, -5, 5);
  std::vector<int32_t> action(static_cast<size_t>(kRows) * heads);
  std::vector<uint8_t> mask(static_cast<size_t>(kRows) * width, 1);
  for (int r = 0; r < kRows; ++r) {
    for (int h = 0, offset = 0; h < heads; offset += nvec[h], ++h) {
      action[static_cast<size_t>(r) * heads + h] = (r * 7 + h) % nvec[h];
      mask[static_cast<size_t>(r) * width + offset + (r * 7 + h + 1) % nvec[h]] = r % 3 == 0;
    }
  }
  std::vector<float> log_prob(kRows, -1.0f);
  ExpectSameBits<ActionLogProb>({.rows = kRows,
                                 .logits = logits.data(),
                                 .ld = ld,
                                 .mask = masked ? mask.data() : nullptr,
                                 .heads = heads,
                                 .nvec = nvec.data(),
                                 .log_std = nullptr,
                                 .action = action.data(),
                                 .log_prob = log_prob.data()},
                                {log_prob});
  for (int r = 0; r < kRows; ++r) {
    double expected = 0;
    for (int h = 0, offset = 0; h < heads; offset += nvec[h], ++h) {
      double sum = 0;
      for (int l = 0; l < nvec[h]; ++l) {
        if (masked && mask[static_cast<size_t>(r) * width + offset + l] == 0) continue;
        sum += std::exp(static_cast<double>(logits[static_cast<size_t>(r) * ld + offset + l]));
      }
      const int a = action[static_cast<size_t>(r) * heads + h];
      expected += static_cast<double>(logits[static_cast<size_t>(r) * ld + offset + a]) - std::log(sum);
    }
    ASSERT_NEAR(log_prob[r], expected, 1e-5 * heads) << r;
  }
}

TEST(ActionLogProb, MatchesTheSoftmaxInDouble) {
  CheckDiscrete({3}, false);
  CheckDiscrete({3}, true);
  CheckDiscrete({3, 5, 4}, true);
  CheckDiscrete({100, 2}, true);
}

// The importance weight of a policy against itself is exactly 1.
TEST(ActionLogProb, HasTheBitsOfTheSamplersOwn) {
  for (const int32_t n : {2, 3, 18, 64}) {
    const std::vector<float> logits = Random(static_cast<size_t>(kRows) * n, 2, -3, 3);
    std::vector<int32_t> action(kRows);
    std::vector<float> sampled(kRows), scored(kRows);
    RunSerial<SampleCategorical>({kRows, logits.data(), n, nullptr, 1, &n, 1, Purpose::kAction, 0, 1, false,
                                  action.data(), sampled.data(), nullptr});
    RunSerial<ActionLogProb>(
        {kRows, logits.data(), n, nullptr, 1, &n, nullptr, action.data(), scored.data()});
    EXPECT_EQ(sampled, scored) << n;
  }
  const int dims = 4;
  const std::vector<float> mean = Random(kRows * dims, 3, -1, 1), log_std = {-25.0f, -1.0f, 0.3f, 4.0f};
  std::vector<float> action(kRows * dims), sampled(kRows), scored(kRows);
  RunSerial<SampleGaussian>({kRows, mean.data(), dims, log_std.data(), dims, 1, Purpose::kAction, 0, 1, false,
                             action.data(), sampled.data(), nullptr});
  RunSerial<ActionLogProb>(
      {kRows, mean.data(), dims, nullptr, dims, nullptr, log_std.data(), action.data(), scored.data()});
  EXPECT_EQ(sampled, scored);
}

TEST(ActionLogProb, MatchesTheGaussianInDouble) {
  const int dims = 6, ld = 8;
  const std::vector<float> mean = Random(kRows * ld, 4, -1, 1), log_std = Random(dims, 5, -1, 1);
  const std::vector<float> action = Random(kRows * dims, 6, -2, 2);
  std::vector<float> log_prob(kRows);
  ExpectSameBits<ActionLogProb>({.rows = kRows,
                                 .logits = mean.data(),
                                 .ld = ld,
                                 .mask = nullptr,
                                 .heads = dims,
                                 .nvec = nullptr,
                                 .log_std = log_std.data(),
                                 .action = action.data(),
                                 .log_prob = log_prob.data()},
                                {log_prob});
  for (int r = 0; r < kRows; ++r) {
    double expected = 0;
    for (int d = 0; d < dims; ++d) {
      const double s = log_std[static_cast<size_t>(d)];
      const double z = (static_cast<double>(action[static_cast<size_t>(r * dims + d)]) -
                        static_cast<double>(mean[static_cast<size_t>(r * ld + d)])) /
                       std::exp(s);
      expected += -0.5 * z * z - s - 0.91893853320467274;
    }
    ASSERT_NEAR(log_prob[r], expected, 1e-5 * (1 + std::abs(expected))) << r;
  }
}

TEST(ActionLogProb, AnImpossibleActionHasNoWeightAndANanShows) {
  const int32_t n = 2;
  std::vector<float> logits = {0, 0, 0, 0, NAN, 0};
  const std::vector<uint8_t> mask = {1, 0, 1, 1, 1, 1};
  const std::vector<int32_t> action = {1, 2, 1};
  std::vector<float> log_prob(3);
  RunSerial<ActionLogProb>(
      {3, logits.data(), n, mask.data(), 1, &n, nullptr, action.data(), log_prob.data()});
  EXPECT_EQ(Exp(log_prob[0]), 0.0f);
  EXPECT_EQ(Exp(log_prob[1]), 0.0f);
  EXPECT_TRUE(std::isnan(log_prob[2]));
}

}  // namespace
}  // namespace millrace
