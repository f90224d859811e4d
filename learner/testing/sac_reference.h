// What tests of SacStep and SacLearner share: small options and batches, and a whole gradient step in double,
// whose gradients are finite differences of the losses as they are stated. Test code only; one thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/ops/gaussian.h"
#include "kernels/testing/double_net.h"
#include "learner/replay/batch_memory.h"
#include "learner/sac_step.h"

namespace millrace::sac_testing {

inline constexpr int kObs = 3;

inline RunOptions SmallOptions() {
  RunOptions options;
  options.algorithm = "sac";
  options.policy.hidden = {6, 5};
  options.policy.activation = Activation::kTanh;
  options.policy.gain_policy = 1;
  options.sac.batch_size = 7;
  options.sac.alpha = 0.3;
  options.sac.tau = 0.1;
  // Large, for a first step of Adam with a small one is the gradient's sign.
  options.sac.adam_eps = 0.5;
  options.sac.actor_learning_rate = options.sac.critic_learning_rate = 0.02;
  options.sac.alpha_learning_rate = 0.05;
  return options;
}

inline EnvSpec SmallSpec(bool box) {
  EnvSpec spec;
  spec.id = "Small";
  spec.observations = {{"x", DType::kF32, {kObs}}};
  if (box) {
    spec.action.kind = ActionSpec::Kind::kBox;
    spec.action.low = {-1, -2};
    spec.action.high = {1, 2};
  } else {
    spec.action.nvec = {4};
  }
  return spec;
}

// A batch of made-up transitions.
struct SmallBatch : ReplayBatchMemory {
  SmallBatch(int rows, bool box, uint32_t stream = 40)
      : ReplayBatchMemory(rows, kObs + (box ? 2 : 0), box ? 0 : 1), td(static_cast<size_t>(rows)) {
    Fill(x, stream, 2);
    Fill(next_x, stream + 1, 2);
    Fill(reward, stream + 2, 2);
    Fill(weight, stream + 3, 1);
    for (float& w : weight) w = std::abs(w) + 0.2f;
    std::fill(discount.begin(), discount.end(), 0.99f);
    discount[1] = 0;
    for (size_t r = 0; r < action.size(); ++r) action[r] = static_cast<int32_t>(r % 4);
  }
  std::vector<float> td;

 private:
  static void Fill(std::vector<float>& to, uint32_t stream, float scale) {
    const std::vector<float> noise = Noise(to.size(), stream, scale);
    std::copy(noise.begin(), noise.end(), to.begin());
  }
};

// The tensors of a step by name.
inline std::map<std::string, std::vector<double>> Tensors(SacStep& step) {
  std::map<std::string, std::vector<double>> all;
  for (const SacStep::Tensor& t : step.State())
    all[t.name] = std::vector<double>(t.data, t.data + static_cast<size_t>(t.rows) * t.cols);
  return all;
}

// A network's parameters as Mlp lays them out.
inline std::vector<double> Flatten(const Mlp& net, const std::string& group,
                                   const std::map<std::string, std::vector<double>>& tensors) {
  std::vector<double> flat(net.parameter_floats());
  for (const ParameterTensor& t : net.tensors()) {
    const std::vector<double>& from = tensors.at(group + t.name);
    std::copy(from.begin(), from.end(), flat.begin() + static_cast<ptrdiff_t>(t.offset));
  }
  return flat;
}

class Reference {
 public:
  Reference(const RunOptions& options, const EnvSpec& spec, SacStep& step)
      : options_(options),
        box_(spec.action.box()),
        dims_(box_ ? spec.action.width() : 0),
        step_(step),
        policy(Flatten(step.actor().mlp(), "weights/", Tensors(step))),
        critics(Flatten(step.critics(), "weights/", Tensors(step))),
        target(Flatten(step.critics(), "target/", Tensors(step))),
        log_alpha(Tensors(step).at("log_alpha")[0]) {}

