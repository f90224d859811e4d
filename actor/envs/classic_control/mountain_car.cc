// MountainCar-v0 and MountainCarContinuous-v0: an underpowered car in a valley, after A. W. Moore, 1990. The
// discrete task is float64 throughout; for the continuous one's precision see MountainCarContinuousState.
#include "actor/envs/classic_control/block.h"
#include "actor/envs/classic_control/classic_control.h"
#include "actor/envs/classic_control/trig.h"
#include "actor/envs/episode_random.h"

namespace millrace {
namespace {

constexpr double kLeftEnd = -1.2, kRightEnd = 0.6, kMaxSpeed = 0.07, kGravity = 0.0025;

MILL_HD double Clamp(double value, double low, double high) {
  value = value < low ? low : value;
  return value > high ? high : value;
}

// The double nearest to `value` that a float32 holds.
MILL_HD double Narrow(double value) {
  return static_cast<double>(static_cast<float>(value));
}

struct MountainCar {
  using State = MountainCarState;
  static constexpr int kObs = 2;

  static EnvSpec Spec() {
    EnvSpec spec;
    spec.id = "MountainCar-v0";
    spec.observations = {{"obs", DType::kF32, {kObs}}};
    spec.action.kind = ActionSpec::Kind::kDiscrete;
    spec.action.nvec = {3};
    spec.max_episode_steps = 200;
    spec.summary = "rock a car out of a valley that its engine is too weak to climb";
    return spec;
  }

  static State Initial(uint64_t seed) { return {EpisodeRandom(seed).Uniform(-0.6, -0.4), 0.0}; }

  static void Observe(const State& s, float* obs) {
    obs[0] = static_cast<float>(s.position);
    obs[1] = static_cast<float>(s.velocity);
  }

  static void Step(const classic::Lanes<2, kObs>& lanes) {
    constexpr double kForce = 0.001, kGoal = 0.5;
    double* __restrict position = lanes.state[0];
    double* __restrict velocity = lanes.state[1];
    MILL_SIMD
    for (int i = 0; i < lanes.n; ++i) {
      const double slope = SinCosBounded(3 * position[i]).cos;
      double v = velocity[i] + ((lanes.action[i] - 1) * kForce + slope * -kGravity);
      v = Clamp(v, -kMaxSpeed, kMaxSpeed);
      const double p = Clamp(position[i] + v, kLeftEnd, kRightEnd);
      const double least = p == kLeftEnd ? 0.0 : -kMaxSpeed;  // the left end is a wall that stops the car
      v = v < least ? least : v;
      const double ahead = v >= 0 ? p : kLeftEnd;  // the goal counts when it is reached forwards
      position[i] = p;
      velocity[i] = v;
      lanes.terminated[i] = static_cast<uint64_t>(ahead >= kGoal);
      lanes.reward[i] = -1.0;
      lanes.obs[0][i] = static_cast<float>(p);
      lanes.obs[1][i] = static_cast<float>(v);
    }
  }
};

struct MountainCarContinuous {
  using State = MountainCarContinuousState;
  static constexpr int kObs = 2;

  static EnvSpec Spec() {
    EnvSpec spec;
    spec.id = "MountainCarContinuous-v0";
    spec.observations = {{"obs", DType::kF32, {kObs}}};
    spec.action.kind = ActionSpec::Kind::kBox;
    spec.action.low = {-1.0f};
    spec.action.high = {1.0f};
    spec.max_episode_steps = 999;
    spec.summary = "rock a car out of a valley with a continuous engine whose use costs";
    return spec;
  }

  static State Initial(uint64_t seed) { return {EpisodeRandom(seed).Uniform(-0.6, -0.4), 0.0, 1.0}; }

  static void Observe(const State& s, float* obs) {
    obs[0] = static_cast<float>(s.position);
    obs[1] = static_cast<float>(s.velocity);
  }

  // Sums of two float32 in float64, rounded to float32, are what float32 arithmetic gives: 53 bits suffice
  // for that.
  static void Step(const classic::Lanes<3, kObs>& lanes) {
    constexpr double kGoal = 0.45;
    constexpr double kPower64 = 0.0015;
    constexpr float kPower = 0.0015f;
    double* __restrict position = lanes.state[0];
    double* __restrict velocity = lanes.state[1];
    double* __restrict wide = lanes.state[2];
    MILL_SIMD
    for (int i = 0; i < lanes.n; ++i) {
      const bool in_double = wide[i] != 0.0;
      const double argument = 3 * position[i];
      const double slope = SinCosBounded(in_double ? argument : Narrow(argument)).cos;
      const float action = static_cast<float>(lanes.action[i]);
      // An action within its bounds is float32 and makes the change float32; one that was clamped is the
      // bound itself, in float64, which the sum below rounds to the velocity's precision.
      const bool within = std::fabs(action) <= 1.0f;
      const float change = action * kPower - static_cast<float>(kGravity * slope);
      const double clamped = (action > 0 ? kPower64 : -kPower64) - kGravity * slope;
      const double clamped_change = in_double ? clamped : Narrow(clamped);

      double v = velocity[i] + (within ? static_cast<double>(change) : clamped_change);
      v = in_double ? v : Narrow(v);
      const double speed = in_double ? kMaxSpeed : Narrow(kMaxSpeed);
      v = Clamp(v, -speed, speed);
      double p = position[i] + v;
      p = in_double ? p : Narrow(p);
      const double left = in_double ? kLeftEnd : Narrow(kLeftEnd);
      p = Clamp(p, left, in_double ? kRightEnd : Narrow(kRightEnd));
      const double least = p == left ? 0.0 : -speed;
      v = v < least ? least : v;
      const double ahead = v >= 0 ? p : left;
      const bool goal = ahead >= (in_double ? kGoal : Narrow(kGoal));

      position[i] = Narrow(p);
      velocity[i] = Narrow(v);
      wide[i] = 0.0;
      lanes.terminated[i] = static_cast<uint64_t>(goal);
      const double effort = static_cast<double>(action);
      lanes.reward[i] = (goal ? 100.0 : 0.0) - effort * effort * 0.1;
      lanes.obs[0][i] = static_cast<float>(p);
      lanes.obs[1][i] = static_cast<float>(v);
    }
  }
};

}  // namespace

StatusOr<std::unique_ptr<Env>> MakeMountainCar(int rows, const EnvParams& params) {
  return classic::MakeBlock<MountainCar>(rows, params);
}

StatusOr<std::unique_ptr<Env>> MakeMountainCarContinuous(int rows, const EnvParams& params) {
  return classic::MakeBlock<MountainCarContinuous>(rows, params);
}

}  // namespace millrace
