#include "absl/strings/str_cat.h"
#include "kernels/core/activation.h"
#include "kernels/testing/parity_cases.h"

namespace millrace {
namespace {

using Use = Image::Use;

// float32 sums of up to some thousand products of numbers below 1, in another order, differ by a few 1e-6;
// inputs cut to TF32 would differ by 1e-3.
constexpr double kTolerance = 3e-5;

size_t Count(int a, int b) {
  return static_cast<size_t>(a) * static_cast<size_t>(b);
}

// A weight and room for any backend's pack of it.
struct Weight {
  Weight(Image& m, int k, int n) : k(k), n(n), w(m.Random("w", Count(k, n + 1), -1, 1)) {
    const size_t floats = std::max(kCpuGemm.packed_elements(k, n), kCpuGemm.packed_elements(n, k));
    packed = m.Scratch<float>("packed", std::max(floats, Count(k, n)));
  }
  const float* Reference(const ImageView& at, bool transposed) const {
    (transposed ? kReferenceGemm.pack_transposed : kReferenceGemm.pack)(at(w), n + 1, k, n, at(packed));
    return at(packed);
  }
  Status Pack(Kernels& kernels, Stream& stream, const ImageView& at, bool transposed) const {
    if (transposed) return kernels.PackTransposed(stream, at(w), n + 1, k, n, at(packed));
    return kernels.Pack(stream, at(w), n + 1, k, n, at(packed));
  }

