#include "kernels/net/actor_critic.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/net/orthogonal.h"
#include "kernels/testing/double_net.h"

namespace millrace {
namespace {

class ActorCriticTest : public testing::TestWithParam<std::tuple<Activation, bool>> {};

TEST_P(ActorCriticTest, ForwardAndBackwardMatchAReferenceInDouble) {
  ActorCriticSpec spec;
  spec.inputs = 7;
  spec.hidden = {19, 6};
  spec.activation = std::get<0>(GetParam());
  spec.shared = std::get<1>(GetParam());
  spec.outputs = 3;
  const ActorCritic net(spec);
  const int rows = 5;
  std::vector<float> parameters = Noise(net.parameter_floats(), 1, 1.0f), packed(net.packed_floats());
  std::vector<float> gradients(net.parameter_floats(), 0.0f);
  const std::vector<float> x = Noise(static_cast<size_t>(rows * spec.inputs), 2, 2.0f);
  const std::vector<float> dlogits = Noise(rows * 3, 3, 1.0f), dvalue = Noise(rows, 4, 1.0f);
  net.PackAll(parameters.data(), packed.data(), true);
  ActorCritic::Workspace w(net, 8);
  net.Forward(parameters.data(), packed.data(), x.data(), spec.inputs, rows, w);

  DoubleNet reference{net, {parameters.begin(), parameters.end()}};
  for (int r = 0; r < rows; ++r) {
    const std::vector<double> out = reference.Tower(0, x.data() + r * spec.inputs);
    for (int o = 0; o < 3; ++o) EXPECT_NEAR(w.logits[r * w.logits_ld + o], out[static_cast<size_t>(o)], 1e-5);
    const double value = spec.shared ? out[3] : reference.Tower(6, x.data() + r * spec.inputs)[0];
    EXPECT_NEAR(w.value[r * w.value_ld], value, 1e-5);
    for (int o = 0; o < 3; ++o) w.dlogits[r * w.logits_ld + o] = dlogits[static_cast<size_t>(r * 3 + o)];
    w.dvalue[r * w.value_ld] = dvalue[static_cast<size_t>(r)];
  }
  net.Backward(packed.data(), x.data(), spec.inputs, rows, w, gradients.data());
  for (const ParameterTensor& tensor : net.tensors()) {
    for (int i = 0; i < tensor.rows * tensor.cols; ++i) {
      double& p = reference.parameters[tensor.offset + static_cast<size_t>(i)];
      const double saved = p, h = 1e-5;
      p = saved + h;
      const double up = reference.Loss(x, rows, dlogits, dvalue);
      p = saved - h;
      const double down = reference.Loss(x, rows, dlogits, dvalue);
      p = saved;
      const double expected = (up - down) / (2 * h);
      EXPECT_NEAR(gradients[tensor.offset + static_cast<size_t>(i)], expected,
                  2e-4 * (1 + std::abs(expected)))
          << tensor.name << " " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ActorCriticTest,
                         testing::Combine(testing::Values(Activation::kTanh, Activation::kRelu,
                                                          Activation::kGelu, Activation::kSilu),
                                          testing::Bool()));

TEST(ActorCritic, ARowsBitsDoNotDependOnTheRowsBesideIt) {
  ActorCriticSpec spec;
  spec.inputs = 118;
  spec.hidden = {128, 128};
  spec.outputs = 3;
  const ActorCritic net(spec);
  std::vector<float> parameters(net.parameter_floats()), packed(net.packed_floats());
  net.Initialize(3, PolicySection{}, parameters.data());
  net.PackAll(parameters.data(), packed.data(), false);
  const int rows = 64;
  const std::vector<float> x = Noise(static_cast<size_t>(rows * spec.inputs), 5, 2.0f);
  ActorCritic::Workspace all(net, rows), one(net, rows);
  net.Forward(parameters.data(), packed.data(), x.data(), spec.inputs, rows, all);
  for (int r = 0; r < rows; ++r) {
    net.Forward(parameters.data(), packed.data(), x.data() + r * spec.inputs, spec.inputs, 1, one);
    for (int o = 0; o < 3; ++o) EXPECT_EQ(one.logits[o], all.logits[r * all.logits_ld + o]);
    EXPECT_EQ(one.value[0], all.value[r * all.value_ld]);
  }
}

TEST(OrthogonalInit, ShorterSideIsOrthonormalTimesTheGain) {
  // The last two are large enough to be made by blocks; one of them does not end with a block.
  for (const auto& size : {std::pair{12, 5}, {5, 12}, {8, 8}, {6, 1}, {700'001, 6}, {10, 419'432}}) {
    const int rows = size.first, cols = size.second;
    std::vector<float> w(static_cast<size_t>(rows * cols));
    OrthogonalInit(4, 2, rows, cols, cols, 1.5, w.data());
    const bool tall = rows >= cols;
    const int count = tall ? cols : rows, length = tall ? rows : cols;
    for (int i = 0; i < count; ++i) {
      for (int j = 0; j < count; ++j) {
        double dot = 0;
        for (int k = 0; k < length; ++k) {
          const auto at = [&](int v) { return w[static_cast<size_t>(tall ? k * cols + v : v * cols + k)]; };
          dot += static_cast<double>(at(i)) * at(j);
        }
        EXPECT_NEAR(dot, i == j ? 2.25 : 0.0, 1e-5);
      }
    }
  }
}

}  // namespace
}  // namespace millrace
