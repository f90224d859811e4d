#include "kernels/ops/categorical.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/testing/golden.h"
#include "kernels/testing/same_bits.h"

namespace millrace {
namespace {

struct Sampled {
  std::vector<int32_t> action;
  std::vector<float> log_prob, entropy;
};

// `rows` copies of one row of logits, each with its own random word.
Sampled Sample(const std::vector<float>& logits, const std::vector<uint8_t>& mask,
               const std::vector<int32_t>& nvec, int rows, bool deterministic = false) {
  const size_t width = logits.size(), n = static_cast<size_t>(rows);
  std::vector<float> all;
  std::vector<uint8_t> masks;
  for (size_t r = 0; r < n; ++r) all.insert(all.end(), logits.begin(), logits.end());
  for (size_t r = 0; r < n; ++r) masks.insert(masks.end(), mask.begin(), mask.end());
  Sampled out{std::vector<int32_t>(n * nvec.size()), std::vector<float>(n), std::vector<float>(n)};
  ExpectSameBits<SampleCategorical>({.rows = rows,
                                     .logits = all.data(),
                                     .ld = static_cast<int>(width),
                                     .mask = mask.empty() ? nullptr : masks.data(),
                                     .heads = static_cast<int>(nvec.size()),
                                     .nvec = nvec.data(),
                                     .seed = 11,
                                     .purpose = Purpose::kTest,
                                     .first_row = 100,
                                     .step = 7,
                                     .deterministic = deterministic,
                                     .action = out.action.data(),
                                     .log_prob = out.log_prob.data(),
                                     .entropy = out.entropy.data()},
                                    {out.action, out.log_prob, out.entropy});
  return out;
}

std::vector<uint8_t> MaskOf(const nlohmann::json& j) {
  return Flat<uint8_t>(j);
}

TEST(Categorical, LogProbAndEntropyFollowGolden) {
  const auto& g = Golden("categorical_and_masks");
  const Sampled s = Sample(Flat<float>(g.at("logits")), {}, {4}, 300);
  const auto log_probs = Flat<double>(g.at("log_probs"));
  for (size_t r = 0; r < 300; ++r) {
    EXPECT_TRUE(CloseF32(s.log_prob[r], log_probs[static_cast<size_t>(s.action[r])]));
    EXPECT_TRUE(CloseF32(s.entropy[r], g.at("entropy").get<double>()));
  }
}

TEST(Categorical, NeverSamplesAMaskedAction) {
  const auto& g = Golden("categorical_and_masks");
  const auto& m = g.at("masked");
  const auto mask = MaskOf(m.at("mask"));
  const Sampled s = Sample(Flat<float>(g.at("logits")), mask, {4}, 500);
  for (size_t r = 0; r < 500; ++r) {
    const auto a = static_cast<size_t>(s.action[r]);
    ASSERT_EQ(mask[a], 1);
    EXPECT_TRUE(CloseF32(s.log_prob[r], m.at("log_probs")[a].get<double>()));
    EXPECT_TRUE(CloseF32(s.entropy[r], m.at("entropy").get<double>()));
  }
  const auto& single = g.at("single_valid_action");
  const Sampled one = Sample(Flat<float>(single.at("logits")), MaskOf(single.at("mask")), {3}, 50);
  for (size_t r = 0; r < 50; ++r) {
    EXPECT_EQ(one.action[r], 1);
    EXPECT_EQ(one.log_prob[r], 0.0f);
    EXPECT_EQ(one.entropy[r], 0.0f);
  }
}

TEST(Categorical, LargeLogitsDoNotOverflow) {
  const auto& g = Golden("categorical_and_masks").at("large_logits");
  const Sampled s = Sample(Flat<float>(g.at("logits")), {}, {3}, 200);
  for (size_t r = 0; r < 200; ++r) {
    ASSERT_LT(s.action[r], 2);
    EXPECT_TRUE(
        CloseF32(s.log_prob[r], g.at("log_probs_first_two")[static_cast<size_t>(s.action[r])].get<double>()));
  }
}

TEST(Categorical, MultiDiscreteSumsOverHeads) {
  const auto& g = Golden("categorical_and_masks").at("multidiscrete");
  const auto action = Flat<int>(g.at("action"));
  const Sampled s = Sample(Flat<float>(g.at("logits")), {}, {3, 2}, 400);
  int seen = 0;
  for (size_t r = 0; r < 400; ++r) {
    EXPECT_TRUE(CloseF32(s.entropy[r], g.at("entropy").get<double>()));
    if (s.action[2 * r] != action[0] || s.action[2 * r + 1] != action[1]) continue;
    ++seen;
    EXPECT_TRUE(CloseF32(s.log_prob[r], g.at("log_prob").get<double>()));
  }
  EXPECT_GT(seen, 10);
}

// Six heads need two blocks of random words; one is too wide for the turned path. Each is drawn as its own
// distribution.
TEST(Categorical, DrawsWithTheRightFrequencies) {
  const std::vector<int32_t> nvec = {2, 3, 40, 5, 2, 7};
  std::vector<float> logits;
  std::vector<uint8_t> mask;
  for (size_t h = 0; h < nvec.size(); ++h) {
    for (int l = 0; l < nvec[h]; ++l) {
      logits.push_back(std::sin(static_cast<float>(3 * l + 5 * static_cast<int>(h))));
      mask.push_back((l + static_cast<int>(h)) % 4 != 1);
    }
  }
  const int rows = 8000;
  const Sampled s = Sample(logits, mask, nvec, rows);
  for (size_t h = 0, offset = 0; h < nvec.size(); offset += static_cast<size_t>(nvec[h]), ++h) {
    const auto n = static_cast<size_t>(nvec[h]);
    double sum = 0.0;
    for (size_t l = 0; l < n; ++l)
      sum += mask[offset + l] * std::exp(static_cast<double>(logits[offset + l]));
    std::vector<int> count(n);
    for (int r = 0; r < rows; ++r)
      ++count[static_cast<size_t>(s.action[static_cast<size_t>(r) * nvec.size() + h])];
    for (size_t l = 0; l < n; ++l) {
      const double p = mask[offset + l] * std::exp(static_cast<double>(logits[offset + l])) / sum;
      EXPECT_NEAR(count[l], rows * p, 4.5 * std::sqrt(rows * p * (1 - p)) + 1e-9)
          << "head " << h << " action " << l;
    }
  }
}

TEST(Categorical, DeterministicTakesTheLowestOfTheLikeliest) {
  EXPECT_EQ(Sample({1.0f, 3.0f, 3.0f, 2.0f}, {}, {4}, 1, true).action[0], 1);
  EXPECT_EQ(Sample({1.0f, 3.0f, 3.0f, 2.0f}, {1, 0, 1, 1}, {4}, 1, true).action[0], 2);
  std::vector<float> wide(50, 0.0f);
  wide[33] = wide[41] = 1.0f;
  EXPECT_EQ(Sample(wide, {}, {50}, 1, true).action[0], 33);
}

TEST(Categorical, DependsOnTheGlobalRowOnly) {
  const std::vector<float> logits(600, 0.0f);
  std::vector<int32_t> all(200), part(50);
  std::vector<float> log_prob(200);
  const int32_t nvec = 3;
  SampleCategorical::Params p{.rows = 200,
                              .logits = logits.data(),
                              .ld = 3,
                              .mask = nullptr,
                              .heads = 1,
                              .nvec = &nvec,
                              .seed = 1,
                              .purpose = Purpose::kTest,
                              .first_row = 0,
                              .step = 9,
                              .deterministic = false,
                              .action = all.data(),
                              .log_prob = log_prob.data()};
  RunSerial<SampleCategorical>(p);
  p.rows = 50;
  p.first_row = 130;
  p.action = part.data();
  RunSerial<SampleCategorical>(p);
  for (size_t i = 0; i < 50; ++i) EXPECT_EQ(part[i], all[130 + i]);
}

// A broken contract still gives an action in range and a log-prob that the caller's check finds.
TEST(Categorical, BrokenInputStaysInRange) {
  const float nan = std::nanf("");
  const Sampled bad = Sample({nan, 1.0f, 2.0f}, {}, {3}, 20);
  const Sampled none = Sample({0.0f, 1.0f}, {0, 0}, {2}, 20);
  for (size_t r = 0; r < 20; ++r) {
    EXPECT_TRUE(bad.action[r] >= 0 && bad.action[r] < 3);
    EXPECT_FALSE(IsFinite(bad.log_prob[r]));
    EXPECT_TRUE(none.action[r] >= 0 && none.action[r] < 2);
    EXPECT_FALSE(IsFinite(none.log_prob[r]));
  }
}

}  // namespace
}  // namespace millrace