  int k, n;
  Slot<float> w, packed;
};

ParityCase ForwardCase(int m, int k, int n, Activation activation, bool keep_pre, bool bias) {
  Image image(31);
  const Weight weight(image, k, n);
  image.Misalign(n % 2 == 0 ? 0 : 4);  // as tensors in a flat buffer of parameters lie
  const auto x = image.Random("x", Count(m, k + 2), -1, 1);
  Slot<float> b;
  if (bias) {
    image.Misalign(n % 2 == 0 ? 0 : 4);
    b = image.Random("bias", static_cast<size_t>(n), -1, 1);
  }
  const auto y = image.Output<float>("y", Count(m, n + 1), kTolerance);
  Slot<float> pre;
  if (keep_pre) pre = image.Output<float>("pre", Count(m, n), kTolerance);
  const auto args = [=](const ImageView& at) {
    ForwardArgs g;
    g.m = m, g.n = n, g.k = k;
    g.x = at(x), g.ldx = k + 2, g.w = at(weight.packed), g.bias = at(b);
    g.activation = activation, g.y = at(y), g.ldy = n + 1;
    g.pre = at(pre), g.ldpre = n;
    return g;
  };
  ParityCase c;
  c.name = absl::StrCat("Forward m ", m, " k ", k, " n ", n, " activation ", static_cast<int>(activation),
                        keep_pre ? " pre" : "", bias ? " bias" : "");
  c.flops = 2.0 * m * k * n;
  c.image = std::move(image);
  c.reference = [=](const ImageView& at) {
    weight.Reference(at, false);
    kReferenceGemm.forward(args(at));
  };
  c.run = [=](Kernels& kernels, Stream& stream, const ImageView& at, Workspace workspace) {
    MILL_RETURN_IF_ERROR(weight.Pack(kernels, stream, at, false));
    return kernels.Forward(stream, args(at), workspace);
  };
  return c;
}

ParityCase GradInputCase(int m, int k, int n, Activation activation) {
  Image image(32);
  const Weight weight(image, k, n);
  const auto dy = image.Random("dy", Count(m, n + 1), -1, 1);
  const auto x = image.Random("x", Count(m, k), -1, 1), pre = image.Random("pre", Count(m, k + 1), -3, 3);
  const auto dx = image.Output<float>("dx", Count(m, k + 3), kTolerance);
  const auto args = [=](const ImageView& at) {
    GradInputArgs g;
    g.m = m, g.n = n, g.k = k;
    g.dy = at(dy), g.lddy = n + 1, g.wt = at(weight.packed), g.activation = activation;
    if (NeedsPreActivation(activation)) {
      g.pre = at(pre), g.ldpre = k + 1;
    } else if (activation != Activation::kNone) {
      g.x = at(x), g.ldx = k;
    }
    g.dx = at(dx), g.lddx = k + 3;
    return g;
  };
  ParityCase c;
  c.name = absl::StrCat("GradInput m ", m, " k ", k, " n ", n, " activation ", static_cast<int>(activation));
  c.flops = 2.0 * m * k * n;
  c.image = std::move(image);
  c.reference = [=](const ImageView& at) {
    weight.Reference(at, true);
    kReferenceGemm.grad_input(args(at));
  };
  c.run = [=](Kernels& kernels, Stream& stream, const ImageView& at, Workspace workspace) {
    MILL_RETURN_IF_ERROR(weight.Pack(kernels, stream, at, true));
    return kernels.GradInput(stream, args(at), workspace);
  };
  return c;
}

ParityCase GradWeightCase(int m, int k, int n, bool bias) {
  Image image(33);
  const auto x = image.Random("x", Count(m, k + 1), -1, 1), dy = image.Random("dy", Count(m, n), -1, 1);
  image.Misalign(n % 2 == 0 ? 0 : 4);
  const auto dw = image.Random("dw", Count(k, n), -1, 1, Use::kBoth);
  image.SetTolerance(kTolerance);
  Slot<float> db;
  if (bias) {
    db = image.Random("db", static_cast<size_t>(n), -1, 1, Use::kBoth);
    image.SetTolerance(kTolerance);
  }
  const auto args = [=](const ImageView& at) {
    GradWeightArgs g;
    g.m = m, g.n = n, g.k = k;
    g.x = at(x), g.ldx = k + 1, g.dy = at(dy), g.lddy = n;
    g.dw = at(dw), g.lddw = n, g.db = at(db);
    return g;
  };
  ParityCase c;
  c.name = absl::StrCat("GradWeight m ", m, " k ", k, " n ", n, bias ? " bias" : "");
  c.flops = 2.0 * m * k * n;
  c.image = std::move(image);
  c.reference = [=](const ImageView& at) { kReferenceGemm.grad_weight(args(at)); };
  c.run = [=](Kernels& kernels, Stream& stream, const ImageView& at, Workspace workspace) {
    return kernels.GradWeight(stream, args(at), workspace);
  };
  return c;
}

}  // namespace

void AddGemmCases(std::vector<ParityCase>* cases, int m, int k, int n, Activation activation) {
  cases->push_back(ForwardCase(m, k, n, activation, true, true));
  cases->push_back(ForwardCase(m, k, n, activation, false, true));
  cases->push_back(ForwardCase(m, k, n, activation, false, false));
  cases->push_back(GradInputCase(m, k, n, activation));
}

void AddGradWeightCases(std::vector<ParityCase>* cases, int m, int k, int n) {
  cases->push_back(GradWeightCase(m, k, n, true));
  cases->push_back(GradWeightCase(m, k, n, false));
}

std::vector<ParityCase> ParityCases() {
  std::vector<ParityCase> cases;
  AddTrainCases(&cases, 7, 300, 37, 70, 9001);
  AddTrainCases(&cases, 1, 1, 1, 1, 1);
  AddPolicyCases(&cases, 300);
  AddSacCases(&cases, 300);
  AddPolicyCases(&cases, 1);
  AddSacCases(&cases, 1);
  AddDataCases(&cases, 300, 70);
  AddDataCases(&cases, 1, 1);
  for (const Activation activation :
       {Activation::kNone, Activation::kTanh, Activation::kRelu, Activation::kGelu, Activation::kSilu}) {
    AddGemmCases(&cases, 257, 118, 128, activation);
    AddGemmCases(&cases, 64, 64, 3, activation);
    AddGemmCases(&cases, 1, 5, 1, activation);
  }
  AddGradWeightCases(&cases, 257, 118, 128);
  AddGradWeightCases(&cases, 64, 64, 3);
  AddGradWeightCases(&cases, 1, 5, 1);
  return cases;
}

std::vector<ParityCase> LargeCases() {
  std::vector<ParityCase> cases;
  AddTrainCases(&cases, 128, 2048, 16384, 256, 1 << 20);
  AddPolicyCases(&cases, 16384);
  AddSacCases(&cases, 16384);
  AddDataCases(&cases, 16384, 256);
  AddGemmCases(&cases, 16384, 256, 256, Activation::kTanh);
  AddGradWeightCases(&cases, 16384, 256, 256);
  return cases;
}

}  // namespace millrace
