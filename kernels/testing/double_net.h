// DoubleNet: the forward pass of an ActorCritic in double, written from its documented layout and knowing
// nothing of packing, towers or kernels; what tests compare values with and take finite differences of.
#pragma once

#include <cmath>
#include <numbers>
#include <vector>

#include "kernels/net/actor_critic.h"
#include "kernels/ops/philox.h"

namespace millrace {

// n numbers in [-scale/2, scale/2), the same for a stream everywhere.
inline std::vector<float> Noise(size_t n, uint32_t stream, float scale) {
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i)
    x[i] = scale * (UniformFloat(PhiloxAt(9, Purpose::kTest, stream, i).v[0]) - 0.5f);
  return x;
}

struct DoubleNet {
  const ActorCritic& net;
  std::vector<double> parameters;

  static double Activate(Activation a, double x) {
    switch (a) {
      case Activation::kTanh:
        return std::tanh(x);
      case Activation::kRelu:
        return x > 0 ? x : 0;
      case Activation::kSilu:
        return x / (1 + std::exp(-x));
      case Activation::kGelu:
        return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
      case Activation::kNone:
        return x;
    }
    return x;
  }
  // Outputs of one tower, whose tensors are tensors()[first ..].
  std::vector<double> Tower(size_t first, const float* x) const {
    const size_t layers = net.spec().hidden.size() + 1;
    std::vector<double> h(x, x + net.spec().inputs);
    for (size_t i = 0; i < layers; ++i) {
      const ParameterTensor& weight = net.tensors()[first + 2 * i];
      const ParameterTensor& bias = net.tensors()[first + 2 * i + 1];
      std::vector<double> y(static_cast<size_t>(weight.cols));
      for (size_t c = 0; c < y.size(); ++c) {
        y[c] = parameters[bias.offset + c];
        for (size_t r = 0; r < h.size(); ++r) y[c] += h[r] * parameters[weight.offset + r * y.size() + c];
        if (i + 1 < layers) y[c] = Activate(net.spec().activation, y[c]);
      }
      h = y;
    }
    return h;
  }
  // sum over rows of (outputs . g)
  double Loss(const std::vector<float>& x, int rows, const std::vector<float>& dlogits,
              const std::vector<float>& dvalue) const {
    double loss = 0;
    const int outputs = net.spec().outputs;
    for (int r = 0; r < rows; ++r) {
      const float* row = x.data() + r * net.spec().inputs;
      std::vector<double> out = Tower(0, row);
      if (!net.spec().shared) out.push_back(Tower(2 * (net.spec().hidden.size() + 1), row)[0]);
      for (int o = 0; o < outputs; ++o)
        loss += out[static_cast<size_t>(o)] * dlogits[static_cast<size_t>(r * outputs + o)];
      loss += out[static_cast<size_t>(outputs)] * dvalue[static_cast<size_t>(r)];
    }
    return loss;
  }
};

}  // namespace millrace
