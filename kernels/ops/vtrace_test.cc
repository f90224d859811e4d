#include "kernels/ops/vtrace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/ops/philox.h"
#include "kernels/testing/golden.h"
#include "kernels/testing/same_bits.h"

namespace millrace {
namespace {

struct Case {
  int T, N;
  std::vector<float> log_rho, reward, value, next_value;
  std::vector<uint8_t> terminated, truncated;
  float gamma = 1.0f, lambda = 1.0f, rho_bar = 1.0f, c_bar = 1.0f, pg_rho_bar = 1.0f;
  std::vector<float> vs = {}, pg = {};

  Vtrace::Params Params() {
    vs.assign(reward.size(), -7.0f);
    pg.assign(reward.size(), -7.0f);
    return {T,
            N,
            log_rho.data(),
            reward.data(),
            value.data(),
            next_value.data(),
            terminated.data(),
            truncated.data(),
            gamma,
            lambda,
            rho_bar,
            c_bar,
            pg_rho_bar,
            vs.data(),
            pg.data()};
  }
};

Case Golden5() {
  const auto& g = Golden("vtrace_5step");
  Case c{5,
         1,
         Flat<float>(g.at("log_rhos")),
         Flat<float>(g.at("rewards")),
         Flat<float>(g.at("values")),
         {},
         std::vector<uint8_t>(5),
         std::vector<uint8_t>(5)};
  c.next_value.assign(c.value.begin() + 1, c.value.end());
  c.next_value.push_back(g.at("bootstrap_value").get<float>());
  c.gamma = g.at("gamma").get<float>();
  return c;
}

void ExpectGolden(Case& c, const char* variant) {
  const auto& v = Golden("vtrace_5step").at(variant);
  RunSerial<Vtrace>(c.Params());
  ExpectCloseF32(c.vs, Flat<double>(v.at("vs")));
  ExpectCloseF32(c.pg, Flat<double>(v.at("pg_advantages")));
}

TEST(Vtrace, FollowsTheGoldenSteps) {
  Case plain = Golden5();
  ExpectGolden(plain, "plain");

  Case wide = Golden5();
  const auto& v = Golden("vtrace_5step").at("lambda095_rho2_pg15");
  wide.lambda = v.at("lambda").get<float>();
  wide.rho_bar = v.at("rho_bar").get<float>();
  wide.c_bar = v.at("c_bar").get<float>();
  wide.pg_rho_bar = v.at("pg_rho_bar").get<float>();
  ExpectGolden(wide, "lambda095_rho2_pg15");

  Case on_policy = Golden5();
  on_policy.log_rho.assign(5, 0.0f);
  ExpectGolden(on_policy, "on_policy");
  ExpectCloseF32(on_policy.vs,
                 Flat<double>(Golden("vtrace_5step").at("on_policy").at("equals_gae_lambda1_returns")));
}

TEST(Vtrace, KeepsTheEndsOfEpisodesApart) {
  const auto& v = Golden("vtrace_5step").at("truncated_at_2");
  Case truncated = Golden5();
  truncated.truncated[2] = 1;
  truncated.next_value = Flat<float>(v.at("next_values"));
  ExpectGolden(truncated, "truncated_at_2");
  EXPECT_GT(std::abs(truncated.pg[2] - v.at("wrong_pg_advantage_at_2_if_next_episode_leaks").get<double>()),
            0.05);

  Case terminated = Golden5();
  terminated.terminated[2] = 1;
  terminated.next_value[2] = 77.0f;
  ExpectGolden(terminated, "terminated_at_2");
}

TEST(Vtrace, LeaksNothingOverATruncation) {
  const auto& v = Golden("vtrace_5step").at("truncation_leak_repro");
  Case c{4,
         1,
         std::vector<float>(4),
         Flat<float>(v.at("rewards")),
         Flat<float>(v.at("values")),
         Flat<float>(v.at("next_values")),
         std::vector<uint8_t>(4),
         Flat<uint8_t>(v.at("truncated"))};
  RunSerial<Vtrace>(c.Params());
  ExpectCloseF32(c.pg, Flat<double>(v.at("pg_advantages")));
  EXPECT_GT(std::abs(c.pg[1] - v.at("wrong_pg_advantage_at_1").get<double>()), 1.0);
}

Case RandomCase(int T, int N) {
  const size_t n = static_cast<size_t>(T) * N;
  Case c{T,
         N,
         std::vector<float>(n),
         std::vector<float>(n),
         std::vector<float>(n),
         std::vector<float>(n),
         std::vector<uint8_t>(n),
         std::vector<uint8_t>(n)};
  c.gamma = 0.97f;
  c.lambda = 0.9f;
  c.rho_bar = 1.5f;
  c.pg_rho_bar = 1.25f;
  for (size_t i = 0; i < n; ++i) {
    const Philox4 w = PhiloxAt(4, Purpose::kTest, 0, i);
    const Philox4 x = PhiloxAt(4, Purpose::kTest, 1, i);
    c.reward[i] = UniformFloat(w.v[0]) - 0.5f;
    c.value[i] = UniformFloat(w.v[1]) - 0.5f;
    c.next_value[i] = UniformFloat(w.v[2]) - 0.5f;
    c.log_rho[i] = 2.0f * UniformFloat(x.v[0]) - 1.0f;
    c.terminated[i] = (w.v[3] & 7u) == 0;
    c.truncated[i] = (w.v[3] & 56u) == 0;
  }
  return c;
}

// The definition as a sum over the rest of the episode, instead of a recursion.
TEST(Vtrace, MatchesTheSumInDouble) {
  Case c = RandomCase(8, 131);
  // Inside an episode next_value is the value that follows, as it is in a segment.
  for (int t = 0; t + 1 < c.T; ++t) {
    for (int n = 0; n < c.N; ++n) {
      const size_t i = static_cast<size_t>(t) * c.N + n;
      if (!c.terminated[i] && !c.truncated[i]) c.next_value[i] = c.value[i + c.N];
    }
  }
  RunSerial<Vtrace>(c.Params());
  const auto vs_of = [&](int t0, int n) {
    double vs = c.value[static_cast<size_t>(t0) * c.N + n], weight = 1.0;
    for (int t = t0; t < c.T; ++t) {
      const size_t i = static_cast<size_t>(t) * c.N + n;
      const double rho = std::exp(static_cast<double>(c.log_rho[i]));
      const double next = c.terminated[i] ? 0.0 : c.next_value[i];
      vs += weight * std::min<double>(c.rho_bar, rho) * (c.reward[i] + c.gamma * next - c.value[i]);
      if (c.terminated[i] || c.truncated[i]) break;
      weight *= static_cast<double>(c.gamma) * c.lambda * std::min<double>(c.c_bar, rho);
    }
    return vs;
  };
  for (int t = 0; t < c.T; ++t) {
    for (int n = 0; n < c.N; ++n) {
      const size_t i = static_cast<size_t>(t) * c.N + n;
      EXPECT_NEAR(c.vs[i], vs_of(t, n), 1e-5);
      const bool ended = c.terminated[i] || c.truncated[i];
      const double next = c.terminated[i] ? 0.0 : (ended || t + 1 == c.T ? c.next_value[i] : vs_of(t + 1, n));
      const double rho = std::exp(static_cast<double>(c.log_rho[i]));
      EXPECT_NEAR(c.pg[i], std::min<double>(c.pg_rho_bar, rho) * (c.reward[i] + c.gamma * next - c.value[i]),
                  1e-5);
    }
  }
}

TEST(Vtrace, HasTheSameBitsForEveryTeam) {
  Case c = RandomCase(8, 131);
  const Vtrace::Params p = c.Params();
  ExpectSameBits<Vtrace>(p, {c.vs, c.pg});
}

}  // namespace
}  // namespace millrace
