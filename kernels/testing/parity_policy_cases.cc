#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/ops/all_ops.h"
#include "kernels/testing/parity_cases.h"

namespace millrace {
namespace {

using Use = Image::Use;

size_t Count(int a, int b) {
  return static_cast<size_t>(a) * static_cast<size_t>(b);
}

// Heads of logits, and which of them are masked at random; the first action of each head always stays.
struct Heads {
  std::vector<int32_t> nvec;
  bool masked;

  int heads() const { return static_cast<int>(nvec.size()); }
  int width() const {
    int n = 0;
    for (int32_t v : nvec) n += v;
    return n;
  }
  std::string name() const {
    return absl::StrCat(" heads ", absl::StrJoin(nvec, ","), masked ? " masked" : "");
  }

  Slot<uint8_t> Mask(Image& m, int rows) const {
    if (!masked) return {};
    const auto mask = m.Flags("mask", Count(rows, width()), 0.6);
    uint8_t* flags = m.Host(mask);
    for (int r = 0; r < rows; ++r) {
      for (int h = 0, at = 0; h < heads(); at += nvec[static_cast<size_t>(h)], ++h) {
        flags[Count(r, width()) + static_cast<size_t>(at)] = 1;
      }
    }
    return mask;
  }
};

ParityCase CategoricalCase(int rows, const Heads& heads, bool deterministic) {
  Image m(11);
  const int ld = heads.width() + 1, count = heads.heads();
  const auto logits = m.Random("logits", Count(rows, ld), -4, 4);
  const auto mask = heads.Mask(m, rows);
  const auto nvec = m.Values("nvec", heads.nvec);
  const auto action = m.Output<int32_t>("action", Count(rows, count));
  const auto log_prob = m.Output<float>("log_prob", static_cast<size_t>(rows));
  const auto entropy = m.Output<float>("entropy", static_cast<size_t>(rows));
  return OpCase<SampleCategorical>(
      absl::StrCat("SampleCategorical rows ", rows, heads.name(), deterministic ? " deterministic" : ""),
      std::move(m), [=](const ImageView& at) {
        SampleCategorical::Params p{};
        p.rows = rows, p.logits = at(logits), p.ld = ld, p.mask = at(mask);
        p.heads = count, p.nvec = at(nvec);
        p.seed = 77, p.purpose = Purpose::kTest, p.first_row = 1000, p.step = (uint64_t{3} << 32) + 5;
        p.deterministic = deterministic;
        p.action = at(action), p.log_prob = at(log_prob), p.entropy = at(entropy);
        return p;
      });
}

ParityCase GaussianCase(int rows, int dims, bool deterministic) {
  Image m(12);
  const int ld = dims + 1;
  const auto mean = m.Random("mean", Count(rows, ld), -2, 2);
  const auto log_std = m.Random("log_std", static_cast<size_t>(dims), -25, 4);  // beyond both clamps
  const auto action = m.Output<float>("action", Count(rows, dims));
  const auto log_prob = m.Output<float>("log_prob", static_cast<size_t>(rows));
  const auto entropy = m.Output<float>("entropy", static_cast<size_t>(rows));
  return OpCase<SampleGaussian>(
      absl::StrCat("SampleGaussian rows ", rows, " dims ", dims, deterministic ? " deterministic" : ""),
      std::move(m), [=](const ImageView& at) {
        SampleGaussian::Params p{};
        p.rows = rows, p.mean = at(mean), p.ld = ld, p.log_std = at(log_std), p.dims = dims;
        p.seed = 77, p.purpose = Purpose::kTest, p.first_row = 3, p.step = 9, p.deterministic = deterministic;
        p.action = at(action), p.log_prob = at(log_prob), p.entropy = at(entropy);
        return p;
      });
}

ParityCase DiscreteLogProbCase(int rows, const Heads& heads) {
  Image m(15);
  const int ld = heads.width() + 1, count = heads.heads();
  const auto logits = m.Random("logits", Count(rows, ld), -4, 4);
  const auto mask = heads.Mask(m, rows);
  const auto nvec = m.Values("nvec", heads.nvec);
  const auto action = m.Ints("action", Count(rows, count), 0, heads.nvec.front());
  const auto log_prob = m.Output<float>("log_prob", static_cast<size_t>(rows));
  return OpCase<ActionLogProb>(absl::StrCat("ActionLogProb rows ", rows, heads.name()), std::move(m),
                               [=](const ImageView& at) {
                                 ActionLogProb::Params p{};
                                 p.rows = rows, p.logits = at(logits), p.ld = ld, p.mask = at(mask);
                                 p.heads = count, p.nvec = at(nvec), p.action = at(action);
                                 p.log_prob = at(log_prob);
                                 return p;
                               });
}

ParityCase BoxLogProbCase(int rows, int dims) {
  Image m(16);
  const int ld = dims + 1;
  const auto mean = m.Random("mean", Count(rows, ld), -1, 1);
  const auto log_std = m.Random("log_std", static_cast<size_t>(dims), -25, 4);  // beyond both clamps
  const auto action = m.Random("action", Count(rows, dims), -2, 2);
  const auto log_prob = m.Output<float>("log_prob", static_cast<size_t>(rows));
  return OpCase<ActionLogProb>(absl::StrCat("ActionLogProb rows ", rows, " Box ", dims), std::move(m),
                               [=](const ImageView& at) {
                                 ActionLogProb::Params p{};
                                 p.rows = rows, p.logits = at(mean), p.ld = ld, p.heads = dims;
                                 p.log_std = at(log_std), p.action = at(action), p.log_prob = at(log_prob);
                                 return p;
                               });
}

// What the loss needs besides the policy's own tensors.
struct LossSlots {
  LossSlots(Image& m, int rows, int tiles, int components, bool box) {
    const size_t n = static_cast<size_t>(rows);
    old_log_prob = m.Random("old_log_prob", n, -3, -0.5f);
    advantage = m.Random("advantage", n, -2, 2);
    old_value = m.Random("old_value", n, -1, 1);
    ret = m.Random("ret", n, -2, 2);
    value = m.Random("value", 2 * n, -1, 1);
    coefs = m.Values("coefs", std::vector<PpoCoefs>{
                                  {0.2f, 0.3f, 0.01f, 0.5f, 1.0f / static_cast<float>(rows), 0.1f, 0.8f}});
    dvalue = m.Output<float>("dvalue", 2 * n);
    if (box) dlog_std = m.Random("dlog_std", Count(tiles, components), -1, 1, Use::kBoth);
    stats = m.Values("stats", std::vector<double>(kStats * static_cast<size_t>(tiles), 0.25), Use::kBoth);
  }

