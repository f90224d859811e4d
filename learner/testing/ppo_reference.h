// What tests of PpoLearner share: small options, made-up batches, and the whole update in double to compare
// with. Test code only; one thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numbers>
#include <vector>

#include "kernels/testing/double_net.h"
#include "learner/ppo.h"

namespace millrace {

inline constexpr int kSteps = 5;

inline RunOptions SmallOptions(bool shared) {
  RunOptions options;
  options.env.rows = 3;
  options.policy.hidden = {6};
  options.policy.shared = shared;
  options.ppo.horizon = kSteps;
  options.ppo.minibatch_size = 1000;
  options.ppo.epochs = 1;
  options.ppo.entropy_coef = 0.03;
  options.ppo.max_grad_norm = 0.2;
  return options;
}

enum class Kind { kDiscrete, kMaskedMultiDiscrete, kBox };

inline EnvSpec SmallSpec(Kind kind) {
  EnvSpec spec;
  spec.id = "Small";
  spec.observations = {{"x", DType::kF32, {4}}};
  if (kind == Kind::kBox) {
    spec.action.kind = ActionSpec::Kind::kBox;
    spec.action.low = {-1, -1};
    spec.action.high = {1, 1};
  } else if (kind == Kind::kDiscrete) {
    spec.action.nvec = {3};
  } else {
    spec.action.kind = ActionSpec::Kind::kMultiDiscrete;
    spec.action.nvec = {3, 2};
    spec.action_mask = true;
  }
  return spec;
}

// Segments (of 2 rows and 1) of made-up data with a terminated step, a truncated one and an invalid one.
// Others for another stream.
struct Batch {
  explicit Batch(const EnvSpec& spec, const std::vector<int>& group_rows = {2, 1}, uint32_t stream = 20) {
    for (int rows : group_rows)
      layouts.push_back(std::make_unique<SegmentLayout>(spec, kSteps, rows, kSteps * rows));
    for (const auto& layout : layouts) {
      memory.emplace_back(layout->bytes() + 64);
      auto* base =
          reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.back().data()) + 63) / 64 * 64);
      const SegmentView s(layout.get(), base);
      const auto n = static_cast<size_t>(layout->samples());
      const auto fill = [&](void* to, size_t count, float scale) {
        const std::vector<float> noise = Noise(count, stream++, scale);
        std::memcpy(to, noise.data(), count * sizeof(float));
      };
      fill(s.obs(0, 0), (n + static_cast<size_t>(layout->rows())) * 4, 3.0f);
      fill(s.final_obs(0, 0), 4, 3.0f);
      if (spec.action.box()) {
        fill(s.action(), n * 2, 2.0f);
      } else {
        FillDiscrete(spec, s);
      }
      fill(s.log_prob(), n, 0.5f);
      for (size_t i = 0; i < n; ++i) s.log_prob()[i] -= spec.action.box() ? 2.5f : 1.1f;
      fill(s.value(), n, 1.0f);
      fill(s.reward(), n, 2.0f);
      std::memset(s.valid(), 1, n);
      segments.push_back(s);
    }
    segments[0].terminated()[3] = 1;
    segments[0].truncated()[6] = 1;
    segments[0].final_index()[0] = 6;
    segments[0].final_count() = 1;
    segments[1].valid()[2] = 0;  // as the pool leaves one: cut off, with no final observation
    segments[1].truncated()[2] = 1;
  }
  // Actions in turn; masks that forbid one logit in some rows, never the action taken.
  static void FillDiscrete(const EnvSpec& spec, const SegmentView& s) {
    const int heads = spec.action.width(), outputs = spec.action.outputs();
    for (int i = 0; i < s.layout().samples(); ++i) {
      uint8_t* mask = spec.action_mask ? s.mask() + i * outputs : nullptr;
      for (int o = 0; o < outputs && mask != nullptr; ++o) mask[o] = 1;
      for (int h = 0, offset = 0; h < heads; offset += spec.action.nvec[static_cast<size_t>(h)], ++h) {
        const int n = spec.action.nvec[static_cast<size_t>(h)];
        static_cast<int32_t*>(s.action())[i * heads + h] = (i + h) % n;
        if (mask != nullptr && i % 3 != 0) mask[offset + (i + h + 1) % n] = 0;
      }
    }
  }
  std::vector<std::unique_ptr<SegmentLayout>> layouts;
  std::vector<std::vector<std::byte>> memory;
  std::vector<SegmentView> segments;
};

