// Pendulum-v1: an underactuated pendulum under a torque, m = l = 1, g = 10. The torque is float32, and so are
// the terms in which it stands alone; the state is float64.
#include "actor/envs/classic_control/block.h"
#include "actor/envs/classic_control/classic_control.h"
#include "actor/envs/classic_control/trig.h"
#include "actor/envs/episode_random.h"

namespace millrace {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr float kMaxTorque = 2.0f;
constexpr double kMaxSpeed = 8.0;

// The angle in [-pi, pi): the remainder of a floored division, exact but for the sign's correction.
MILL_HD double Wrapped(double angle) {
  const double shifted = angle + kPi;
  double rest = __builtin_fma(-std::floor(shifted / (2 * kPi)), 2 * kPi, shifted);
  rest = rest < 0 ? rest + 2 * kPi : rest;  // the quotient was rounded up to an integer
  return rest - kPi;
}

struct Pendulum {
  using State = PendulumState;
  static constexpr int kObs = 3;

  static EnvSpec Spec() {
    EnvSpec spec;
    spec.id = "Pendulum-v1";
    spec.observations = {{"obs", DType::kF32, {kObs}}};
    spec.action.kind = ActionSpec::Kind::kBox;
    spec.action.low = {-kMaxTorque};
    spec.action.high = {kMaxTorque};
    spec.max_episode_steps = 200;
    spec.summary = "swing a pendulum up and hold it there with a torque too weak to lift it";
    return spec;
  }

  static State Initial(uint64_t seed) {
    EpisodeRandom random(seed);
    State s;
    s.theta = random.Uniform(-kPi, kPi);
    s.theta_dot = random.Uniform(-1.0, 1.0);
    return s;
  }

  static void Observe(const State& s, float* obs) {
    const SinCosPair pair = SinCos(s.theta);
    obs[0] = static_cast<float>(pair.cos);
    obs[1] = static_cast<float>(pair.sin);
    obs[2] = static_cast<float>(s.theta_dot);
  }

  static void Step(const classic::Lanes<2, kObs>& lanes) {
    constexpr double kDt = 0.05;
    double* __restrict theta = lanes.state[0];
    double* __restrict theta_dot = lanes.state[1];
    double* __restrict sine = lanes.scratch[0];
    double* __restrict cosine = lanes.scratch[1];
    SinCosArray(theta, sine, cosine, lanes.n);

    MILL_SIMD
    for (int i = 0; i < lanes.n; ++i) {
      float torque = static_cast<float>(lanes.action[i]);
      torque = torque > kMaxTorque ? kMaxTorque : torque;
      torque = torque < -kMaxTorque ? -kMaxTorque : torque;
      const double angle = Wrapped(theta[i]), rate = theta_dot[i];
      const double cost =
          angle * angle + 0.1 * (rate * rate) + static_cast<double>(0.001f * (torque * torque));
      double new_rate = rate + (15.0 * sine[i] + static_cast<double>(3.0f * torque)) * kDt;
      new_rate = new_rate > kMaxSpeed ? kMaxSpeed : new_rate;
      new_rate = new_rate < -kMaxSpeed ? -kMaxSpeed : new_rate;
      theta[i] += new_rate * kDt;
      theta_dot[i] = new_rate;
      lanes.reward[i] = -cost;
      lanes.terminated[i] = 0;
    }

    SinCosArray(theta, sine, cosine, lanes.n);
    MILL_SIMD
    for (int i = 0; i < lanes.n; ++i) {
      lanes.obs[0][i] = static_cast<float>(cosine[i]);
      lanes.obs[1][i] = static_cast<float>(sine[i]);
      lanes.obs[2][i] = static_cast<float>(theta_dot[i]);
    }
  }
};

}  // namespace

StatusOr<std::unique_ptr<Env>> MakePendulum(int rows, const EnvParams& params) {
  return classic::MakeBlock<Pendulum>(rows, params);
}

}  // namespace millrace