  // The first step of all, number 0.
  void Step(const SmallBatch& batch) {
    std::vector<double> y;
    for (int r = 0; r < batch.view.rows; ++r) y.push_back(Target(batch, r));
    Descend(step_.critics(), options_.sac.critic_learning_rate, &critics,
            [&] { return CriticLoss(batch, y); });
    for (size_t i = 0; i < target.size(); ++i) target[i] += options_.sac.tau * (critics[i] - target[i]);
    double log_prob = 0;
    PolicyLoss(batch, &log_prob);
    Descend(step_.actor().mlp(), options_.sac.actor_learning_rate, &policy,
            [&] { return PolicyLoss(batch, nullptr); });
    const double g = -(log_prob + step_.target_entropy());
    log_alpha -= options_.sac.alpha_learning_rate * g / (std::abs(g) + options_.sac.adam_eps);
  }

 private:
  struct Action {
    std::vector<double> value;
    double log_prob = 0;
  };

  std::vector<double> Row(const std::vector<float>& x, const SmallBatch& b, int r, int n) const {
    const auto at = x.begin() + r * b.view.ld;
    return std::vector<double>(at, at + n);
  }
  Action Sample(const std::vector<double>& obs, Purpose purpose, int row) const {
    const std::vector<double> out = DoubleTower(step_.actor().mlp(), policy, 0, obs);
    const Philox4 w = PhiloxAt(options_.run.seed, purpose, static_cast<uint32_t>(row), 0);
    const NormalPair eps = BoxMuller(w.v[0], w.v[1]);
    Action a;
    for (int d = 0; d < dims_; ++d) {
      const double e = static_cast<double>(d == 0 ? eps.a : eps.b);
      const double log_std = std::clamp(out[static_cast<size_t>(dims_ + d)], -20.0, 2.0);
      const double u = out[static_cast<size_t>(d)] + std::exp(log_std) * e;
      a.value.push_back(std::tanh(u));
      a.log_prob += -0.5 * e * e - log_std - 0.5 * std::log(2 * std::acos(-1.0)) -
                    2 * (std::log(2.0) - u - std::log1p(std::exp(-2 * u)));
    }
    return a;
  }
  std::vector<double> Q(const std::vector<double>& parameters, size_t tower, std::vector<double> obs,
                        const std::vector<double>& action) const {
    obs.insert(obs.end(), action.begin(), action.end());
    return DoubleTower(step_.critics(), parameters, tower, std::move(obs));
  }
  std::vector<double> Probabilities(const std::vector<double>& obs) const {
    std::vector<double> p = DoubleTower(step_.actor().mlp(), policy, 0, obs);
    double sum = 0;
    for (double& v : p) sum += v = std::exp(v);
    for (double& v : p) v /= sum;
    return p;
  }
  // The critics that the target looks at, drawn as sac_step.cc documents.
  std::vector<size_t> Subset() const {
    std::vector<size_t> order(step_.critics().towers());
    std::iota(order.begin(), order.end(), size_t{0});
    const size_t n = order.size(), k = std::min<size_t>(options_.sac.critic_subset, n);
    for (size_t i = 0; i < k && k < n; ++i) {
      const uint64_t word =
          PhiloxAt(options_.run.seed, Purpose::kSacCritics, static_cast<uint32_t>(i), 0).v[0];
      std::swap(order[i], order[i + static_cast<size_t>(word * (n - i) >> 32)]);
    }
    order.resize(k);
    return order;
  }
  double Target(const SmallBatch& b, int r) const {
    const std::vector<double> obs = Row(b.next_x, b, r, kObs);
    const double alpha = std::exp(log_alpha);
    double value = 0;
    if (box_) {
      const Action a = Sample(obs, Purpose::kSacTarget, r);
      value = HUGE_VAL;
      for (size_t t : Subset()) value = std::min(value, Q(target, t, obs, a.value)[0]);
      value -= alpha * a.log_prob;
    } else {
      const std::vector<double> p = Probabilities(obs);
      for (size_t a = 0; a < p.size(); ++a) {
        double least = HUGE_VAL;
        for (size_t t : Subset()) least = std::min(least, Q(target, t, obs, {})[a]);
        value += p[a] * (least - alpha * std::log(p[a]));
      }
    }
    const auto row = static_cast<size_t>(r);
    return static_cast<double>(b.reward[row]) + static_cast<double>(b.discount[row]) * value;
  }
  double CriticLoss(const SmallBatch& b, const std::vector<double>& y) const {
    double loss = 0;
    for (int r = 0; r < b.view.rows; ++r) {
      const auto row = static_cast<size_t>(r);
      for (size_t t = 0; t < step_.critics().towers(); ++t) {
        const std::vector<double> q = Q(critics, t, Row(b.x, b, r, b.view.ld), {});
        const double error = q[box_ ? 0 : static_cast<size_t>(b.action[row])] - y[row];
        loss += 0.5 * static_cast<double>(b.weight[row]) * error * error / b.view.rows;
      }
    }
    return loss;
  }
  double Said(const std::vector<double>& q) const {
    if (options_.sac.critic_subset < options_.sac.critics)
      return std::accumulate(q.begin(), q.end(), 0.0) / static_cast<double>(q.size());
    return *std::min_element(q.begin(), q.end());
  }
  double PolicyLoss(const SmallBatch& b, double* log_prob) const {
    double loss = 0, log_probs = 0;
    for (int r = 0; r < b.view.rows; ++r) {
      const std::vector<double> obs = Row(b.x, b, r, kObs);
      std::vector<Action> actions;
      std::vector<double> p = {1};
      if (box_) {
        actions.push_back(Sample(obs, Purpose::kSacPolicy, r));
      } else {
        p = Probabilities(obs);
        for (double v : p) actions.push_back({{}, std::log(v)});
      }
      for (size_t a = 0; a < p.size(); ++a) {
        std::vector<double> q;
        for (size_t t = 0; t < step_.critics().towers(); ++t)
          q.push_back(Q(critics, t, obs, actions[a].value)[a]);
        loss += p[a] * (std::exp(log_alpha) * actions[a].log_prob - Said(q)) / b.view.rows;
        log_probs += p[a] * actions[a].log_prob / b.view.rows;
      }
    }
    if (log_prob != nullptr) *log_prob = log_probs;
    return loss;
  }
  // Adam's first step, whose moments after the bias correction are the gradient and its square.
  template <class F>
  void Descend(const Mlp& net, double rate, std::vector<double>* parameters, F loss) {
    std::vector<double> gradient(parameters->size());
    for (const ParameterTensor& t : net.tensors()) {
      for (int i = 0; i < t.rows * t.cols; ++i) {
        double& p = (*parameters)[t.offset + static_cast<size_t>(i)];
        const double kept = p, h = 1e-5;
        p = kept + h;
        const double up = loss();
        p = kept - h;
        const double down = loss();
        p = kept;
        gradient[t.offset + static_cast<size_t>(i)] = (up - down) / (2 * h);
      }
    }
    double norm = 0;
    for (double g : gradient) norm += g * g;
    const double most = options_.sac.max_grad_norm;
    const double scale = most > 0 ? std::min(1.0, most / (std::sqrt(norm) + 1e-6)) : 1;
    for (size_t i = 0; i < gradient.size(); ++i) {
      const double g = gradient[i] * scale;
      (*parameters)[i] -= rate * g / (std::abs(g) + options_.sac.adam_eps);
    }
  }

  const RunOptions options_;
  const bool box_;
  const int dims_;
  SacStep& step_;

 public:
  std::vector<double> policy, critics, target;
  double log_alpha;
};

}  // namespace millrace::sac_testing
