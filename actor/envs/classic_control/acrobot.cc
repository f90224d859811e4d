// Acrobot-v1: a two-link pendulum with a torque at the elbow, by one Runge-Kutta step of 0.2 s. The equations
// are those of Sutton and Barto, "Reinforcement Learning: An Introduction", section 11.3 of its first
// edition, with unit lengths, masses and moments of inertia and centres of mass in the middle; every
// operation in the order in which Gymnasium rounds.
#include "actor/envs/classic_control/block.h"
#include "actor/envs/classic_control/classic_control.h"
#include "actor/envs/classic_control/trig.h"
#include "actor/envs/episode_random.h"

namespace millrace {
namespace {

constexpr double kPi = 3.14159265358979323846;

struct Derivative {
  double theta1, theta2, theta1_dot, theta2_dot;
};

MILL_HD Derivative Slope(const AcrobotState& s, double torque) {
  constexpr double kGravity = 9.8;
  const SinCosPair elbow = SinCosBounded(s.theta2);
  const double d1 = 0.25 + (1.25 + elbow.cos) + 1.0 + 1.0;
  const double d2 = 0.25 + 0.5 * elbow.cos + 1.0;
  const double phi2 = 0.5 * kGravity * SinCosBounded(s.theta1 + s.theta2 - kPi / 2).cos;
  const double phi1 = -0.5 * (s.theta2_dot * s.theta2_dot) * elbow.sin -
                      s.theta2_dot * s.theta1_dot * elbow.sin +
                      1.5 * kGravity * SinCosBounded(s.theta1 - kPi / 2).cos + phi2;
  const double theta2_acc =
      (torque + d2 / d1 * phi1 - 0.5 * (s.theta1_dot * s.theta1_dot) * elbow.sin - phi2) /
      (1.25 - d2 * d2 / d1);
  return {s.theta1_dot, s.theta2_dot, -(d2 * theta2_acc + phi1) / d1, theta2_acc};
}

MILL_HD AcrobotState Along(const AcrobotState& s, double time, const Derivative& d) {
  return {s.theta1 + time * d.theta1, s.theta2 + time * d.theta2, s.theta1_dot + time * d.theta1_dot,
          s.theta2_dot + time * d.theta2_dot};
}

MILL_HD double Mean(double k1, double k2, double k3, double k4) {
  return k1 + 2 * k2 + 2 * k3 + k4;
}

MILL_HD AcrobotState RungeKutta(const AcrobotState& s, double torque) {
  constexpr double kDt = 0.2;
  const Derivative k1 = Slope(s, torque);
  const Derivative k2 = Slope(Along(s, kDt / 2, k1), torque);
  const Derivative k3 = Slope(Along(s, kDt / 2, k2), torque);
  const Derivative k4 = Slope(Along(s, kDt, k3), torque);
  const Derivative sum = {Mean(k1.theta1, k2.theta1, k3.theta1, k4.theta1),
                          Mean(k1.theta2, k2.theta2, k3.theta2, k4.theta2),
                          Mean(k1.theta1_dot, k2.theta1_dot, k3.theta1_dot, k4.theta1_dot),
                          Mean(k1.theta2_dot, k2.theta2_dot, k3.theta2_dot, k4.theta2_dot)};
  return Along(s, kDt / 6, sum);
}

MILL_HD double Clamp(double value, double bound) {
  value = value < -bound ? -bound : value;
  return value > bound ? bound : value;
}

// One turn nearer to [-pi, pi].
MILL_HD double Turn(double angle) {
  angle = angle > kPi ? angle - 2 * kPi : angle;
  return angle < -kPi ? angle + 2 * kPi : angle;
}

MILL_HD bool Outside(double angle) {
  return std::fabs(angle) > kPi;
}

// Turns angles [n] into [-pi, pi] turn by turn, for that is how Gymnasium rounds them. Bounded speeds make
// more than two turns rare.
void Wrap(double* __restrict angle, int n) {
  for (int turns = 0; turns < 1000; ++turns) {
    uint64_t outside = 0;
    MILL_SIMD
    for (int i = 0; i < n; ++i) {
      angle[i] = Turn(angle[i]);
      outside |= static_cast<uint64_t>(Outside(angle[i]));
    }
    if (outside == 0) return;
  }
}

struct Acrobot {
  using State = AcrobotState;
  static constexpr int kObs = 6;

