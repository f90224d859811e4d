#include "kernels/ops/ppo_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "kernels/testing/golden.h"
#include "kernels/testing/same_bits.h"

namespace millrace {
namespace {

// ---- the row's loss against golden

TEST(PpoRow, FollowsTheGoldenMinibatch) {
  const auto& g = Golden("ppo_minibatch");
  const auto adv = Flat<float>(g.at("advantage_norm_unbiased"));
  const double clip = g.at("clip").get<double>();
  double policy = 0, k1 = 0, k3 = 0, clipped = 0, half_mse = 0, half_clipped = 0;
  std::vector<float> dlog_prob;
  for (size_t i = 0; i < 6; ++i) {
    const auto at = [&](const char* name) { return g.at(name)[i].get<float>(); };
    const auto row = [&](float value_clip) {
      return PpoRowLoss(at("new_log_prob"), at("old_log_prob"), adv[i], at("new_values"), at("old_values"),
                        at("returns"), static_cast<float>(clip), value_clip);
    };
    const PpoRow free = row(0.0f);
    policy += free.policy_loss / 6;
    k1 += free.kl_k1 / 6;
    k3 += free.kl_k3 / 6;
    clipped += free.clipped / 6;
    half_mse += free.value_loss / 6;
    half_clipped += row(static_cast<float>(clip)).value_loss / 6;
    dlog_prob.push_back(free.dpolicy_dlog_prob / 6);
  }
  EXPECT_TRUE(CloseF32(policy, g.at("policy_loss").get<double>()));
  EXPECT_GT(std::abs(policy - g.at("policy_loss_population_std").get<double>()), 1e-3);
  EXPECT_GT(std::abs(policy - g.at("policy_loss_without_normalisation").get<double>()), 1e-3);
  ExpectCloseF32(dlog_prob, Flat<double>(g.at("dpolicy_loss_dlogp")));
  EXPECT_TRUE(CloseF32(k1, g.at("approx_kl_k1").get<double>()));
  EXPECT_TRUE(CloseF32(k3, g.at("approx_kl_k3").get<double>()));
  EXPECT_TRUE(CloseF32(clipped, g.at("clip_fraction").get<double>()));
  EXPECT_TRUE(CloseF32(half_mse, g.at("value_loss_half_mse").get<double>()));
  EXPECT_TRUE(CloseF32(half_clipped, g.at("value_loss_clipped_half_max_mean").get<double>()));
  EXPECT_GT(std::abs(half_clipped - 0.5 * g.at("value_loss_mse_of_clipped_prediction_only").get<double>()),
            1e-3);
  double entropy = 0;
  for (double e : Flat<double>(g.at("entropy"))) entropy += e / 6;
  const double vf = g.at("vf_coef").get<double>(), ent = g.at("ent_coef").get<double>();
  EXPECT_TRUE(CloseF32(policy + vf * half_clipped - ent * entropy,
                       g.at("total_loss_half_clipped_value").get<double>()));
}

TEST(PpoRow, FirstMinibatchHasRatioOne) {
  const PpoRow row = PpoRowLoss(-1.25f, -1.25f, 0.5f, 1.0f, 1.0f, 2.0f, 0.2f, 0.2f);
  EXPECT_EQ(row.kl_k1, 0.0f);
  EXPECT_EQ(row.kl_k3, 0.0f);
  EXPECT_EQ(row.clipped, 0.0f);
  EXPECT_EQ(row.policy_loss, -0.5f);
  EXPECT_EQ(row.dpolicy_dlog_prob, -0.5f);
}

// ---- the op against the same loss in double, and its gradients against finite differences of that

struct Case {
  int rows = 0, ld = 0, value_ld = 2;
  std::vector<int32_t> nvec;  // empty: a Box of `dims`
  int dims = 0;
  std::vector<float> logits, log_std, box_action, old_log_prob, advantage, old_value, ret, value;
  std::vector<int32_t> action;
  std::vector<uint8_t> mask;
  PpoCoefs coefs{0.2f, 0.0f, 0.01f, 0.5f, 0.0f, 0.1f, 1.7f};
  std::vector<float> dlogits, dvalue, dlog_std;
  PpoStats stats;

