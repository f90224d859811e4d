// The forward passes of an Mlp and an ActorCritic in double, written from their documented layout and knowing
// nothing of packing or kernels; what tests compare values with and take finite differences of.
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

inline double ActivateDouble(Activation a, double x) {
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

// (h - mean) / sqrt(variance + 1e-5) * scale + shift
inline void NormalizeDouble(const double* scale, const double* shift, std::vector<double>* h) {
  const double n = static_cast<double>(h->size());
  double mean = 0, variance = 0;
  for (double v : *h) mean += v / n;
  for (double v : *h) variance += (v - mean) * (v - mean) / n;
  for (size_t i = 0; i < h->size(); ++i)
    (*h)[i] = ((*h)[i] - mean) / std::sqrt(variance + 1e-5) * scale[i] + shift[i];
}

// Outputs of one tower of an Mlp for an input of net.spec().inputs numbers.
inline std::vector<double> DoubleTower(const Mlp& net, const std::vector<double>& parameters, size_t tower,
                                       std::vector<double> h) {
  const MlpSpec& spec = net.spec();
  const size_t layers = spec.hidden.size() + 1, each = spec.layer_norm ? 4 : 2;
  size_t at = tower * (each * layers - (each - 2));
  for (size_t i = 0; i < layers; ++i) {
    const bool last = i + 1 == layers;
    const double* weight = parameters.data() + net.tensors()[at].offset;
    const double* bias = parameters.data() + net.tensors()[at + 1].offset;
    std::vector<double> y(static_cast<size_t>(net.tensors()[at].cols));
    for (size_t c = 0; c < y.size(); ++c) {
      y[c] = bias[c];
      for (size_t r = 0; r < h.size(); ++r) y[c] += h[r] * weight[r * y.size() + c];
    }
    if (!last && spec.layer_norm) {
      NormalizeDouble(parameters.data() + net.tensors()[at + 2].offset,
                      parameters.data() + net.tensors()[at + 3].offset, &y);
    }
    if (!last) {
      for (double& v : y) v = ActivateDouble(spec.activation, v);
    }
    at += last ? 2 : each;
    h = y;
  }
  return h;
}

struct DoubleNet {
  const ActorCritic& net;
  std::vector<double> parameters;

  // Outputs of one tower, whose tensors are tensors()[first ..].
  std::vector<double> Tower(size_t first, const float* x) const {
    const size_t tower = first / (2 * (net.spec().hidden.size() + 1));
    return DoubleTower(net.mlp(), parameters, tower, std::vector<double>(x, x + net.spec().inputs));
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
