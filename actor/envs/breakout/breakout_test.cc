#include "actor/envs/breakout/breakout.h"

#include <algorithm>
#include <cmath>

#include "actor/envs/test_block.h"
#include "gtest/gtest.h"
#include "kernels/ops/philox.h"

namespace millrace {
namespace {

using namespace breakout;  // NOLINT: the constants of the game under test
using testing_support::TestBlock;

constexpr int32_t kStay = 0, kLeft = 1, kRight = 2;

// A player that sees the observation only and never misses. It foresees where the ball will come down and
// sends it back towards the column with most bricks, or off centre at random where that is out of reach.
class Tracker {
 public:
  int32_t Act(const float* obs, int frame_skip) {
    const double paddle = (obs[0] + 1.0) * kWidth / 2;
    const double target = obs[9] == 0 ? (obs[2] + 1.0) * kWidth / 2 : Landing(obs) - Offset(obs);
    const double step = kPaddleSpeed * frame_skip;
    if (target > paddle + step / 2) return kRight;
    if (target < paddle - step / 2) return kLeft;
    return kStay;
  }

 private:
  // x where the ball will be at the paddle's height: straight on but for the side walls, and back from the
  // wall's lower edge where it still rises.
  static double Landing(const float* obs) {
    const double x = (obs[2] + 1.0) * kWidth / 2, y = (obs[3] + 1.0) * kHeight / 2;
    const double vx = obs[4], vy = obs[5];
    if (vy == 0) return x;
    const double turn = vy < 0 ? std::min<double>(y, kWallBottom) : y;
    return Folded(x + vx / std::fabs(vy) * (y - turn + kPaddleY - turn));
  }
  static double Folded(double x) {
    x = std::fmod(std::fabs(x), 2.0 * kWidth);
    return x > kWidth ? 2 * kWidth - x : x;
  }

  // How far right of the paddle's centre the ball shall land; chosen anew when the ball begins to come down.
  double Offset(const float* obs) {
    const bool down = obs[5] > 0;
    if (down && !was_down_) turn_ = Aimed(obs);
    was_down_ = down;
    const double reach = obs[1] * kPaddleWidth / 2 + kBallRadius;
    return std::clamp(turn_, -0.85, 0.85) * std::max(reach - kPaddleSpeed * 2, 0.0) / 0.85;
  }

  double Aimed(const float* obs) {
    int best = 0, most = -1;
    const int first = static_cast<int>(PhiloxAt(5, Purpose::kTest, 0, draws_++).v[0] % kBrickColumns);
    for (int i = 0; i < kBrickColumns; ++i) {
      const int column = (first + i) % kBrickColumns;
      int bricks = 0;
      for (int row = 0; row < kBrickRows; ++row)
        bricks += obs[kFirstBrick + row * kBrickColumns + column] > 0;
      if (bricks > most) {
        best = column;
        most = bricks;
      }
    }
    const double away = (best + 0.5) * kBrickWidth - Landing(obs);
    return std::atan2(away, kPaddleY - kWallBottom) / (3.14159265358979 / 3);
  }

  bool was_down_ = false;
  double turn_ = 0;
  uint64_t draws_ = 0;
};

struct Outcome {
  double score = 0;
  int steps = 0;
  bool terminated = false;
};

Outcome Play(uint64_t seed, int frame_skip) {
  TestBlock block("Breakout", 1, {{"frame_skip", std::to_string(frame_skip)}});
  block.Reset(0, seed);
  Tracker tracker;
  Outcome outcome;
  while (outcome.steps < block.spec().max_episode_steps && !outcome.terminated) {
    const int32_t action = tracker.Act(block.obs(0), frame_skip);
    block.Step(&action);
    outcome.score += block.reward[0];
    outcome.terminated = block.terminated[0] != 0;
    ++outcome.steps;
  }
  return outcome;
}

TEST(BreakoutTest, ATrackerClearsBothWallsWithinTheTimeLimit) {
  for (const int frame_skip : {1, 4}) {
    for (uint64_t seed = 0; seed < 10; ++seed) {
      const Outcome outcome = Play(seed, frame_skip);
      EXPECT_EQ(outcome.score, kMaxScore) << "seed " << seed << ", frame_skip " << frame_skip;
      EXPECT_TRUE(outcome.terminated) << "seed " << seed << ", frame_skip " << frame_skip;
    }
  }
}

// A block whose only row is in a chosen state, stepped frame by frame.
class Scene {
 public:
  Scene() : block("Breakout", 1, {{"frame_skip", "1"}}) {
    block.Reset(0, 1);
    state = block.SaveAs<BreakoutState>(0);
    state.pause = 0;
    state.serves = 1;
  }
  // A ball about to meet the middle of the paddle.
  void BallAbovePaddle() { Ball(state.paddle_x, kPaddleY - 1, 0, kSlowest); }
  // A ball about to meet the brick from below, straight up.
  void BallBelow(int row, int column) {
    Ball((static_cast<float>(column) + 0.5f) * kBrickWidth, kWallTop + (row + 1) * kBrickHeight + 0.5f, 0,
         -kSlowest);
  }
  void Ball(float x, float y, float vx, float vy) {
    state.ball_x = x;
    state.ball_y = y;
    state.ball_vx = vx;
    state.ball_vy = vy;
  }
  void OnlyBrick(int row, int column) {
    const int brick = row * kBrickColumns + column;
    state.bricks[0] = state.bricks[1] = 0;
    state.bricks[brick / 54] = uint64_t{1} << (brick % 54);
  }
  void Step(int32_t action = kStay) {
    block.LoadFrom(0, state);
    block.Step(&action);
    state = block.SaveAs<BreakoutState>(0);
  }
  float Speed() const { return std::hypot(state.ball_vx, state.ball_vy); }
  int BricksShown() const {
    return static_cast<int>(std::count(block.obs(0) + kFirstBrick, block.obs(0) + kObs, 1.0f));
  }

