#include "kernels/core/math.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/core/activation.h"

namespace millrace {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

// The distance between the result and the exact value, in units of the last place of a float32 near the exact
// value.
double Ulps(float got, double want) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : kInf;
  const float nearest = static_cast<float>(want);
  if (std::isinf(nearest) || nearest == 0.0f) return got == nearest ? 0 : kInf;
  const int exponent = std::max(std::ilogb(want), -126);
  return std::fabs(static_cast<double>(got) - want) / std::ldexp(1.0, exponent - 23);
}

// Calls f with blocks of floats that step through all bit patterns (a prime stride), NaNs and infinities
// among them.
template <class F>
void ForBitPatterns(uint32_t stride, F&& f) {
  std::vector<float> block;
  uint64_t bits = 0;
  while (bits <= 0xffffffffu) {
    block.clear();
    for (int i = 0; i < 4096 && bits <= 0xffffffffu; ++i, bits += stride) {
      block.push_back(FloatOf(static_cast<uint32_t>(bits)));
    }
    f(block);
  }
}

struct Worst {
  double ulps = 0;
  float at = 0;
};

// `fast` runs over whole blocks, as the compiler vectorizes it.
template <class Fast, class Exact>
Worst FindWorst(Fast fast, Exact exact) {
  Worst worst;
  std::vector<float> y(4096);
  ForBitPatterns(1009, [&](const std::vector<float>& x) {
    for (size_t i = 0; i < x.size(); ++i) y[i] = fast(x[i]);
    for (size_t i = 0; i < x.size(); ++i) {
      const double ulps = Ulps(y[i], exact(static_cast<double>(x[i])));
      if (!(ulps <= worst.ulps)) worst = {ulps, x[i]};
    }
  });
  std::printf("    worst %.3f ulp at %.9g\n", worst.ulps, static_cast<double>(worst.at));
  return worst;
}

TEST(Math, Exp) {
  EXPECT_LT(FindWorst([](float x) { return Exp(x); }, [](double x) { return std::exp(x); }).ulps, 1.1);
  EXPECT_EQ(Exp(0.0f), 1.0f);
  EXPECT_EQ(Exp(-0.0f), 1.0f);
  EXPECT_EQ(Exp(-kInf), 0.0f);
  EXPECT_EQ(Exp(-104.0f), 0.0f);
  EXPECT_EQ(Exp(89.0f), kInf);
  EXPECT_EQ(Exp(kInf), kInf);
  EXPECT_TRUE(std::isnan(Exp(kNan)));
}

TEST(Math, Log) {
  EXPECT_LT(FindWorst([](float x) { return Log(x); }, [](double x) { return std::log(x); }).ulps, 1.1);
  EXPECT_EQ(Log(1.0f), 0.0f);
  EXPECT_EQ(Log(0.0f), -kInf);
  EXPECT_EQ(Log(-0.0f), -kInf);
  EXPECT_EQ(Log(kInf), kInf);
  EXPECT_TRUE(std::isnan(Log(-1.0f)));
  EXPECT_TRUE(std::isnan(Log(-kInf)));
  EXPECT_TRUE(std::isnan(Log(kNan)));
}

TEST(Math, Log1p) {
  EXPECT_LT(FindWorst([](float x) { return Log1p(x); }, [](double x) { return std::log1p(x); }).ulps, 2.0);
  EXPECT_EQ(Log1p(-1.0f), -kInf);
  EXPECT_EQ(Log1p(kInf), kInf);
}

TEST(Math, Tanh) {
  EXPECT_LT(FindWorst([](float x) { return Tanh(x); }, [](double x) { return std::tanh(x); }).ulps, 2.6);
  EXPECT_EQ(Tanh(kInf), 1.0f);
  EXPECT_EQ(Tanh(-kInf), -1.0f);
  EXPECT_TRUE(std::isnan(Tanh(kNan)));
  EXPECT_EQ(BitsOf(Tanh(-0.0f)), 0x80000000u);
  for (float x = -10.0f; x < 10.0f; x += 1.0f / 1024) {
    EXPECT_EQ(Tanh(-x), -Tanh(x));
    EXPECT_LE(std::fabs(Tanh(x)), 1.0f);
  }
}

