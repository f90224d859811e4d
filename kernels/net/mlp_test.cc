#include "kernels/net/mlp.h"

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "kernels/testing/double_net.h"

namespace millrace {
namespace {

constexpr int kRows = 9;

MlpSpec Critics(Activation activation, bool layer_norm, std::vector<int> hidden) {
  MlpSpec spec;
  spec.inputs = 7;
  spec.hidden = std::move(hidden);
  spec.activation = activation;
  spec.layer_norm = layer_norm;
  spec.input_gradient_from = 5;
  spec.towers = {{"critic0", 1}, {"critic1", 1}};
  return spec;
}

// Weights, an input, the loss's gradients, and what comes of them by rows and columns.
struct Trained {
  explicit Trained(const MlpSpec& spec, int checkpoint = 0, int cut = 4)
      : net(spec),
        parameters(Noise(net.parameter_floats(), 1, 1.0f)),
        x(Noise(static_cast<size_t>(kRows * spec.inputs), 2, 2.0f)),
        gradients(net.parameter_floats(), 9.0f),
        packed(net.packed_floats()),
        workspace(net, kRows, Mlp::Keep::kGradients, checkpoint) {
    for (int task = 0; task < net.pack_tasks(true); ++task) net.Pack(task, parameters.data(), packed.data());
    for (size_t t = 0; t < net.towers(); ++t) {
      doutput.push_back(Noise(kRows, 10 + static_cast<uint32_t>(t), 1.0f));
      dx.emplace_back(kRows * 2, 9.0f);
      for (int first = 0; first < kRows; first += cut) Forward(t, {first, std::min(cut, kRows - first)});
    }
    for (int segment = workspace.segments(); segment-- > 0;) Backward(segment, cut);
  }
  void Forward(size_t t, Mlp::Rows rows) {
    net.Forward(t, parameters.data(), packed.data(), x.data(), net.spec().inputs, rows, workspace);
    std::copy(doutput[t].begin(), doutput[t].end(), workspace.doutput(t));
  }
  void Backward(int segment, int cut) {
    for (size_t t = 0; t < net.towers(); ++t) {
      for (int first = 0; first < kRows; first += cut) {
        net.BackwardRows(t, segment, parameters.data(), packed.data(), x.data(), net.spec().inputs,
                         {first, std::min(cut, kRows - first)}, workspace, dx[t].data(), 2);
      }
    }
    for (int task = 0; task < workspace.grad_tasks(segment); ++task)
      squares +=
          net.GradWeights(task, segment, x.data(), net.spec().inputs, kRows, workspace, gradients.data());
  }

  Mlp net;
  std::vector<float> parameters, x, gradients, packed;
  Mlp::Workspace workspace;
  std::vector<std::vector<float>> doutput, dx;
  double squares = 0;
};

// Only what belongs to a tensor: between tensors is padding.
std::vector<float> OfTensors(const Mlp& net, const std::vector<float>& flat) {
  std::vector<float> out;
  for (const ParameterTensor& t : net.tensors()) {
    const auto begin = flat.begin() + static_cast<ptrdiff_t>(t.offset);
    out.insert(out.end(), begin, begin + t.rows * t.cols);
  }
  return out;
}

double Loss(const Trained& run, const std::vector<double>& parameters, const std::vector<double>& x) {
  double loss = 0;
  const size_t inputs = static_cast<size_t>(run.net.spec().inputs);
  for (size_t t = 0; t < run.net.towers(); ++t) {
    for (size_t r = 0; r < kRows; ++r) {
      const auto row = x.begin() + static_cast<ptrdiff_t>(r * inputs);
      const auto end = row + static_cast<ptrdiff_t>(inputs);
      loss += static_cast<double>(run.doutput[t][r]) * DoubleTower(run.net, parameters, t, {row, end})[0];
    }
  }
  return loss;
}

// The derivative of f() by *at.
template <class F>
double Slope(double* at, F f) {
  const double kept = *at, h = 1e-5;
  *at = kept + h;
  const double up = f();
  *at = kept - h;
  const double down = f();
  *at = kept;
  return (up - down) / (2 * h);
}

class MlpTest : public testing::TestWithParam<std::tuple<Activation, bool>> {};

TEST_P(MlpTest, OutputsAndGradientsMatchDouble) {
  Trained run(Critics(std::get<0>(GetParam()), std::get<1>(GetParam()), {70, 6}));
  std::vector<double> parameters(run.parameters.begin(), run.parameters.end());
  std::vector<double> x(run.x.begin(), run.x.end());
  for (size_t t = 0; t < 2; ++t) {
    for (size_t r = 0; r < kRows; ++r) {
      const double want = DoubleTower(run.net, parameters, t, {x.begin() + r * 7, x.begin() + r * 7 + 7})[0];
      EXPECT_NEAR(run.workspace.output(t)[r], want, 2e-5);
    }
  }
  double squares = 0;
  for (const ParameterTensor& tensor : run.net.tensors()) {
    for (int i = 0; i < tensor.rows * tensor.cols; ++i) {
      const size_t at = tensor.offset + static_cast<size_t>(i);
      const double want = Slope(&parameters[at], [&] { return Loss(run, parameters, x); });
      EXPECT_NEAR(run.gradients[at], want, 3e-4 * (1 + std::abs(want))) << tensor.name << " " << i;
      squares += static_cast<double>(run.gradients[at]) * run.gradients[at];
    }
  }
  EXPECT_NEAR(run.squares, squares, 1e-5 * squares);
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t c = 0; c < 2; ++c) {
      const double want = Slope(&x[r * 7 + 5 + c], [&] { return Loss(run, parameters, x); });
      EXPECT_NEAR(run.dx[0][r * 2 + c] + run.dx[1][r * 2 + c], want, 3e-4 * (1 + std::abs(want)));
    }
  }
}

