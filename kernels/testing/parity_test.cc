// The parity cases on the CPU's device, and that the harness sees what is wrong.
#include "kernels/testing/parity.h"

#include <set>

#include "gtest/gtest.h"
#include "kernels/ops/all_ops.h"
#include "kernels/testing/same_bits.h"

namespace millrace {
namespace {

TEST(Parity, EveryOpHasACase) {
  std::set<int> seen;
  for (const ParityCase& c : ParityCases()) seen.insert(c.op);
  for (int op = 0; op < kOpCount; ++op) EXPECT_TRUE(seen.contains(op)) << kOpNames[op];
}

TEST(Parity, NamesAreUnique) {
  std::set<std::string> names;
  for (const ParityCase& c : ParityCases()) EXPECT_TRUE(names.insert(c.name).second) << c.name;
}

TEST(Parity, TheCpuAgreesWithTheReference) {
  const auto cpu = MakeCpuDevice();
  for (const ParityCase& c : ParityCases()) {
    const Status status = RunParity(c, *cpu);
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST(Parity, NeitherTheOrderOfTilesNorOldSharedMemoryMatters) {
  for (const ParityCase& c : ParityCases()) {
    if (c.op < 0) continue;
    std::vector<std::byte> reference = c.image.bytes(), blocks = c.image.bytes();
    c.reference(ImageView{reference.data()});
    c.as_blocks(ImageView{blocks.data()});
    const Status status = c.image.Compare(reference, blocks);
    EXPECT_TRUE(status.ok()) << c.name << ": " << status;
  }
}

// Every kind of mistake on a small case whose device side is wrong in one way.
class Mistakes : public testing::Test {
 protected:
  static constexpr int kCount = 1000;

  // RunParity's status where the device runs `wrong` after the right kernel.
  template <class F>
  Status RunWith(F wrong) {
    Image m(1);
    const auto in = m.Random("in", kCount, -1, 1);
    const auto out = m.Output<float>("out", kCount, tolerance_);
    ParityCase c = OpCase<ApplyActivation>("mistake", std::move(m), [=](const ImageView& at) {
      return ApplyActivation::Params{1, kCount, Activation::kTanh, at(in), kCount, at(out), kCount};
    });
    c.run = [run = c.run, wrong, in, out](Kernels& k, Stream& s, const ImageView& at, Workspace w) -> Status {
      MILL_RETURN_IF_ERROR(run(k, s, at, w));
      wrong(at(in), at(out));
      return absl::OkStatus();
    };
    const auto cpu = MakeCpuDevice();
    return RunParity(c, *cpu);
  }
  double tolerance_ = 0.0;
};

TEST_F(Mistakes, OneBitIsSeen) {
  const Status status = RunWith([](float*, float* out) { out[700] = std::nextafterf(out[700], 9.0f); });
  EXPECT_NE(status.message().find("out[700]"), std::string::npos) << status;
  EXPECT_NE(status.message().find("1 differ"), std::string::npos) << status;
}

TEST_F(Mistakes, ANaNIsSeenDespiteATolerance) {
  tolerance_ = 1e-3;
  EXPECT_FALSE(RunWith([](float*, float* out) { out[3] = std::nanf(""); }).ok());
  EXPECT_FALSE(RunWith([](float*, float* out) { out[3] += 1e-2f; }).ok());
}

TEST_F(Mistakes, AWriteBesideATensorIsSeen) {
  EXPECT_FALSE(RunWith([](float*, float* out) { out[kCount] = 0.0f; }).ok());
  EXPECT_FALSE(RunWith([](float*, float* out) { out[-1] = 0.0f; }).ok());
}

TEST_F(Mistakes, AnInputThatChangesIsSeen) {
  EXPECT_FALSE(RunWith([](float* in, float*) { in[kCount - 1] += 1.0f; }).ok());
}

// The passes that only a device uses, with every team.
TEST(Linear, EveryTeamGivesTheSameBits) {
  std::vector<float> x(300 * 20), y(x.size()), sums(3 * 20), total(20);
  for (size_t i = 0; i < x.size(); ++i) x[i] = 0.01f * static_cast<float>(i % 513) - 2.0f;
  for (const Activation a : {Activation::kTanh, Activation::kRelu, Activation::kGelu, Activation::kSilu}) {
    ExpectSameBits<ApplyActivation>({300, 20, a, x.data(), 20, y.data(), 20}, {y});
    ExpectSameBits<ActivationGrad>({300, 20, a, x.data(), 20, x.data(), 20, y.data(), 20}, {y});
  }
  ExpectSameBits<ColumnSums>({300, 20, x.data(), 20, sums.data()}, {sums});
  ExpectSameBits<AddColumnSums>({3, 20, sums.data(), total.data()}, {total});
}

}  // namespace
}  // namespace millrace