  void Fill(const ImageView& at, PpoLoss::Params* p) const {
    p->old_log_prob = at(old_log_prob), p->advantage = at(advantage);
    p->old_value = at(old_value), p->ret = at(ret);
    p->value = at(value), p->value_ld = 2, p->coefs = at(coefs);
    p->dvalue = at(dvalue), p->dlog_std = at(dlog_std);
    p->stats = reinterpret_cast<PpoStats*>(at(stats));
  }

  static constexpr size_t kStats = sizeof(PpoStats) / sizeof(double);
  Slot<float> old_log_prob, advantage, old_value, ret, value, dvalue, dlog_std;
  Slot<PpoCoefs> coefs;
  Slot<double> stats;
};

ParityCase DiscreteLossCase(int rows, const Heads& heads, int stride, bool poison) {
  Image m(13);
  const int ld = heads.width() + 2, count = heads.heads();
  const auto logits = m.Random("logits", Count(rows, ld), -4, 4);
  if (poison) m.Host(logits)[static_cast<size_t>(ld)] = std::nanf("");
  const auto mask = heads.Mask(m, rows);
  const auto nvec = m.Values("nvec", heads.nvec);
  const auto action = m.Ints("action", Count(rows, count), 0, heads.nvec.front());
  const auto dlogits = m.Output<float>("dlogits", Count(rows, ld));
  const LossSlots rest(m, rows, stride == 0 ? 1 : (rows + PpoLoss::kRows - 1) / PpoLoss::kRows, count, false);
  return OpCase<PpoLoss>(
      absl::StrCat("PpoLoss rows ", rows, heads.name(), " stride ", stride, poison ? " with a NaN" : ""),
      std::move(m), [=](const ImageView& at) {
        PpoLoss::Params p{};
        p.rows = rows, p.logits = at(logits), p.ld = ld, p.mask = at(mask);
        p.heads = count, p.nvec = at(nvec), p.action = at(action), p.dlogits = at(dlogits);
        p.tile_stride = stride;
        rest.Fill(at, &p);
        return p;
      });
}

ParityCase BoxLossCase(int rows, int dims, int stride) {
  Image m(14);
  const int ld = dims + 2;
  const auto mean = m.Random("mean", Count(rows, ld), -1, 1);
  const auto log_std = m.Random("log_std", static_cast<size_t>(dims), -1, 0.5f);
  const auto action = m.Random("action", Count(rows, dims), -2, 2);
  const auto dmean = m.Output<float>("dmean", Count(rows, ld));
  const LossSlots rest(m, rows, stride == 0 ? 1 : (rows + PpoLoss::kRows - 1) / PpoLoss::kRows, dims, true);
  return OpCase<PpoLoss>(absl::StrCat("PpoLoss rows ", rows, " Box ", dims, " stride ", stride), std::move(m),
                         [=](const ImageView& at) {
                           PpoLoss::Params p{};
                           p.rows = rows, p.logits = at(mean), p.ld = ld, p.heads = dims;
                           p.log_std = at(log_std), p.action = at(action), p.dlogits = at(dmean);
                           p.tile_stride = stride;
                           rest.Fill(at, &p);
                           return p;
                         });
}

}  // namespace

void AddPolicyCases(std::vector<ParityCase>* cases, int rows) {
  const Heads one{{3}, false}, several{{3, 5, 4, 6, 3}, true}, wide{{40, 3}, true};
  for (const Heads& heads : {one, several, wide}) {
    cases->push_back(CategoricalCase(rows, heads, false));
    cases->push_back(DiscreteLogProbCase(rows, heads));
    cases->push_back(DiscreteLossCase(rows, heads, 1, false));
    cases->push_back(DiscreteLossCase(rows, heads, 0, false));
  }
  cases->push_back(CategoricalCase(rows, several, true));
  cases->push_back(DiscreteLossCase(rows, one, 1, true));
  cases->push_back(GaussianCase(rows, 6, false));
  cases->push_back(GaussianCase(rows, 6, true));
  cases->push_back(BoxLogProbCase(rows, 6));
  cases->push_back(BoxLossCase(rows, 6, 1));
  cases->push_back(BoxLossCase(rows, 6, 0));
}

}  // namespace millrace