  bool box() const { return nvec.empty(); }
  int width() const {
    int n = dims;
    for (int v : nvec) n += v;
    return n;
  }
  PpoLoss::Params Params() {
    dlogits.assign(logits.size(), 5.0f);
    dvalue.assign(value.size(), 5.0f);
    dlog_std.assign(log_std.size(), 0.0f);
    stats = PpoStats{};
    return {.rows = rows,
            .logits = logits.data(),
            .ld = ld,
            .mask = mask.empty() ? nullptr : mask.data(),
            .heads = box() ? dims : static_cast<int>(nvec.size()),
            .nvec = nvec.data(),
            .log_std = box() ? log_std.data() : nullptr,
            .action = box() ? static_cast<const void*>(box_action.data()) : action.data(),
            .old_log_prob = old_log_prob.data(),
            .advantage = advantage.data(),
            .old_value = old_value.data(),
            .ret = ret.data(),
            .value = value.data(),
            .value_ld = value_ld,
            .coefs = &coefs,
            .dlogits = dlogits.data(),
            .dvalue = dvalue.data(),
            .dlog_std = dlog_std.data(),
            .stats = &stats};
  }
};

double At(const std::vector<float>& v, int i) {
  return v[static_cast<size_t>(i)];
}

// One row's log-prob and entropy in double.
void Policy(const Case& c, int r, double* log_prob, double* entropy) {
  *log_prob = *entropy = 0.0;
  if (c.box()) {
    for (int d = 0; d < c.dims; ++d) {
      const double s = At(c.log_std, d);
      const double z = (At(c.box_action, r * c.dims + d) - At(c.logits, r * c.ld + d)) / std::exp(s);
      *log_prob += -0.5 * z * z - s - 0.5 * std::log(2 * std::acos(-1.0));
      *entropy += s + 0.5 + 0.5 * std::log(2 * std::acos(-1.0));
    }
    return;
  }
  const int heads = static_cast<int>(c.nvec.size()), width = c.width();
  for (int h = 0, offset = 0; h < heads; offset += c.nvec[static_cast<size_t>(h)], ++h) {
    const int n = c.nvec[static_cast<size_t>(h)];
    const auto allowed = [&](int l) {
      return c.mask.empty() || c.mask[static_cast<size_t>(r * width + offset + l)] != 0;
    };
    double sum = 0.0;
    for (int l = 0; l < n; ++l) sum += allowed(l) ? std::exp(At(c.logits, r * c.ld + offset + l)) : 0.0;
    for (int l = 0; l < n; ++l) {
      if (!allowed(l)) continue;
      const double log_p = At(c.logits, r * c.ld + offset + l) - std::log(sum);
      *entropy -= std::exp(log_p) * log_p;
      if (l == c.action[static_cast<size_t>(r * heads + h)]) *log_prob += log_p;
    }
  }
}

struct Reference {
  double policy = 0, value = 0, entropy = 0, k1 = 0, k3 = 0, clipped = 0;
  double Loss(const Case& c) const {
    return (policy + static_cast<double>(c.coefs.value_coef) * value -
            static_cast<double>(c.coefs.entropy_coef) * entropy) *
           static_cast<double>(c.coefs.inv_count);
  }
};

Reference InDouble(const Case& c) {
  Reference out;
  for (int r = 0; r < c.rows; ++r) {
    double log_prob, entropy;
    Policy(c, r, &log_prob, &entropy);
    const double adv = (At(c.advantage, r) - static_cast<double>(c.coefs.adv_shift)) *
                       static_cast<double>(c.coefs.adv_scale);
    const double log_ratio = log_prob - At(c.old_log_prob, r), ratio = std::exp(log_ratio);
    const double clip = c.coefs.clip_range;
    out.policy -= std::min(ratio * adv, std::clamp(ratio, 1 - clip, 1 + clip) * adv);
    out.k1 -= log_ratio;
    out.k3 += ratio - 1 - log_ratio;
    out.clipped += std::abs(ratio - 1) > clip;
    out.entropy += entropy;
    const double v = At(c.value, r * c.value_ld), old = At(c.old_value, r), ret = At(c.ret, r);
    double squared = (v - ret) * (v - ret);
    if (c.coefs.value_clip > 0) {
      const double bound = c.coefs.value_clip, near = old + std::clamp(v - old, -bound, bound);
      squared = std::max(squared, (near - ret) * (near - ret));
    }
    out.value += 0.5 * squared;
  }
  return out;
}

Case RandomCase(int rows, std::vector<int32_t> nvec, int dims, bool masked, float value_clip) {
  Case c;
  c.rows = rows;
  c.nvec = std::move(nvec);
  c.dims = dims;
  c.ld = c.width() + 3;
  c.coefs.inv_count = 1.0f / static_cast<float>(rows);
  c.coefs.value_clip = value_clip;
  uint64_t counter = 0;
  const auto uniform = [&](float lo, float hi) {
    return lo + (hi - lo) * UniformFloat(PhiloxAt(8, Purpose::kTest, 0, counter++).v[0]);
  };
  const size_t n = static_cast<size_t>(rows);
  c.logits.resize(n * static_cast<size_t>(c.ld));
  for (float& x : c.logits) x = uniform(-2.0f, 2.0f);
  for (int d = 0; d < dims; ++d) c.log_std.push_back(uniform(-1.0f, 0.5f));
  for (size_t i = 0; i < n * static_cast<size_t>(dims); ++i) c.box_action.push_back(uniform(-2.0f, 2.0f));
  for (int r = 0; r < rows; ++r) {
    for (int32_t v : c.nvec) {
      const int a = std::min(v - 1, static_cast<int>(uniform(0.0f, static_cast<float>(v))));
      c.action.push_back(a);
      for (int l = 0; masked && l < v; ++l) c.mask.push_back(l == a || uniform(0.0f, 1.0f) < 0.6f);
    }
  }
  c.value.resize(n * static_cast<size_t>(c.value_ld));
  for (float& x : c.value) x = uniform(-1.0f, 1.0f);
  for (int r = 0; r < rows; ++r) {
    double log_prob, entropy;
    Policy(c, r, &log_prob, &entropy);
    c.old_log_prob.push_back(static_cast<float>(log_prob) + uniform(-0.4f, 0.4f));
    c.advantage.push_back(uniform(-1.0f, 1.0f));
    c.old_value.push_back(At(c.value, r * c.value_ld) + uniform(-0.4f, 0.4f));
    c.ret.push_back(uniform(-1.0f, 1.0f));
  }
  return c;
}

// d loss / d x by central differences in double; x must lie in c. The step is short, for a row that crosses
// the clip's kink inside it would spoil the difference.
double Slope(Case& c, float* x) {
  const float kept = *x, h = 1e-4f;
  *x = kept + h;
  const double high = *x, up = InDouble(c).Loss(c);
  *x = kept - h;
  const double low = *x, down = InDouble(c).Loss(c);
  *x = kept;
  return (up - down) / (high - low);
}

void ExpectGradient(Case& c, std::vector<float>& x, const std::vector<float>& gradient,
                    const std::function<bool(size_t)>& used) {
  for (size_t i = 0; i < x.size(); ++i) {
    if (!used(i)) continue;
    const double want = Slope(c, &x[i]);
    EXPECT_NEAR(gradient[i], want, 1e-6 + 1e-3 * std::abs(want)) << "at " << i;
  }
}

void Check(Case c) {
  const PpoLoss::Params p = c.Params();
  ExpectSameBits<PpoLoss>(p, {c.dlogits, c.dvalue, c.dlog_std, {&c.stats, 1}});
  const Reference want = InDouble(c);
  const double tolerance = 2e-5 * c.rows;
  EXPECT_NEAR(c.stats.policy_loss, want.policy, tolerance);
  EXPECT_NEAR(c.stats.value_loss, want.value, tolerance);
  EXPECT_NEAR(c.stats.entropy, want.entropy, tolerance * c.width());
  EXPECT_NEAR(c.stats.kl_k1, want.k1, tolerance);
  EXPECT_NEAR(c.stats.kl_k3, want.k3, tolerance);
  EXPECT_EQ(c.stats.clip_fraction, want.clipped);
  EXPECT_GT(c.stats.clip_fraction, 0.0);
  EXPECT_EQ(c.stats.nonfinite, 0.0);
  EXPECT_EQ(c.stats.count, c.rows);
  const auto width = static_cast<size_t>(c.width()), ld = static_cast<size_t>(c.ld);
  ExpectGradient(c, c.logits, c.dlogits, [&](size_t i) { return i % ld < width && i / ld % 7 == 0; });
  ExpectGradient(c, c.value, c.dvalue, [&](size_t i) { return i % static_cast<size_t>(c.value_ld) == 0; });
  ExpectGradient(c, c.log_std, c.dlog_std, [](size_t) { return true; });
  for (size_t i = 0; i < c.dlogits.size(); ++i) {
    if (i % ld >= width) {
      ASSERT_EQ(c.dlogits[i], 5.0f) << "written beyond the logits";
    } else if (!c.mask.empty() && c.mask[i / ld * width + i % ld] == 0) {
      ASSERT_EQ(c.dlogits[i], 0.0f) << "a masked logit's gradient";
    }
  }
}

TEST(PpoLoss, Discrete) {
  Check(RandomCase(200, {3}, 0, false, 0.0f));
  Check(RandomCase(131, {2}, 0, false, 0.2f));
}
TEST(PpoLoss, Masked) {
  Check(RandomCase(150, {6}, 0, true, 0.0f));
}
TEST(PpoLoss, MultiDiscrete) {
  Check(RandomCase(140, {3, 2, 5}, 0, false, 0.0f));
  Check(RandomCase(140, {3, 2, 5}, 0, true, 0.1f));
}
TEST(PpoLoss, MoreLogitsThanTheTurnedPathHolds) {
  Check(RandomCase(40, {70}, 0, false, 0.0f));
  Check(RandomCase(40, {20, 33, 4}, 0, true, 0.0f));
}
TEST(PpoLoss, Box) {
  Check(RandomCase(150, {}, 1, false, 0.0f));
  Check(RandomCase(130, {}, 7, false, 0.2f));
}

// Both paths are the same loss: a row of 32 logits is turned, one of 33 (the last masked) is not.
TEST(PpoLoss, PathsAgree) {
  Case narrow = RandomCase(64, {32}, 0, true, 0.0f);
  Case wide = narrow;
  wide.nvec = {33};
  wide.mask.clear();
  for (size_t r = 0; r < 64; ++r) {
    wide.mask.insert(wide.mask.end(), narrow.mask.begin() + static_cast<long>(32 * r),
                     narrow.mask.begin() + static_cast<long>(32 * (r + 1)));
    wide.mask.push_back(0);
  }
  RunSerial<PpoLoss>(narrow.Params());
  RunSerial<PpoLoss>(wide.Params());
  EXPECT_NEAR(narrow.stats.policy_loss, wide.stats.policy_loss, 1e-4);
  EXPECT_NEAR(narrow.stats.entropy, wide.stats.entropy, 1e-4);
  for (size_t r = 0; r < 64; ++r) {
    const size_t at = r * static_cast<size_t>(narrow.ld);
    for (size_t l = 0; l < 32; ++l) EXPECT_NEAR(narrow.dlogits[at + l], wide.dlogits[at + l], 1e-7);
    EXPECT_EQ(wide.dlogits[at + 32], 0.0f);
  }
}

TEST(PpoLoss, GoldenMaskedGradient) {
  const auto& g = Golden("categorical_and_masks").at("masked");
  Case c = RandomCase(1, {4}, 0, false, 0.0f);
  c.logits = Flat<float>(Golden("categorical_and_masks").at("logits"));
  c.ld = 4;
  c.mask = Flat<uint8_t>(g.at("mask"));
  c.action = {2};
  c.old_log_prob = {g.at("log_probs")[2].get<float>()};
  c.advantage = {-1.0f};
  c.coefs = {0.2f, 0.0f, 0.0f, 0.5f, 1.0f, 0.0f, 1.0f};
  RunSerial<PpoLoss>(c.Params());
  ExpectCloseF32(c.dlogits, Flat<double>(g.at("grad_logp_action2_wrt_logits")));
  EXPECT_EQ(c.dlogits[1], 0.0f);
  EXPECT_EQ(c.dlogits[3], 0.0f);

  const auto& single = Golden("categorical_and_masks").at("single_valid_action");
  Case one = RandomCase(1, {3}, 0, false, 0.0f);
  one.logits = Flat<float>(single.at("logits"));
  one.ld = 3;
  one.mask = Flat<uint8_t>(single.at("mask"));
  one.action = {1};
  RunSerial<PpoLoss>(one.Params());
  EXPECT_EQ(one.stats.entropy, 0.0);
  for (float d : one.dlogits) EXPECT_EQ(d, 0.0f);
}

// Every input that is not finite is counted, in the row where it stands, by each path.
TEST(PpoLoss, CountsWhatIsNotFinite) {
  const float nan = std::nanf(""), inf = INFINITY;
  const auto nonfinite = [](Case c, const std::function<void(Case&)>& spoil) {
    spoil(c);
    RunSerial<PpoLoss>(c.Params());
    return c.stats.nonfinite;
  };
  for (const Case& c : {RandomCase(70, {3}, 0, false, 0.1f), RandomCase(70, {40}, 0, false, 0.0f),
                        RandomCase(70, {}, 2, false, 0.1f)}) {
    for (float bad : {nan, inf, -inf}) {
      EXPECT_EQ(nonfinite(c, [&](Case& x) { x.logits[static_cast<size_t>(5 * x.ld + 1)] = bad; }), 1.0)
          << bad;
      EXPECT_EQ(nonfinite(c, [&](Case& x) { x.value[static_cast<size_t>(6 * x.value_ld)] = bad; }), 1.0);
      EXPECT_EQ(nonfinite(c, [&](Case& x) { x.advantage[7] = bad; }), 1.0);
      EXPECT_EQ(nonfinite(c, [&](Case& x) { x.ret[8] = bad; }), 1.0);
      EXPECT_EQ(nonfinite(c, [&](Case& x) { x.old_value[8] = bad; }), 1.0);
      EXPECT_EQ(nonfinite(c, [&](Case& x) { x.old_log_prob[9] = bad; }), 1.0);
    }
  }
}

// Tiles that run at once have a place each; the sums are the same.
TEST(PpoLoss, TilesMayHaveTheirOwnPlaces) {
  Case c = RandomCase(300, {}, 3, false, 0.0f);
  PpoLoss::Params p = c.Params();
  RunSerial<PpoLoss>(p);
  const PpoStats together = c.stats;
  const std::vector<float> dlog_std = c.dlog_std;
  std::vector<PpoStats> stats(static_cast<size_t>(PpoLoss::Tiles(p)));
  std::vector<float> parts(stats.size() * 3);
  p.stats = stats.data();
  p.dlog_std = parts.data();
  p.tile_stride = 1;
  RunSerial<PpoLoss>(p);
  PpoStats sum;
  for (const PpoStats& s : stats) sum.Add(s);
  EXPECT_EQ(sum.policy_loss, together.policy_loss);
  EXPECT_EQ(sum.count, together.count);
  for (size_t d = 0; d < 3; ++d) EXPECT_EQ(parts[d] + parts[3 + d] + parts[6 + d], dlog_std[d]);
}

}  // namespace
}  // namespace millrace
