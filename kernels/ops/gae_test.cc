#include "kernels/ops/gae.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/ops/philox.h"
#include "kernels/testing/golden.h"
#include "kernels/testing/same_bits.h"

namespace millrace {
namespace {

struct Case {
  int T, N;
  std::vector<float> reward, value, next_value;
  std::vector<uint8_t> terminated, truncated;
  float gamma, lambda;
  std::vector<float> advantage, ret;

  Gae::Params Params() {
    advantage.assign(reward.size(), -7.0f);
    ret.assign(reward.size(), -7.0f);
    return {
        T,     N,      reward.data(),    value.data(), next_value.data(), terminated.data(), truncated.data(),
        gamma, lambda, advantage.data(), ret.data()};
  }
};

Case Golden5(const char* variant, double lambda) {
  const auto& g = Golden("gae_5step");
  const auto& v = g.at(variant);
  return {5,
          1,
          Flat<float>(g.at("rewards")),
          Flat<float>(g.at("values")),
          Flat<float>(v.at("next_values")),
          Flat<uint8_t>(v.at("terminated")),
          Flat<uint8_t>(v.at("truncated")),
          g.at("gamma").get<float>(),
          static_cast<float>(lambda),
          {},
          {}};
}

TEST(Gae, FollowsTheGoldenFiveSteps) {
  const auto& g = Golden("gae_5step");
  for (const char* variant : {"truncated_at_2", "terminated_at_2", "no_episode_end"}) {
    Case c = Golden5(variant, g.at("lambda").get<double>());
    RunSerial<Gae>(c.Params());
    ExpectCloseF32(c.advantage, Flat<double>(g.at(variant).at("advantages")));
    ExpectCloseF32(c.ret, Flat<double>(g.at(variant).at("returns")));
  }
  for (const char* variant : {"truncated_at_2_lambda1", "truncated_at_2_lambda0"}) {
    Case c = Golden5("truncated_at_2", g.at(variant).at("lambda").get<double>());
    RunSerial<Gae>(c.Params());
    ExpectCloseF32(c.advantage, Flat<double>(g.at(variant).at("advantages")));
  }
}

TEST(Gae, StaysFarFromKnownMistakes) {
  const auto& g = Golden("gae_5step");
  Case c = Golden5("truncated_at_2", g.at("lambda").get<double>());
  RunSerial<Gae>(c.Params());
  int wrong = 0;
  for (const auto& [name, values] : g.items()) {
    if (name.rfind("wrong_", 0) != 0) continue;
    ++wrong;
    EXPECT_GT(Distance(c.advantage, Flat<double>(values)), 0.1) << name;
  }
  EXPECT_EQ(wrong, 6);
}

TEST(Gae, FollowsTheGoldenBatch) {
  const auto& g = Golden("gae_batch_time_major");
  Case c{4,
         3,
         Flat<float>(g.at("rewards")),
         Flat<float>(g.at("values")),
         Flat<float>(g.at("next_values")),
         Flat<uint8_t>(g.at("terminated")),
         Flat<uint8_t>(g.at("truncated")),
         g.at("gamma").get<float>(),
         g.at("lambda").get<float>(),
         {},
         {}};
  RunSerial<Gae>(c.Params());
  ExpectCloseF32(c.advantage, Flat<double>(g.at("advantages")));
  ExpectCloseF32(c.ret, Flat<double>(g.at("returns")));
}

// Random columns, more than a tile of them, some ending both ways at once.
Case RandomCase(int T, int N) {
  const size_t n = static_cast<size_t>(T) * N;
  Case c{T,
         N,
         std::vector<float>(n),
         std::vector<float>(n),
         std::vector<float>(n),
         std::vector<uint8_t>(n),
         std::vector<uint8_t>(n),
         0.97f,
         0.9f,
         {},
         {}};
  for (size_t i = 0; i < n; ++i) {
    const Philox4 w = PhiloxAt(3, Purpose::kTest, 0, i);
    c.reward[i] = UniformFloat(w.v[0]) - 0.5f;
    c.value[i] = UniformFloat(w.v[1]) - 0.5f;
    c.next_value[i] = UniformFloat(w.v[2]) - 0.5f;
    c.terminated[i] = (w.v[3] & 7u) == 0;
    c.truncated[i] = (w.v[3] & 56u) == 0;
  }
  return c;
}

TEST(Gae, MatchesTheDefinitionInDouble) {
  Case c = RandomCase(9, 150);
  RunSerial<Gae>(c.Params());
  for (int col = 0; col < c.N; ++col) {
    double carry = 0.0;
    for (int t = c.T - 1; t >= 0; --t) {
      const size_t i = static_cast<size_t>(t) * c.N + col;
      const double next = c.terminated[i] ? 0.0 : c.next_value[i];
      const double delta = c.reward[i] + static_cast<double>(c.gamma) * next - c.value[i];
      const bool ended = c.terminated[i] || c.truncated[i];
      carry = delta + (ended ? 0.0 : static_cast<double>(c.gamma) * c.lambda * carry);
      EXPECT_NEAR(c.advantage[i], carry, 1e-5);
      EXPECT_NEAR(c.ret[i], carry + c.value[i], 1e-5);
    }
  }
}

TEST(Gae, IgnoresWhatStandsBehindATermination) {
  Case c = RandomCase(3, 2);
  c.terminated[3] = 1;
  c.next_value[3] = std::nanf("");
  RunSerial<Gae>(c.Params());
  for (float a : c.advantage) EXPECT_TRUE(IsFinite(a));
}

TEST(Gae, HasTheSameBitsForEveryTeam) {
  Case c = RandomCase(9, 150);
  const Gae::Params p = c.Params();
  ExpectSameBits<Gae>(p, {c.advantage, c.ret});
}

}  // namespace
}  // namespace millrace