// The whole update by the published formulas in double: GAE or V-trace, the loss, its gradient by central
// differences, the clip of the global norm, and Adam's first step.
class Reference {
 public:
  Reference(const RunOptions& options, const EnvSpec& spec, const ActorCritic& net, const float* parameters)
      : options_(options), spec_(spec), net_{net, {parameters, parameters + net.parameter_floats()}} {}

  std::vector<double> Update(const Batch& batch) {
    const bool vtrace =
        options_.mode == RunMode::kAsync && options_.learner.correction == Correction::kVtrace;
    for (const SegmentView& segment : batch.segments) vtrace ? Corrected(segment) : Advantages(segment);
    Normalize();
    std::vector<double> gradient(net_.parameters.size());
    double squares = 0;
    for (const ParameterTensor& tensor : net_.net.tensors()) {
      for (int i = 0; i < tensor.rows * tensor.cols; ++i) {
        const size_t at = tensor.offset + static_cast<size_t>(i);
        const double saved = net_.parameters[at], h = 1e-5;
        net_.parameters[at] = saved + h;
        const double up = Loss();
        net_.parameters[at] = saved - h;
        gradient[at] = (up - Loss()) / (2 * h);
        net_.parameters[at] = saved;
        squares += gradient[at] * gradient[at];
      }
    }
    const double clip = std::min(1.0, options_.ppo.max_grad_norm / (std::sqrt(squares) + 1e-6));
    std::vector<double> next = net_.parameters;
    for (size_t i = 0; i < next.size(); ++i) {
      const double g = gradient[i] * clip;  // after one step of Adam, m^ = g and v^ = g^2
      next[i] -= options_.ppo.learning_rate * g / (std::abs(g) + options_.ppo.adam_eps);
    }
    return next;
  }

  double rho_clip_fraction() const { return clipped_ / static_cast<double>(samples_.size()); }
  // Makes the batch one that these weights have acted, in float32.
  void ActOnPolicy(const Batch& batch) const {
    for (const SegmentView& s : batch.segments) {
      for (int i = 0; i < s.layout().samples(); ++i) {
        s.value()[i] = static_cast<float>(Value(ObsOf(s, i)));
        s.log_prob()[i] = static_cast<float>(Policy(SampleOf(s, i)).log_prob);
      }
    }
  }

