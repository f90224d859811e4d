#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/ops/all_ops.h"
#include "kernels/testing/parity_cases.h"

namespace millrace {
namespace {

using Use = Image::Use;

size_t Count(int a, int b) {
  return static_cast<size_t>(a) * static_cast<size_t>(b);
}

ParityCase MomentsCase(int n, bool indexed) {
  Image m(21);
  const auto x = m.Random("x", static_cast<size_t>(n), -1, 3);
  Slot<int32_t> index;
  if (indexed) index = m.Ints("index", static_cast<size_t>(n), 0, n);
  const auto out = m.Output<double>("out", sizeof(MomentsResult) / sizeof(double));
  return OpCase<Moments>(
      absl::StrCat("Moments n ", n, indexed ? " indexed" : ""), std::move(m), [=](const ImageView& at) {
        return Moments::Params{n, at(x), at(index), reinterpret_cast<MomentsResult*>(at(out))};
      });
}

ParityCase BatchMomentsCase(int rows, int dims) {
  Image m(22);
  const auto x = m.Random("x", Count(rows, dims + 1), -1, 3);
  const auto mean = m.Output<double>("mean", static_cast<size_t>(dims));
  const auto variance = m.Output<double>("variance", static_cast<size_t>(dims));
  return OpCase<BatchMoments>(
      absl::StrCat("BatchMoments rows ", rows, " dims ", dims), std::move(m), [=](const ImageView& at) {
        return BatchMoments::Params{rows, dims, at(x), dims + 1, at(mean), at(variance)};
      });
}

ParityCase NormalizeCase(int rows, int dims) {
  Image m(23);
  const auto x = m.Random("x", Count(rows, dims), -9, 9);
  const auto mean = m.Random("mean", static_cast<size_t>(dims), -1, 1);
  const auto inv_std = m.Random("inv_std", static_cast<size_t>(dims), 0.5f, 2);
  const auto y = m.Output<float>("y", Count(rows, dims + 2));
  return OpCase<Normalize>(
      absl::StrCat("Normalize rows ", rows, " dims ", dims), std::move(m), [=](const ImageView& at) {
        return Normalize::Params{rows, dims, at(x), dims, at(mean), at(inv_std), 5.0f, at(y), dims + 2};
      });
}

template <class T>
ParityCase GatherCase(int rows, int dims, DType dtype, bool normalised, Image m, Slot<T> src) {
  const int sources = 2 * rows;
  const auto index = m.Ints("index", static_cast<size_t>(rows), 0, sources);
  Slot<float> mean, inv_std;
  if (normalised) {
    mean = m.Random("mean", static_cast<size_t>(dims), -1, 1);
    inv_std = m.Random("inv_std", static_cast<size_t>(dims), 0.5f, 2);
  }
  const auto dst = m.Output<float>("dst", Count(rows, dims + 1));
  return OpCase<GatherRows>(
      absl::StrCat("GatherRows rows ", rows, " dims ", dims, " type ", static_cast<int>(dtype),
                   normalised ? " normalised" : ""),
      std::move(m), [=](const ImageView& at) {
        return GatherRows::Params{
            rows,        dims, at(src), dtype,   static_cast<size_t>(dims) * sizeof(T), at(index), at(mean),
            at(inv_std), 3.0f, at(dst), dims + 1};
      });
}

void AddGatherCases(std::vector<ParityCase>* cases, int rows, int dims) {
  const size_t n = Count(2 * rows, dims);
  for (const bool normalised : {false, true}) {
    Image f(24), u(25), i(26);
    const auto floats = f.Random("src", n, -4, 4);
    cases->push_back(GatherCase(rows, dims, DType::kF32, normalised, std::move(f), floats));
    const auto flags = u.Flags("src", n, 0.5);
    for (size_t k = 0; k < n; ++k) u.Host(flags)[k] = static_cast<uint8_t>(u.Host(flags)[k] + 2 * (k % 127));
    cases->push_back(GatherCase(rows, dims, DType::kU8, normalised, std::move(u), flags));
    const auto ints = i.Ints("src", n, -100, 100);
    cases->push_back(GatherCase(rows, dims, DType::kI32, normalised, std::move(i), ints));
  }
}

ParityCase PermutationCase(int count) {
  Image m(27);
  const auto n = static_cast<uint32_t>(count) + 300;
  const auto out = m.Output<int32_t>("out", static_cast<size_t>(count));
  return OpCase<FillPermutation>(
      absl::StrCat("FillPermutation of ", n), std::move(m), [=](const ImageView& at) {
        return FillPermutation::Params{MakePermutation(n, PhiloxAt(5, Purpose::kShuffle, 1, 2)), 100, count,
                                       at(out)};
      });
}

void AddActivationCases(std::vector<ParityCase>* cases, int rows, int cols, Activation activation) {
  const std::string size = absl::StrCat(" ", static_cast<int>(activation), " rows ", rows, " cols ", cols);
  Image m(28), g(29);
  const auto pre = m.Random("pre", Count(rows, cols + 1), -12, 12);
  const float odd[] = {-0.0f, HUGE_VALF, -HUGE_VALF, std::nanf("")};
  for (size_t i = 0; i < 4 && Count(rows, cols) >= 4; ++i) m.Host(pre)[i] = odd[i];
  const auto y = m.Output<float>("y", Count(rows, cols + 2));
  cases->push_back(OpCase<ApplyActivation>("ApplyActivation" + size, std::move(m), [=](const ImageView& at) {
    return ApplyActivation::Params{rows, cols, activation, at(pre), cols + 1, at(y), cols + 2};
  }));
  const auto result = g.Random("y", Count(rows, cols + 1), -1, 1),
             input = g.Random("pre", Count(rows, cols), -9, 9);
  const auto dx = g.Random("dx", Count(rows, cols + 2), -1, 1, Use::kBoth);
  cases->push_back(OpCase<ActivationGrad>("ActivationGrad" + size, std::move(g), [=](const ImageView& at) {
    return ActivationGrad::Params{rows,      cols, activation, at(result), cols + 1,
                                  at(input), cols, at(dx),     cols + 2};
  }));
}

void AddColumnSumCases(std::vector<ParityCase>* cases, int rows, int cols) {
  const int blocks = ColumnSums::Blocks(rows);
  Image m(30), g(31);
  const auto x = m.Random("x", Count(rows, cols + 1), -1, 1);
  const auto partial = m.Output<float>("partial", Count(blocks, cols));
  cases->push_back(OpCase<ColumnSums>(absl::StrCat("ColumnSums rows ", rows, " cols ", cols), std::move(m),
                                      [=](const ImageView& at) {
                                        return ColumnSums::Params{rows, cols, at(x), cols + 1, at(partial)};
                                      }));
  const auto parts = g.Random("partial", Count(blocks, cols), -1, 1);
  const auto sum = g.Random("sum", static_cast<size_t>(cols), -1, 1, Use::kBoth);
  cases->push_back(OpCase<AddColumnSums>(absl::StrCat("AddColumnSums blocks ", blocks, " cols ", cols),
                                         std::move(g), [=](const ImageView& at) {
                                           return AddColumnSums::Params{blocks, cols, at(parts), at(sum)};
                                         }));
}

}  // namespace

void AddDataCases(std::vector<ParityCase>* cases, int rows, int dims) {
  cases->push_back(MomentsCase(rows * 3 + 1, false));
  cases->push_back(MomentsCase(rows * 3 + 1, true));
  cases->push_back(BatchMomentsCase(rows, dims));
  cases->push_back(NormalizeCase(rows, dims));
  AddGatherCases(cases, rows, dims);
  cases->push_back(PermutationCase(rows * 7 + 3));
  for (const Activation activation :
       {Activation::kNone, Activation::kTanh, Activation::kRelu, Activation::kGelu, Activation::kSilu}) {
    AddActivationCases(cases, rows, dims, activation);
  }
  AddColumnSumCases(cases, rows, dims);
}

}  // namespace millrace
