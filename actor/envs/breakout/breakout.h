// Breakout: the arcade game's rules in a field of 144 by 178 units, observed as 118 numbers. Two walls of 6 x
// 18 bricks, rows worth 7, 7, 4, 4, 1, 1 points from the top (432 a wall, 864 in all), and five balls.
// Station: env_pool. One thread at a time steps a block.
//
// Rules
//   - A ball is served below the wall after a pause, at a random place and in a random direction, downwards.
//   - Where it meets the paddle decides where it goes: from 60 degrees left (left edge) to 60 degrees right
//   of straight
//     up. So |vy| is never less than half the speed, and a ball comes back to the paddle, or to a brick,
//     within one crossing of the field: it can't be trapped.
//   - Speed has five levels: one up after 4 and after 12 hits of the paddle, one at the first contact with
//   the third
//     or fourth row, one at the first contact with the first or second row. All per ball.
//   - The paddle has half its width once the ball has met the top of the field, until the next ball.
//   - The second wall stands when the ball meets the paddle (or is served) after the first has been cleared.
//   - terminated: no ball is left, or both walls are gone. reward: the points of the step.
//   - The time limit is 60,000 frames; a player that hardly misses clears both walls in 16,000 to 30,000.
//
// Observation, [118] f32 in [-1, 1]
//     0  paddle's centre: -1 left to 1 right        5  ball's vertical velocity, 1: downwards at full speed
//     1  paddle's width: 1 full, 0.5 halved         6  balls left, the one in play included: of 5
//     2  ball's x: -1 left to 1 right               7  score: of 864
//     3  ball's y: -1 top to 1 bottom               8  speed level: 0, 0.25 .. 1
//     4  ball's horizontal velocity: of full speed  9  1: a ball is in play; 0: it waits at 2, 3 to be served
//     10 + 18 row + column: 1 where a brick stands, row 0 at the top, column 0 at the left
//
// Actions: 0 stay, 1 left, 2 right. Settings (env.params): frame_skip, frames that an action lasts (1 to 16,
// default 4).
#pragma once

#include <memory>

#include "actor/env.h"

namespace millrace {

namespace breakout {

inline constexpr int kObs = 118, kFirstBrick = 10, kBrickRows = 6, kBrickColumns = 18;
inline constexpr int kBricks = kBrickRows * kBrickColumns;
inline constexpr int kBalls = 5, kWalls = 2, kMaxScore = 864, kMaxFrames = 60'000;
inline constexpr int kPoints[kBrickRows] = {7, 7, 4, 4, 1, 1};

// Units of the field; frames are the unit of time. y grows downwards.
inline constexpr float kWidth = 144, kHeight = 178, kWallTop = 25, kBrickWidth = 8, kBrickHeight = 6;
inline constexpr float kWallBottom = kWallTop + kBrickRows * kBrickHeight;
inline constexpr float kPaddleY = 160, kPaddleWidth = 16, kPaddleSpeed = 2.25f, kBallRadius = 1;
inline constexpr float kSlowest = 2.0f, kSpeedUp = 0.3f, kFastest = kSlowest + 4 * kSpeedUp;
inline constexpr float kServeY = 76;
inline constexpr int kServePause = 24;  // frames

}  // namespace breakout

// What SaveRow writes; no padding.
struct BreakoutState {
  uint64_t seed;       // of the episode
  uint64_t bricks[2];  // bit j of word i: brick 54 * i + j stands
  float paddle_x;      // its centre
  float ball_x, ball_y, ball_vx, ball_vy;
  int32_t score;
  int32_t balls;        // left, the one in play included
  int32_t walls;        // left, the one that stands included
  int32_t serves;       // so far
  int32_t pause;        // frames until the serve; 0: the ball is in play
  int32_t paddle_hits;  // of this ball, and so are the following
  int32_t middle_rows_met, top_rows_met, top_met;
};

StatusOr<std::unique_ptr<Env>> MakeBreakout(int rows, const EnvParams& params);

}  // namespace millrace