  static EnvSpec Spec() {
    EnvSpec spec;
    spec.id = "Acrobot-v1";
    spec.observations = {{"obs", DType::kF32, {kObs}}};
    spec.action.kind = ActionSpec::Kind::kDiscrete;
    spec.action.nvec = {3};
    spec.max_episode_steps = 500;
    spec.summary = "swing the tip of a two-link pendulum above a line by a torque at its elbow";
    return spec;
  }

  // The first state of an episode is rounded to float32.
  static State Initial(uint64_t seed) {
    EpisodeRandom random(seed);
    double values[4];
    for (double& value : values) value = static_cast<double>(static_cast<float>(random.Uniform(-0.1, 0.1)));
    return {values[0], values[1], values[2], values[3]};
  }

  static void Observe(const State& s, float* obs) {
    const SinCosPair first = SinCos(s.theta1), second = SinCos(s.theta2);
    obs[0] = static_cast<float>(first.cos);
    obs[1] = static_cast<float>(first.sin);
    obs[2] = static_cast<float>(second.cos);
    obs[3] = static_cast<float>(second.sin);
    obs[4] = static_cast<float>(s.theta1_dot);
    obs[5] = static_cast<float>(s.theta2_dot);
  }

  // Angles stay far below the limit of SinCosBounded: a step begins with angles of at most pi and bounded
  // speeds, and the accelerations that these allow reach hundreds of radians at most within it.
  static void Step(const classic::Lanes<4, kObs>& lanes) {
    double* __restrict theta1 = lanes.state[0];
    double* __restrict theta2 = lanes.state[1];
    double* __restrict theta1_dot = lanes.state[2];
    double* __restrict theta2_dot = lanes.state[3];
    MILL_SIMD
    for (int i = 0; i < lanes.n; ++i) {
      const State next =
          RungeKutta({theta1[i], theta2[i], theta1_dot[i], theta2_dot[i]}, lanes.action[i] - 1.0);
      theta1[i] = next.theta1;
      theta2[i] = next.theta2;
      theta1_dot[i] = Clamp(next.theta1_dot, 4 * kPi);
      theta2_dot[i] = Clamp(next.theta2_dot, 9 * kPi);
    }
    Wrap(theta1, lanes.n);
    Wrap(theta2, lanes.n);
    MILL_SIMD
    for (int i = 0; i < lanes.n; ++i) {
      const SinCosPair first = SinCosBounded(theta1[i]), second = SinCosBounded(theta2[i]);
      const double height = -first.cos - SinCosBounded(theta2[i] + theta1[i]).cos;
      const bool up = height > 1.0;
      lanes.terminated[i] = static_cast<uint64_t>(up);
      lanes.reward[i] = up ? 0.0 : -1.0;
      lanes.obs[0][i] = static_cast<float>(first.cos);
      lanes.obs[1][i] = static_cast<float>(first.sin);
      lanes.obs[2][i] = static_cast<float>(second.cos);
      lanes.obs[3][i] = static_cast<float>(second.sin);
      lanes.obs[4][i] = static_cast<float>(theta1_dot[i]);
      lanes.obs[5][i] = static_cast<float>(theta2_dot[i]);
    }
  }
};

}  // namespace

StatusOr<std::unique_ptr<Env>> MakeAcrobot(int rows, const EnvParams& params) {
  return classic::MakeBlock<Acrobot>(rows, params);
}

}  // namespace millrace
