// The five classic control tasks with Gymnasium's dynamics, in its precision and with its distributions of
// initial states: what a row's state is, and how blocks are made. Blocks keep structure-of-arrays state and
// step all their rows in vectorized loops (block.h); time limits are the pool's. Station: env_pool. A block
// is stepped by one thread at a time.
//
// The states below are what Env::SaveRow writes and Env::LoadRow reads, byte for byte.
#pragma once

#include <memory>

#include "actor/env.h"

namespace millrace {

// Barto, Sutton and Anderson, "Neuronlike adaptive elements that can solve difficult learning control
// problems", 1983.
struct CartPoleState {
  double x;          // m, the cart's place on the track
  double x_dot;      // m/s
  double theta;      // rad, the pole's angle from upright
  double theta_dot;  // rad/s
};

// Sutton, "Generalization in reinforcement learning: successful examples using sparse coarse coding", 1996;
// the equations of the book's implementation.
struct AcrobotState {
  double theta1;      // rad, of the first link from hanging down
  double theta2;      // rad, of the second link from the first one's line
  double theta1_dot;  // rad/s
  double theta2_dot;  // rad/s
};

// Moore, "Efficient memory-based learning for robot control", 1990.
struct MountainCarState {
  double position;
  double velocity;
};

// The same hill with a continuous engine. Gymnasium starts an episode in float64 and rounds the state to
// float32 after every step; a step's arithmetic has the precision of the state that it begins with.
struct MountainCarContinuousState {
  double position;
  double velocity;
  double wide;  // 1: the first step of the episode is still to come, in float64; 0: position and velocity are
                // float32
};

struct PendulumState {
  double theta;      // rad, from upright, not wrapped
  double theta_dot;  // rad/s
};

StatusOr<std::unique_ptr<Env>> MakeCartPole(int rows, const EnvParams& params);
StatusOr<std::unique_ptr<Env>> MakeAcrobot(int rows, const EnvParams& params);
StatusOr<std::unique_ptr<Env>> MakeMountainCar(int rows, const EnvParams& params);
StatusOr<std::unique_ptr<Env>> MakeMountainCarContinuous(int rows, const EnvParams& params);
StatusOr<std::unique_ptr<Env>> MakePendulum(int rows, const EnvParams& params);

}  // namespace millrace