TEST(Math, SigmoidAndSoftplus) {
  const auto sigmoid = [](double x) {
    return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
  };
  EXPECT_LT(FindWorst([](float x) { return Sigmoid(x); }, sigmoid).ulps, 2.6);
  const auto softplus = [](double x) {
    return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
  };
  EXPECT_LT(FindWorst([](float x) { return Softplus(x); }, softplus).ulps, 2.6);
}

TEST(Math, SinCos2Pi) {
  // Absolute error: near a zero the argument's own spacing is what counts.
  double worst = 0;
  for (uint32_t i = 0; i < (1u << 24); i += 7) {
    const float u = static_cast<float>(i) * 0x1p-24f;
    const SinCos got = SinCos2Pi(u);
    worst = std::max(worst, std::fabs(got.sin - std::sin(2 * M_PI * u)));
    worst = std::max(worst, std::fabs(got.cos - std::cos(2 * M_PI * u)));
  }
  EXPECT_LT(worst, 1.0e-7);
  EXPECT_EQ(SinCos2Pi(0.0f).sin, 0.0f);
  EXPECT_EQ(SinCos2Pi(0.25f).sin, 1.0f);
  EXPECT_EQ(SinCos2Pi(0.5f).cos, -1.0f);
  EXPECT_EQ(SinCos2Pi(-0.25f).sin, -1.0f);
}

// A call on one value and a vectorized loop must not differ in a bit.
template <class F>
void ExpectSameBitsInLoops(F f) {
  std::vector<float> y(4096);
  ForBitPatterns(65537, [&](const std::vector<float>& x) {
    for (size_t i = 0; i < x.size(); ++i) y[i] = f(x[i]);
    for (size_t i = 0; i < x.size(); ++i) {
      volatile float one = x[i];
      const float alone = f(one);
      if (std::isnan(alone) && std::isnan(y[i])) continue;
      ASSERT_EQ(BitsOf(alone), BitsOf(y[i])) << x[i];
    }
  });
}

TEST(Math, LoopsHaveTheBitsOfSingleCalls) {
  ExpectSameBitsInLoops([](float x) { return Exp(x); });
  ExpectSameBitsInLoops([](float x) { return Log(x); });
  ExpectSameBitsInLoops([](float x) { return Tanh(x); });
  ExpectSameBitsInLoops([](float x) { return Sigmoid(x); });
  ExpectSameBitsInLoops([](float x) { return Softplus(x); });
  ExpectSameBitsInLoops([](float x) { return SinCos2Pi(x).sin; });
}

TEST(Activation, GradientsMatchDifferences) {
  for (Activation kind :
       {Activation::kNone, Activation::kTanh, Activation::kRelu, Activation::kGelu, Activation::kSilu}) {
    for (float x = -6.03f; x < 6.0f; x += 0.05f) {
      const float h = 1.0f / 256;
      const double difference =
          (static_cast<double>(ActForward(kind, x + h)) - ActForward(kind, x - h)) / (2 * h);
      EXPECT_NEAR(ActGrad(kind, ActForward(kind, x), x), difference, 1e-4)
          << static_cast<int>(kind) << " at " << x;
    }
  }
}

TEST(Activation, StaysFiniteFarOut) {
  for (Activation kind : {Activation::kTanh, Activation::kRelu, Activation::kGelu, Activation::kSilu}) {
    for (float x : {-1e30f, -200.0f, 200.0f, 1e30f}) {
      EXPECT_TRUE(IsFinite(ActForward(kind, x)));
      EXPECT_TRUE(IsFinite(ActGrad(kind, ActForward(kind, x), x)));
    }
  }
}

}  // namespace
}  // namespace millrace
