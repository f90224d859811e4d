// CartPole-v1. The equations are those of R. V. Florian, "Correct equations for the dynamics of the cart-pole
// system", 2005, without friction, by explicit Euler steps; every operation in the order in which Gymnasium
// rounds.
#include "actor/envs/classic_control/block.h"
#include "actor/envs/classic_control/classic_control.h"
#include "actor/envs/classic_control/trig.h"
#include "actor/envs/episode_random.h"

namespace millrace {
namespace {

struct CartPole {
  using State = CartPoleState;
  static constexpr int kObs = 4;

  static EnvSpec Spec() {
    EnvSpec spec;
    spec.id = "CartPole-v1";
    spec.observations = {{"obs", DType::kF32, {kObs}}};
    spec.action.kind = ActionSpec::Kind::kDiscrete;
    spec.action.nvec = {2};
    spec.max_episode_steps = 500;
    spec.summary = "keep a pole upright on a cart by pushing the cart left or right";
    return spec;
  }

  static State Initial(uint64_t seed) {
    EpisodeRandom random(seed);
    State s;
    s.x = random.Uniform(-0.05, 0.05);
    s.x_dot = random.Uniform(-0.05, 0.05);
    s.theta = random.Uniform(-0.05, 0.05);
    s.theta_dot = random.Uniform(-0.05, 0.05);
    return s;
  }

  static void Observe(const State& s, float* obs) {
    obs[0] = static_cast<float>(s.x);
    obs[1] = static_cast<float>(s.x_dot);
    obs[2] = static_cast<float>(s.theta);
    obs[3] = static_cast<float>(s.theta_dot);
  }

  static void Step(const classic::Lanes<4, kObs>& lanes) {
    constexpr double kGravity = 9.8, kPoleMass = 0.1, kTotalMass = 0.1 + 1.0, kHalfLength = 0.5;
    constexpr double kPoleMassLength = kPoleMass * kHalfLength, kForce = 10.0, kTau = 0.02;
    constexpr double kTrackEnd = 2.4, kFallen = 12 * 2 * 3.14159265358979323846 / 360;

    double* __restrict x = lanes.state[0];
    double* __restrict x_dot = lanes.state[1];
    double* __restrict theta = lanes.state[2];
    double* __restrict theta_dot = lanes.state[3];
    double* __restrict sine = lanes.scratch[0];
    double* __restrict cosine = lanes.scratch[1];
    SinCosArray(theta, sine, cosine, lanes.n);

    MILL_SIMD
    for (int i = 0; i < lanes.n; ++i) {
      const double force = lanes.action[i] == 1.0 ? kForce : -kForce;
      const double s = sine[i], c = cosine[i], rate = theta_dot[i];
      const double push = (force + kPoleMassLength * (rate * rate) * s) / kTotalMass;
      const double theta_acc =
          (kGravity * s - c * push) / (kHalfLength * (4.0 / 3.0 - kPoleMass * (c * c) / kTotalMass));
      const double x_acc = push - kPoleMassLength * theta_acc * c / kTotalMass;

      const double new_x = x[i] + kTau * x_dot[i];
      const double new_theta = theta[i] + kTau * rate;
      x[i] = new_x;
      x_dot[i] += kTau * x_acc;
      theta[i] = new_theta;
      theta_dot[i] = rate + kTau * theta_acc;

      const bool off = std::fabs(new_x) > kTrackEnd;
      const bool fallen = std::fabs(new_theta) > kFallen;
      lanes.terminated[i] = static_cast<uint64_t>(off) | static_cast<uint64_t>(fallen);
      lanes.reward[i] = 1.0;
    }

    for (int j = 0; j < kObs; ++j) {
      const double* __restrict column = lanes.state[j];
      float* __restrict obs = lanes.obs[j];
      MILL_SIMD
      for (int i = 0; i < lanes.n; ++i) obs[i] = static_cast<float>(column[i]);
    }
  }
};

}  // namespace

StatusOr<std::unique_ptr<Env>> MakeCartPole(int rows, const EnvParams& params) {
  return classic::MakeBlock<CartPole>(rows, params);
}

}  // namespace millrace