TEST_P(MlpTest, OneBlockOfRowsAtOnceHasTheSameBits) {
  const MlpSpec spec = Critics(std::get<0>(GetParam()), std::get<1>(GetParam()), {70, 6, 33});
  const Trained run(spec);
  for (int checkpoint : {0, 1, 2}) {
    Mlp::Workspace w(run.net, kRows, Mlp::Keep::kActivations, checkpoint);
    std::vector<float> gradients(run.net.parameter_floats(), 0.0f);
    const float *p = run.parameters.data(), *packed = run.packed.data(), *x = run.x.data();
    for (size_t t = 0; t < 2; ++t) run.net.Forward(t, p, packed, x, 7, {0, kRows}, w);
    for (size_t t = 0; t < 2; ++t) {
      std::copy(run.doutput[t].begin(), run.doutput[t].end(), w.doutput(t));
      run.net.Backward(t, p, packed, x, 7, {0, kRows}, w, gradients.data());
    }
    EXPECT_EQ(OfTensors(run.net, gradients), OfTensors(run.net, run.gradients)) << checkpoint;
  }
}

TEST_P(MlpTest, ForwardOnlyHasTheSameBitsInLessMemory) {
  const Trained run(Critics(std::get<0>(GetParam()), std::get<1>(GetParam()), {70, 6, 33}));
  Mlp::Workspace w(run.net, kRows, Mlp::Keep::kOutputs);
  for (size_t t = 0; t < 2; ++t) {
    run.net.Forward(t, run.parameters.data(), run.packed.data(), run.x.data(), 7, {0, kRows}, w);
  }
  for (size_t t = 0; t < 2; ++t) {
    for (int r = 0; r < kRows; ++r)
      EXPECT_EQ(w.output(t)[r], const_cast<Trained&>(run).workspace.output(t)[r]);
  }
  EXPECT_LT(w.bytes(), run.workspace.bytes());
}

TEST_P(MlpTest, CheckpointsAndTheCutIntoRowsDoNotChangeABit) {
  const MlpSpec spec = Critics(std::get<0>(GetParam()), std::get<1>(GetParam()), {12, 6, 33, 9, 20, 17});
  const Trained all(spec);
  for (int checkpoint : {1, 2, 3, 5, 7}) {
    const Trained some(spec, checkpoint, checkpoint + 1);
    EXPECT_EQ(OfTensors(all.net, some.gradients), OfTensors(all.net, all.gradients)) << checkpoint;
    EXPECT_EQ(some.dx, all.dx) << checkpoint;
  }
}

TEST_P(MlpTest, RowsGatheredFromABatchHaveTheInputGradientsThatTheyHadInIt) {
  const Trained run(Critics(std::get<0>(GetParam()), std::get<1>(GetParam()), {70, 6, 33}));
  const std::vector<int32_t> rows = {0, 3, 4, 8};
  Mlp::Workspace w(run.net, static_cast<int>(rows.size()), Mlp::Keep::kActivations);
  for (size_t t = 0; t < 2; ++t) {
    std::vector<float> dx(rows.size() * 2, 9.0f);
    run.net.GatherRows(t, run.workspace, rows.data(), static_cast<int>(rows.size()), w);
    for (size_t i = 0; i < rows.size(); ++i) w.doutput(t)[i] = run.doutput[t][static_cast<size_t>(rows[i])];
    run.net.BackwardRows(t, 0, run.parameters.data(), run.packed.data(), nullptr, 7,
                         {0, static_cast<int>(rows.size())}, w, dx.data(), 2);
    for (size_t i = 0; i < rows.size(); ++i) {
      for (size_t c = 0; c < 2; ++c)
        EXPECT_EQ(dx[i * 2 + c], run.dx[t][static_cast<size_t>(rows[i]) * 2 + c]) << t << " " << rows[i];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, MlpTest,
                         testing::Combine(testing::Values(Activation::kTanh, Activation::kRelu,
                                                          Activation::kGelu),
                                          testing::Bool()));

// ReLU keeps a layer's output and its gradient: of 16 layers of 64 and a head of 1, 2 * 16 of them. Every 4:
// outputs of 4 checkpoints and of 3 layers between, gradients of 5.
TEST(Mlp, CheckpointsNeedTheMemoryThatWasComputed) {
  MlpSpec spec = Critics(Activation::kRelu, false, std::vector<int>(16, 64));
  spec.towers.resize(1);
  const Mlp net(spec);
  const auto bytes = [&](int checkpoint) {
    return static_cast<double>(Mlp::Workspace(net, 256, Mlp::Keep::kGradients, checkpoint).bytes());
  };
  const double layer = 256 * 64 * sizeof(float), head = 2 * 256 * sizeof(float);
  EXPECT_NEAR(bytes(0), 32 * layer + head, 64);
  EXPECT_NEAR(bytes(4), 12 * layer + head, 64);
}

}  // namespace
}  // namespace millrace