  TestBlock block;
  BreakoutState state;
};

TEST(BreakoutTest, BricksAreWorthTheirRowAndVanishFromTheObservation) {
  for (int row = 0; row < kBrickRows; ++row) {
    Scene scene;
    for (int below = row + 1; below < kBrickRows; ++below) {  // a shaft to the brick
      const int brick = below * kBrickColumns + 7;
      scene.state.bricks[brick / 54] &= ~(uint64_t{1} << (brick % 54));
    }
    scene.BallBelow(row, 7);
    scene.Step();
    EXPECT_EQ(scene.block.reward[0], kPoints[row]);
    EXPECT_EQ(scene.state.score, kPoints[row]);
    EXPECT_EQ(scene.block.obs(0)[kFirstBrick + row * kBrickColumns + 7], 0.0f);
    EXPECT_EQ(scene.BricksShown(), kBricks - (kBrickRows - row));
    EXPECT_GT(scene.state.ball_vy, 0) << "the ball turns back";
  }
}

TEST(BreakoutTest, ABrickMetFromTheSideTurnsTheBallSideways) {
  Scene scene;
  scene.OnlyBrick(3, 9);
  scene.Ball(9 * kBrickWidth - 0.5f, kWallTop + 3.5f * kBrickHeight, 1.5f, -0.1f);
  scene.Step();
  EXPECT_EQ(scene.block.reward[0], kPoints[3]);
  EXPECT_LT(scene.state.ball_vx, 0);
  EXPECT_LT(scene.state.ball_vy, 0);
}

TEST(BreakoutTest, FasterAfterFourAndTwelveHits) {
  for (const int hits : {0, 3, 4, 11, 12}) {
    Scene scene;
    scene.state.paddle_hits = hits;
    scene.BallAbovePaddle();
    scene.Step();
    const int level = (hits + 1 >= 4) + (hits + 1 >= 12);
    EXPECT_EQ(scene.state.paddle_hits, hits + 1);
    EXPECT_NEAR(scene.Speed(), kSlowest + kSpeedUp * static_cast<float>(level), 1e-5) << hits;
    EXPECT_EQ(scene.block.obs(0)[8], 0.25f * static_cast<float>(level));
    EXPECT_LT(scene.state.ball_vy, 0);
  }
}

TEST(BreakoutTest, FasterAtTheFirstContactWithTheUpperRows) {
  Scene scene;
  scene.state.bricks[1] = 0;  // rows 3 to 5
  const float levels[] = {kSlowest + kSpeedUp, kSlowest + kSpeedUp, kSlowest + 2 * kSpeedUp,
                          kSlowest + 2 * kSpeedUp};
  const int rows[] = {2, 2, 1, 1}, columns[] = {3, 4, 3, 4};
  for (int i = 0; i < 4; ++i) {
    const float speed = i == 0 ? kSlowest : scene.Speed();
    scene.BallBelow(rows[i], columns[i]);
    scene.state.ball_vy = -speed;
    scene.Step();
    EXPECT_EQ(scene.block.reward[0], kPoints[rows[i]]);
    EXPECT_NEAR(scene.Speed(), levels[i], 1e-5) << "contact " << i;
  }
}

TEST(BreakoutTest, ThePaddleIsHalvedByTheTopUntilTheNextBall) {
  Scene scene;
  scene.Ball(70, 1, 0, -kSlowest);
  scene.Step();
  EXPECT_EQ(scene.block.obs(0)[1], 0.5f);
  scene.Ball(scene.state.paddle_x + kPaddleWidth / 4 + kBallRadius + 0.5f, kPaddleY - 1, 0, kSlowest);
  scene.Step();
  EXPECT_GT(scene.state.ball_vy, 0) << "beside half a paddle";
  for (int frame = 0; frame < 100 && scene.state.pause == 0; ++frame) scene.Step();
  EXPECT_EQ(scene.state.balls, kBalls - 1);
  EXPECT_EQ(scene.block.obs(0)[1], 1.0f);
}

TEST(BreakoutTest, ThePaddleAims) {
  for (const float turn : {-1.0f, -0.5f, 0.0f, 0.5f, 1.0f}) {
    Scene scene;
    scene.Ball(scene.state.paddle_x + turn * (kPaddleWidth / 2 + kBallRadius), kPaddleY - 1, 0, kSlowest);
    scene.Step();
    EXPECT_NEAR(std::atan2(scene.state.ball_vx, -scene.state.ball_vy), turn * 3.14159265 / 3, 1e-5);
  }
}

TEST(BreakoutTest, FiveLostBallsEndTheEpisode) {
  Scene scene;
  scene.Ball(20, kServeY, 0, kSlowest);
  int served = 1;
  for (int frame = 0; frame < 20'000 && scene.block.terminated[0] == 0; ++frame) {
    const int32_t before = scene.state.pause;
    scene.Step(scene.state.ball_x < kWidth / 2 ? kRight : kLeft);  // away from the ball
    served += before == 1 && scene.state.pause == 0;
    ASSERT_LT(scene.state.serves, kBalls + 1);
    EXPECT_EQ(scene.block.obs(0)[6], static_cast<float>(scene.state.balls) * (1.0f / kBalls));
  }
  EXPECT_EQ(served, kBalls);
  EXPECT_EQ(scene.state.balls, 0);
  EXPECT_EQ(scene.block.obs(0)[9], 0.0f);
}

TEST(BreakoutTest, TheSecondWallStandsWhenTheBallIsBackAtThePaddle) {
  Scene scene;
  scene.OnlyBrick(5, 2);
  scene.BallBelow(5, 2);
  scene.Step();
  EXPECT_EQ(scene.state.walls, 1);
  EXPECT_EQ(scene.block.terminated[0], 0);
  EXPECT_EQ(scene.BricksShown(), 0);
  scene.BallAbovePaddle();
  scene.Step();
  EXPECT_EQ(scene.BricksShown(), kBricks);
}

TEST(BreakoutTest, TheLastBrickOfTheSecondWallEndsTheEpisode) {
  Scene scene;
  scene.state.walls = 1;
  scene.OnlyBrick(0, 17);
  scene.BallBelow(0, 17);
  scene.Step();
  EXPECT_EQ(scene.block.terminated[0], 1);
  EXPECT_EQ(scene.block.reward[0], kPoints[0]);
}

TEST(BreakoutTest, ServesDifferBetweenEpisodesAndBalls) {
  Scene first, second;
  second.block.Reset(0, 2);
  EXPECT_NE(first.block.SaveAs<BreakoutState>(0).ball_x, second.block.SaveAs<BreakoutState>(0).ball_x);
}

// That a ball can't be trapped rests on these: it is never in a brick, and never moves too flat.
TEST(BreakoutTest, InvariantsHoldInLongPlay) {
  Scene scene;
  Tracker tracker;
  scene.block.Reset(0, 3);
  int idle = 0;
  for (int frame = 0; frame < 20'000 && scene.block.terminated[0] == 0; ++frame) {
    const int32_t action = tracker.Act(scene.block.obs(0), 1);
    const BreakoutState before = scene.block.SaveAs<BreakoutState>(0);
    scene.block.Step(&action);
    const BreakoutState s = scene.block.SaveAs<BreakoutState>(0);
    if (s.pause > 0) continue;
    const float speed = std::hypot(s.ball_vx, s.ball_vy);
    ASSERT_GE(std::fabs(s.ball_vy), 0.499f * speed) << "frame " << frame;
    ASSERT_LE(speed, kFastest * 1.0001f);
    const int row = static_cast<int>(std::floor((s.ball_y - kWallTop) / kBrickHeight));
    if (row >= 0 && row < kBrickRows) {
      const int column = std::min(static_cast<int>(s.ball_x / kBrickWidth), kBrickColumns - 1);
      ASSERT_EQ(scene.block.obs(0)[kFirstBrick + row * kBrickColumns + column], 0.0f) << "frame " << frame;
    }
    const bool contact =
        s.paddle_hits != before.paddle_hits || s.score != before.score || s.serves != before.serves;
    idle = contact ? 0 : idle + 1;
    ASSERT_LT(idle, 2 * kHeight / (kSlowest / 2)) << "frame " << frame;
  }
}

}  // namespace
}  // namespace millrace
