#include "kernels/gemm/gemm.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/core/activation.h"
#include "kernels/core/cpu_kernel_set.h"
#include "kernels/ops/philox.h"

namespace millrace {
namespace {

constexpr Activation kActivations[] = {Activation::kNone, Activation::kTanh, Activation::kRelu,
                                       Activation::kGelu, Activation::kSilu};
constexpr float kUntouched = -777.0f;

// A matrix with a margin right of each row, which nobody may write.
struct Matrix {
  Matrix(int rows, int cols, uint32_t seed, int margin = 3)
      : rows(rows), cols(cols), ld(cols + margin), data(static_cast<size_t>(rows) * ld, kUntouched) {
    for (int i = 0; i < rows; ++i) {
      for (int j = 0; j < cols; ++j) {
        const Philox4 p =
            PhiloxAt(1, Purpose::kTest, static_cast<uint32_t>(i), static_cast<uint64_t>(j), seed);
        at(i, j) = 2.0f * UniformFloat(p.v[0]) - 1.0f;
      }
    }
  }
  float& at(int i, int j) { return data[static_cast<size_t>(i) * ld + j]; }
  float at(int i, int j) const { return data[static_cast<size_t>(i) * ld + j]; }

  int rows, cols, ld;
  std::vector<float> data;
};

// Bits, so that NaN and the sign of zero count too; the margins are part of it.
void ExpectSame(const Matrix& a, const Matrix& b, const char* what) {
  ASSERT_EQ(a.data.size(), b.data.size());
  for (size_t i = 0; i < a.data.size(); ++i) {
    ASSERT_EQ(BitsOf(a.data[i]), BitsOf(b.data[i]))
        << what << " [" << i / a.ld << ", " << i % a.ld << "]: " << a.data[i] << " and " << b.data[i];
  }
}

struct Shape {
  int m, k, n;
};

std::ostream& operator<<(std::ostream& out, const Shape& s) {
  return out << "m " << s.m << " k " << s.k << " n " << s.n;
}

std::vector<Shape> Shapes() {
  std::vector<Shape> shapes;
  // Every number of rows and columns near a tile's, with a few depths.
  for (int m = 1; m <= 13; ++m) {
    for (int n = 1; n <= 35; ++n) shapes.push_back({m, 1 + (m * 7 + n * 3) % 33, n});
  }
  for (int k = 1; k <= 33; ++k) {
    for (int n : {1, 3, 16, 21}) shapes.push_back({9, k, n});
  }
  for (int m : {64, 131, 256}) {
    for (Shape s :
         {Shape{m, 4, 64}, {m, 118, 128}, {m, 128, 128}, {m, 128, 3}, {m, 128, 1}, {m, 64, 2}, {m, 6, 400}}) {
      shapes.push_back(s);
    }
  }
  // Around the widest tile, 14 x 32, and heads across the whole of a tile along k, 64.
  for (int m : {14, 15, 27, 28, 29}) {
    for (int n : {31, 32, 33, 48, 63, 65, 76}) shapes.push_back({m, m + 3, n});
  }
  for (int k : {63, 64, 65, 79, 80, 150}) {
    for (int n : {1, 2, 4, 36}) shapes.push_back({20, k, n});
  }
  return shapes;
}

std::vector<float> Packed(const GemmBackend& gemm, const Matrix& w, bool transposed) {
  const int k = transposed ? w.cols : w.rows;
  const int n = transposed ? w.rows : w.cols;
  std::vector<float> packed(gemm.packed_elements(k, n));
  (transposed ? gemm.pack_transposed : gemm.pack)(w.data.data(), w.ld, w.rows, w.cols, packed.data());
  return packed;
}

struct ForwardResult {
  Matrix y, pre;
};

ForwardResult RunForward(const GemmBackend& gemm, const Matrix& x, const Matrix& w, const float* bias,
                         Activation act, int rows) {
  ForwardResult r{Matrix(x.rows, w.cols, 9), Matrix(x.rows, w.cols, 10)};
  const auto packed = Packed(gemm, w, false);
  ForwardArgs g;
  g.m = rows, g.k = w.rows, g.n = w.cols;
  g.x = x.data.data(), g.ldx = x.ld;
  g.w = packed.data(), g.bias = bias, g.activation = act;
  g.y = r.y.data.data(), g.ldy = r.y.ld;
  if (act != Activation::kTanh) g.pre = r.pre.data.data(), g.ldpre = r.pre.ld;
  gemm.forward(g);
  return r;
}

std::vector<const GemmBackend*> AllCpuGemms() {
  std::vector<const GemmBackend*> all = RunnableCpuGemms();
  all.push_back(&kCpuGemm);
  return all;
}

// Of each set of kernels that this CPU can run, and of the choice among them.
class Gemm : public testing::TestWithParam<const GemmBackend*> {
 protected:
  const GemmBackend& gemm() const { return *GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(Sets, Gemm, testing::ValuesIn(AllCpuGemms()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST(CpuGemm, HasATableForEveryRunnableSet) {
  const auto tables = RunnableCpuGemms();
  ASSERT_EQ(tables.size(), RunnableCpuSets().size());
  for (size_t i = 0; i < tables.size(); ++i) EXPECT_STREQ(tables[i]->name, NameOf(RunnableCpuSets()[i]));
}

TEST_P(Gemm, PacksLikeTheOtherSets) {
  for (int n : {1, 6, 16, 30, 32, 75}) {
    const Matrix w(19, n, 2);
    for (bool transposed : {false, true}) {
      EXPECT_EQ(Packed(gemm(), w, transposed), Packed(*RunnableCpuGemms().front(), w, transposed)) << n;
    }
  }
}

TEST_P(Gemm, ForwardHasTheBitsOfTheReference) {
  for (const Shape& s : Shapes()) {
    SCOPED_TRACE(s);
    const Matrix x(s.m, s.k, 1), w(s.k, s.n, 2), bias(1, s.n, 3);
    const Activation act = kActivations[static_cast<size_t>(s.m + s.n + s.k) % 5];
    const float* b = s.n % 7 == 0 ? nullptr : bias.data.data();
    const auto want = RunForward(kReferenceGemm, x, w, b, act, s.m);
    const auto got = RunForward(gemm(), x, w, b, act, s.m);
    ExpectSame(got.y, want.y, "y");
    ExpectSame(got.pre, want.pre, "pre");
    if (HasFailure()) return;
  }
}

TEST_P(Gemm, EveryActivationOnEveryPanelWidth) {
  for (Activation act : kActivations) {
    for (int n : {3, 7, 16, 27}) {
      const Matrix x(8, 12, 1), w(12, n, 2), bias(1, n, 3);
      const auto want = RunForward(kReferenceGemm, x, w, bias.data.data(), act, 8);
      const auto got = RunForward(gemm(), x, w, bias.data.data(), act, 8);
      ExpectSame(got.y, want.y, "y");
      ExpectSame(got.pre, want.pre, "pre");
    }
  }
}

TEST_P(Gemm, ARowsBitsDoNotDependOnTheNumberOfRows) {
  const Matrix x(37, 50, 1), w(50, 40, 2), bias(1, 40, 3);
  const auto all = RunForward(gemm(), x, w, bias.data.data(), Activation::kTanh, 37);
  for (int rows = 1; rows < 37; ++rows) {
    const auto some = RunForward(gemm(), x, w, bias.data.data(), Activation::kTanh, rows);
    for (int i = 0; i < rows; ++i) {
      for (int j = 0; j < 40; ++j)
        ASSERT_EQ(BitsOf(some.y.at(i, j)), BitsOf(all.y.at(i, j))) << rows << " rows";
    }
  }
}

Matrix RunGradInput(const GemmBackend& gemm, const Matrix& dy, const Matrix& w, Activation act,
                    const Matrix& x, const Matrix& pre) {
  Matrix dx(dy.rows, w.rows, 9);
  const auto packed = Packed(gemm, w, true);
  GradInputArgs g;
  g.m = dy.rows, g.k = w.rows, g.n = w.cols;
  g.dy = dy.data.data(), g.lddy = dy.ld;
  g.wt = packed.data(), g.activation = act;
  if (NeedsPreActivation(act)) {
    g.pre = pre.data.data(), g.ldpre = pre.ld;
  } else if (act != Activation::kNone) {
    g.x = x.data.data(), g.ldx = x.ld;
  }
  g.dx = dx.data.data(), g.lddx = dx.ld;
  gemm.grad_input(g);
  return dx;
}

// Vectorized, in tails and one by one: x times 1 over numbers of every size, and what is no number.
std::vector<float> Inputs() {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<float> v = {0.0f, -0.0f, kInf, -kInf, std::numeric_limits<float>::quiet_NaN(), 1e-40f};
  for (uint32_t bits = 0x2f000000u; bits < 0x44000000u; bits += 0x5a5a5u) {
    v.push_back(FloatOf(bits));
    v.push_back(-FloatOf(bits));
  }
  return v;
}

// Where two NaN meet, the order of a product's operands, which is the compiler's, decides whose sign stays.
Matrix OneNan(Matrix m) {
  for (float& v : m.data) v = std::isnan(v) ? std::numeric_limits<float>::quiet_NaN() : v;
  return m;
}

TEST_P(Gemm, ActivationsHaveTheBitsOfTheReference) {
  const std::vector<float> inputs = Inputs();
  for (Activation act : kActivations) {
    for (int n : {4, 11, 48}) {
      SCOPED_TRACE(static_cast<int>(act));
      Matrix x(static_cast<int>(inputs.size()), 1, 1), w(1, n, 2);
      for (int i = 0; i < x.rows; ++i) x.at(i, 0) = inputs[static_cast<size_t>(i)];
      for (int j = 0; j < n; ++j) w.at(0, j) = 1.0f;
      const auto want = RunForward(kReferenceGemm, x, w, nullptr, act, x.rows);
      const auto got = RunForward(gemm(), x, w, nullptr, act, x.rows);
      ExpectSame(OneNan(got.y), OneNan(want.y), "y");
      const Matrix dy(x.rows, 1, 3), wt(n, 1, 4);
      const Matrix pre = RunForward(kReferenceGemm, x, w, nullptr, Activation::kNone, x.rows).y;
      ExpectSame(OneNan(RunGradInput(gemm(), dy, wt, act, want.y, pre)),
                 OneNan(RunGradInput(kReferenceGemm, dy, wt, act, want.y, pre)), "dx");
    }
  }
}

TEST_P(Gemm, GradInputHasTheBitsOfTheReference) {
  for (const Shape& s : Shapes()) {
    SCOPED_TRACE(s);
    const Matrix dy(s.m, s.n, 1), w(s.k, s.n, 2), x(s.m, s.k, 3), pre(s.m, s.k, 4);
    const Activation act = kActivations[static_cast<size_t>(s.m + s.n + s.k) % 5];
    ExpectSame(RunGradInput(gemm(), dy, w, act, x, pre), RunGradInput(kReferenceGemm, dy, w, act, x, pre),
               "dx");
    if (HasFailure()) return;
  }
}

void RunGradWeight(const GemmBackend& gemm, const Matrix& x, const Matrix& dy, Matrix* dw, Matrix* db) {
  GradWeightArgs g;
  g.m = x.rows, g.k = x.cols, g.n = dy.cols;
  g.x = x.data.data(), g.ldx = x.ld;
  g.dy = dy.data.data(), g.lddy = dy.ld;
  g.dw = dw->data.data(), g.lddw = dw->ld;
  g.db = db == nullptr ? nullptr : db->data.data();
  gemm.grad_weight(g);
}

TEST_P(Gemm, GradWeightAddsWithTheBitsOfTheReference) {
  for (const Shape& s : Shapes()) {
    SCOPED_TRACE(s);
    const Matrix x(s.m, s.k, 1), dy(s.m, s.n, 2);
    Matrix dw(s.k, s.n, 3), db(1, s.n, 4), want_dw = dw, want_db = db;
    RunGradWeight(gemm(), x, dy, &dw, s.n % 5 == 0 ? nullptr : &db);
    RunGradWeight(kReferenceGemm, x, dy, &want_dw, s.n % 5 == 0 ? nullptr : &want_db);
    ExpectSame(dw, want_dw, "dw");
    ExpectSame(db, want_db, "db");
    if (HasFailure()) return;
  }
}

// The loss is sum(c * act2(act1(X W1 + b1) W2)); its gradients against central differences, all in double.
double Loss(const Matrix& x, const Matrix& w1, const Matrix& b1, const Matrix& w2, const Matrix& c,
            Activation act) {
  const auto f = [act](double v) {
    switch (act) {
      case Activation::kTanh:
        return std::tanh(v);
      case Activation::kRelu:
        return v > 0 ? v : 0.0;
      case Activation::kGelu:
        return 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
      case Activation::kSilu:
        return v / (1 + std::exp(-v));
      case Activation::kNone:
        break;
    }
    return v;
  };
  double loss = 0;
  std::vector<double> h(static_cast<size_t>(w1.cols));
  for (int i = 0; i < x.rows; ++i) {
    for (int j = 0; j < w1.cols; ++j) {
      double v = b1.at(0, j);
      for (int k = 0; k < x.cols; ++k) v += double{x.at(i, k)} * w1.at(k, j);
      h[static_cast<size_t>(j)] = f(v);
    }
    for (int j = 0; j < w2.cols; ++j) {
      double v = 0;
      for (int k = 0; k < w1.cols; ++k) v += h[static_cast<size_t>(k)] * w2.at(k, j);
      loss += v * c.at(i, j);
    }
  }
  return loss;
}

TEST_P(Gemm, GradientsMatchFiniteDifferences) {
  for (Activation act : kActivations) {
    SCOPED_TRACE(static_cast<int>(act));
    Matrix x(7, 5, 1), w1(5, 18, 2), b1(1, 18, 3), w2(18, 3, 4), c(7, 3, 5);
    const auto hidden = RunForward(gemm(), x, w1, b1.data.data(), act, 7);
    Matrix pre = hidden.pre;
    if (act == Activation::kTanh) pre = RunForward(gemm(), x, w1, b1.data.data(), Activation::kNone, 7).pre;
    const Matrix dh = RunGradInput(gemm(), c, w2, act, hidden.y, pre);
    Matrix dw1(5, 18, 6), db1(1, 18, 7);
    for (float& v : dw1.data) v = 0;
    for (float& v : db1.data) v = 0;
    RunGradWeight(gemm(), x, dh, &dw1, &db1);
    const auto check = [&](Matrix& p, const Matrix& grad) {
      for (int i = 0; i < p.rows; ++i) {
        for (int j = 0; j < p.cols; ++j) {
          const float was = p.at(i, j);
          const float up = was + 1e-3f, down = was - 1e-3f;
          p.at(i, j) = up;
          const double a = Loss(x, w1, b1, w2, c, act);
          p.at(i, j) = down;
          const double b = Loss(x, w1, b1, w2, c, act);
          p.at(i, j) = was;
          const double difference = (a - b) / (double{up} - double{down});
          ASSERT_NEAR(grad.at(i, j), difference, 2e-4 + 1e-4 * std::fabs(difference)) << i << ", " << j;
        }
      }
    };
    check(w1, dw1);
    check(b1, db1);
  }
}

}  // namespace
}  // namespace millrace