 private:
  struct Sample {
    const float* obs;
    const void* action;
    const uint8_t* mask;
    double log_prob, ret, advantage;
  };
  double Value(const float* obs) const {
    const std::vector<double> out = net_.Tower(options_.policy.shared ? 0 : 4, obs);
    return out.back();
  }
  static const float* ObsOf(const SegmentView& s, int i) {
    return reinterpret_cast<const float*>(s.obs(0, 0)) + i * 4;
  }
  Sample SampleOf(const SegmentView& s, int i) const {
    return {ObsOf(s, i),
            static_cast<const float*>(s.action()) + i * spec_.action.width(),
            spec_.action_mask ? s.mask() + i * spec_.action.outputs() : nullptr,
            s.log_prob()[i],
            0,
            0};
  }
  // Espeholt et al. 2018, eq. 1, with the ends of episodes kept apart; nothing passes an invalid step.
  void Corrected(const SegmentView& s) {
    const int rows = s.layout().rows();
    const double gamma = options_.ppo.gamma, rho_bar = options_.learner.rho_bar;
    for (int n = 0; n < rows; ++n) {
      double correction = 0, next_vs = 0;
      for (int t = kSteps - 1; t >= 0; --t) {
        const int i = t * rows + n;
        Sample sample = SampleOf(s, i);
        const double value = Value(sample.obs);
        if (s.valid()[i] == 0) {
          correction = 0, next_vs = value;
          continue;
        }
        const bool terminated = s.terminated()[i] != 0, truncated = s.truncated()[i] != 0;
        double next = Value(ObsOf(s, i + rows));
        if (truncated) next = Value(reinterpret_cast<const float*>(s.final_obs(0, 0)));
        if (terminated) next = 0;
        sample.log_prob = Policy(sample).log_prob;  // PPO's ratio is against the weights of the beginning
        const double rho = std::exp(sample.log_prob - s.log_prob()[i]);
        clipped_ += rho > rho_bar;
        const double trace = terminated || truncated ? 0 : gamma * options_.ppo.gae_lambda * correction;
        correction = std::min(rho_bar, rho) * (s.reward()[i] + gamma * next - value) +
                     std::min(options_.learner.c_bar, rho) * trace;
        if (!terminated && !truncated && t + 1 < kSteps) next = next_vs;
        sample.ret = next_vs = value + correction;
        sample.advantage = std::min(rho_bar, rho) * (s.reward()[i] + gamma * next - value);
        samples_.push_back(sample);
      }
    }
  }
  void Advantages(const SegmentView& s) {
    const int rows = s.layout().rows();
    for (int n = 0; n < rows; ++n) {
      double carry = 0;
      for (int t = kSteps - 1; t >= 0; --t) {
        const int i = t * rows + n;
        const bool terminated = s.terminated()[i] != 0, truncated = s.truncated()[i] != 0;
        double next = t + 1 < kSteps ? s.value()[i + rows]
                                     : Value(reinterpret_cast<const float*>(s.obs(0, kSteps)) + n * 4);
        if (truncated) next = Value(reinterpret_cast<const float*>(s.final_obs(0, 0)));
        const double delta = s.reward()[i] + (terminated ? 0 : options_.ppo.gamma * next) - s.value()[i];
        carry = delta + (terminated || truncated ? 0 : options_.ppo.gamma * options_.ppo.gae_lambda * carry);
        if (s.valid()[i] == 0) {
          carry = 0;  // nothing passes an invalid step
          continue;
        }
        samples_.push_back(SampleOf(s, i));
        samples_.back().ret = carry + s.value()[i];
        samples_.back().advantage = carry;
      }
    }
  }
  void Normalize() {
    double mean = 0, squares = 0;
    const auto n = static_cast<double>(samples_.size());
    for (const Sample& s : samples_) mean += s.advantage / n;
    for (const Sample& s : samples_) squares += (s.advantage - mean) * (s.advantage - mean);
    for (Sample& s : samples_) s.advantage = (s.advantage - mean) / (std::sqrt(squares / (n - 1)) + 1e-8);
  }
  struct PolicyTerms {
    double log_prob = 0, entropy = 0;
  };
  PolicyTerms Policy(const Sample& s) const {
    PolicyTerms terms;
    const std::vector<double> out = net_.Tower(0, s.obs);
    if (spec_.action.box()) {
      const size_t log_std = net_.net.tensors().back().offset;
      for (int d = 0; d < spec_.action.outputs(); ++d) {
        const double ls = net_.parameters[log_std + static_cast<size_t>(d)];
        const double z =
            (static_cast<const float*>(s.action)[d] - out[static_cast<size_t>(d)]) / std::exp(ls);
        terms.log_prob += -0.5 * z * z - ls - 0.5 * std::log(2 * std::numbers::pi);
        terms.entropy += ls + 0.5 * std::log(2 * std::numbers::pi * std::numbers::e);
      }
      return terms;
    }
    const auto* action = static_cast<const int32_t*>(s.action);
    for (int h = 0, offset = 0; h < spec_.action.width();
         offset += spec_.action.nvec[static_cast<size_t>(h)], ++h) {
      const int n = spec_.action.nvec[static_cast<size_t>(h)];
      const auto allowed = [&](int l) { return s.mask == nullptr || s.mask[offset + l] != 0; };
      const auto logit = [&](int l) { return out[static_cast<size_t>(offset + l)]; };
      double sum = 0;
      for (int l = 0; l < n; ++l) sum += allowed(l) ? std::exp(logit(l)) : 0;
      for (int l = 0; l < n; ++l) {
        if (!allowed(l)) continue;
        const double lp = logit(l) - std::log(sum);
        terms.entropy -= std::exp(lp) * lp;
        if (l == action[h]) terms.log_prob += lp;
      }
    }
    return terms;
  }
  double Loss() const {
    double loss = 0;
    for (const Sample& s : samples_) {
      const PolicyTerms terms = Policy(s);
      const double ratio = std::exp(terms.log_prob - s.log_prob), c = options_.ppo.clip_range;
      const double policy = -std::min(ratio * s.advantage, std::clamp(ratio, 1 - c, 1 + c) * s.advantage);
      const double error = Value(s.obs) - s.ret;
      loss +=
          policy + options_.ppo.value_coef * 0.5 * error * error - options_.ppo.entropy_coef * terms.entropy;
    }
    return loss / static_cast<double>(samples_.size());
  }
  const RunOptions& options_;
  const EnvSpec& spec_;
  DoubleNet net_;
  std::vector<Sample> samples_;
  double clipped_ = 0;
};

inline std::unique_ptr<PpoLearner> MakeLearner(const RunOptions& options, const EnvSpec& spec,
                                               ThreadPool& threads,
                                               const std::vector<int>& group_rows = {2, 1}) {
  auto learner = PpoLearner::Make(options, spec, group_rows, threads);
  EXPECT_TRUE(learner.ok()) << learner.status();
  return *std::move(learner);
}

inline std::vector<float> Weights(const PpoLearner& learner) {
  const float* p = learner.policy().parameters;
  return {p, p + learner.net().parameter_floats()};
}

}  // namespace millrace
