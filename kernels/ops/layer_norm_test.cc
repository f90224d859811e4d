#include "kernels/ops/layer_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/ops/philox.h"
#include "kernels/testing/same_bits.h"

namespace millrace {
namespace {

std::vector<float> Noise(size_t n, uint32_t row, float base = 0.0f) {
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i) x[i] = base + UniformFloat(PhiloxAt(10, Purpose::kTest, row, i).v[0]) - 0.5f;
  return x;
}

struct Case {
  int rows, dims, ld;
  std::vector<float> x, gamma, beta, dy;
  Case(int r, int d, float base)
      : rows(r),
        dims(d),
        ld(d + 2),
        x(Noise(static_cast<size_t>(r) * (d + 2), 1, base)),
        gamma(Noise(static_cast<size_t>(d), 2, 1.0f)),
        beta(Noise(static_cast<size_t>(d), 3)),
        dy(Noise(static_cast<size_t>(r) * (d + 2), 4)) {}
  size_t At(int r, int d) const { return static_cast<size_t>(r) * ld + d; }
};

// y of one row in double.
std::vector<double> Row(const Case& c, int r) {
  double mean = 0.0, variance = 0.0;
  for (int d = 0; d < c.dims; ++d) mean += static_cast<double>(c.x[c.At(r, d)]) / c.dims;
  for (int d = 0; d < c.dims; ++d) variance += std::pow(c.x[c.At(r, d)] - mean, 2) / c.dims;
  std::vector<double> y;
  for (int d = 0; d < c.dims; ++d) {
    y.push_back((c.x[c.At(r, d)] - mean) / std::sqrt(variance + 1e-5) * c.gamma[d] + c.beta[d]);
  }
  return y;
}

// sum over the row of dy * y: its derivatives are what the backward pass returns.
double Loss(const Case& c, int r) {
  double loss = 0.0;
  const std::vector<double> y = Row(c, r);
  for (int d = 0; d < c.dims; ++d) loss += c.dy[c.At(r, d)] * y[static_cast<size_t>(d)];
  return loss;
}

double Slope(Case& c, float* x, int first, int end) {
  const auto loss = [&] {
    double sum = 0.0;
    for (int r = first; r < end; ++r) sum += Loss(c, r);
    return sum;
  };
  const float kept = *x;
  *x = kept + 1e-3f;
  const double high = *x, up = loss();
  *x = kept - 1e-3f;
  const double low = *x, down = loss();
  *x = kept;
  return (up - down) / (high - low);
}

void Check(int rows, int dims, float base) {
  Case c(rows, dims, base);
  const size_t n = static_cast<size_t>(rows);
  std::vector<float> y(c.x.size(), 9.0f), mean(n), rstd(n), dx(c.x.size(), 9.0f);
  std::vector<float> dgamma(static_cast<size_t>(dims), 1.0f), dbeta(static_cast<size_t>(dims), 2.0f);
  ExpectSameBits<LayerNorm>(
      {rows, dims, c.x.data(), c.ld, c.gamma.data(), c.beta.data(), y.data(), c.ld, mean.data(), rstd.data()},
      {y, mean, rstd});
  ExpectSameBits<LayerNormBackward>({rows, dims, c.x.data(), c.ld, c.gamma.data(), mean.data(), rstd.data(),
                                     c.dy.data(), c.ld, dx.data(), c.ld},
                                    {dx});
  ExpectSameBits<LayerNormParamGrad>({rows, dims, c.x.data(), c.ld, mean.data(), rstd.data(), c.dy.data(),
                                      c.ld, dgamma.data(), dbeta.data()},
                                     {dgamma, dbeta});
  for (int r = 0; r < rows; ++r) {
    const std::vector<double> want = Row(c, r);
    for (int d = 0; d < dims; ++d) {
      EXPECT_NEAR(y[c.At(r, d)], want[static_cast<size_t>(d)], 2e-5);
      EXPECT_NEAR(dx[c.At(r, d)], Slope(c, &c.x[c.At(r, d)], r, r + 1), 2e-4);
    }
    EXPECT_EQ(y[c.At(r, dims)], 9.0f) << "written beyond the row";
    EXPECT_EQ(dx[c.At(r, dims)], 9.0f);
  }
  for (int d = 0; d < dims; ++d) {
    EXPECT_NEAR(dgamma[d] - 1.0f, Slope(c, &c.gamma[d], 0, rows), 1e-4);
    EXPECT_NEAR(dbeta[d] - 2.0f, Slope(c, &c.beta[d], 0, rows), 1e-4);
  }
}

TEST(LayerNorm, MatchesDoubleAndFiniteDifferences) {
  Check(19, 40, 0.0f);
  Check(3, 70, 0.0f);
  Check(2, 5, 0.0f);
}
TEST(LayerNorm, BearsALargeMean) {
  Check(2, 33, 20.0f);
}

TEST(LayerNorm, WorksInPlaceAndWithoutMoments) {
  Case c(4, 24, 0.0f);
  std::vector<float> y(c.x.size());
  RunSerial<LayerNorm>(
      {4, 24, c.x.data(), c.ld, c.gamma.data(), c.beta.data(), y.data(), c.ld, nullptr, nullptr});
  RunSerial<LayerNorm>(
      {4, 24, c.x.data(), c.ld, c.gamma.data(), c.beta.data(), c.x.data(), c.ld, nullptr, nullptr});
  for (int r = 0; r < 4; ++r) {
    for (int d = 0; d < 24; ++d) EXPECT_EQ(c.x[c.At(r, d)], y[c.At(r, d)]);
  }
}

}  // namespace
}  // namespace millrace
