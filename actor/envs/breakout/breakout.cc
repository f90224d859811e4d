#include "actor/envs/breakout/breakout.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "actor/envs/classic_control/trig.h"
#include "actor/envs/episode_random.h"
#include "actor/envs/params.h"

namespace millrace {
namespace {

using namespace breakout;  // NOLINT: the constants of this very game

constexpr uint64_t kHalfWall = (uint64_t{1} << (kBricks / 2)) - 1;
constexpr double kSteepest =
    3.14159265358979323846 / 3;  // of a ball that leaves the paddle's edge, from upwards

static_assert(sizeof(BreakoutState) == 3 * 8 + 14 * 4, "padding: bytes that mean nothing would be saved");

// One row's game. The ball is never inside a brick that stands: where it would enter one, it turns back
// instead.
class Game {
 public:
  explicit Game(BreakoutState& state) : s_(state) {}

  void Start(uint64_t seed) {
    s_ = BreakoutState{};
    s_.seed = seed;
    s_.paddle_x = kWidth / 2;
    s_.balls = kBalls;
    s_.walls = kWalls;
    BuildWall();
    PrepareServe();
  }

  // One frame; returns the points it made. `direction` is that of the paddle: -1, 0 or 1.
  int Frame(float direction) {
    const float half = PaddleWidth() / 2;
    s_.paddle_x = std::clamp(s_.paddle_x + direction * kPaddleSpeed, half, kWidth - half);
    if (s_.pause > 0) {
      if (--s_.pause == 0) Serve();
      return 0;
    }
    const float from_x = s_.ball_x, from_y = s_.ball_y;
    MoveAndMeetWalls();
    if (s_.ball_y >= kWallTop && s_.ball_y < kWallBottom) return MeetBrick(from_x, from_y);
    if (s_.ball_y >= kPaddleY && from_y < kPaddleY) MeetPaddle();
    if (s_.ball_y > kHeight) LoseBall();
    return 0;
  }

  bool over() const { return s_.balls == 0 || s_.walls == 0; }
  float PaddleWidth() const { return s_.top_met != 0 ? kPaddleWidth / 2 : kPaddleWidth; }
  int SpeedLevel() const {
    return (s_.paddle_hits >= 4) + (s_.paddle_hits >= 12) + s_.middle_rows_met + s_.top_rows_met;
  }

  bool Stands(int row, int column) const {
    const int brick = row * kBrickColumns + column;
    return (s_.bricks[brick / 54] >> (brick % 54) & 1) != 0;
  }

 private:
  static int RowAt(float y) { return static_cast<int>(std::floor((y - kWallTop) * (1 / kBrickHeight))); }
  static int ColumnAt(float x) {
    return std::min(static_cast<int>(x * (1 / kBrickWidth)), kBrickColumns - 1);
  }

  float Speed() const { return kSlowest + kSpeedUp * static_cast<float>(SpeedLevel()); }

  void BuildWall() { s_.bricks[0] = s_.bricks[1] = kHalfWall; }
  bool Cleared() const { return (s_.bricks[0] | s_.bricks[1]) == 0; }

  // The ball waits where it will be served, and all that is per ball starts anew.
  void PrepareServe() {
    s_.paddle_hits = s_.middle_rows_met = s_.top_rows_met = s_.top_met = 0;
    s_.pause = kServePause;
    s_.ball_x = static_cast<float>(Random().Uniform(0.25, 0.75)) * kWidth;
    s_.ball_y = kServeY;
    s_.ball_vx = s_.ball_vy = 0;
  }

  EpisodeRandom Random() const { return EpisodeRandom(s_.seed, static_cast<uint64_t>(s_.serves)); }

  void Serve() {
    EpisodeRandom random = Random();
    random.Uniform(0, 1);  // the place, drawn by PrepareServe
    Aim(random.Uniform(-0.75, 0.75), 1.0f);
    ++s_.serves;
    if (Cleared()) BuildWall();
  }

  // Sends the ball off at `turn` of the steepest angle from the vertical, upwards (-1) or downwards (1).
  void Aim(double turn, float vertical) {
    const SinCosPair direction = SinCosBounded(turn * kSteepest);
    s_.ball_vx = Speed() * static_cast<float>(direction.sin);
    s_.ball_vy = vertical * Speed() * static_cast<float>(direction.cos);
  }

  void MoveAndMeetWalls() {
    s_.ball_x += s_.ball_vx;
    s_.ball_y += s_.ball_vy;
    if (s_.ball_x < 0 || s_.ball_x > kWidth) {
      s_.ball_x = s_.ball_x < 0 ? -s_.ball_x : 2 * kWidth - s_.ball_x;
      s_.ball_vx = -s_.ball_vx;
    }
    if (s_.ball_y < 0) {
      s_.ball_y = -s_.ball_y;
      s_.ball_vy = -s_.ball_vy;
      s_.top_met = 1;
    }
  }

  // The ball has moved to where a brick may stand. If one does, it breaks, and the ball is back where it came
  // from.
  int MeetBrick(float from_x, float from_y) {
    const int row = RowAt(s_.ball_y), column = ColumnAt(s_.ball_x);
    if (!Stands(row, column)) return 0;
    const int from_row = RowAt(from_y), from_column = ColumnAt(from_x);
    if (MetFromTheSide(row, column, from_row, from_column)) {
      s_.ball_vx = -s_.ball_vx;
    } else {
      s_.ball_vy = -s_.ball_vy;
    }
    s_.ball_x = from_x;
    s_.ball_y = from_y;
    Break(row, column);
    return kPoints[row];
  }

  // Across a corner, the brick beside the way decides.
  bool MetFromTheSide(int row, int column, int from_row, int from_column) const {
    if (column == from_column) return false;
    if (row == from_row) return true;
    if (Stands(row, from_column)) return false;
    return from_row >= 0 && from_row < kBrickRows && Stands(from_row, column);
  }

  void Break(int row, int column) {
    const int brick = row * kBrickColumns + column;
    s_.bricks[brick / 54] &= ~(uint64_t{1} << (brick % 54));
    s_.score += kPoints[row];
    if (Cleared()) --s_.walls;
    const float before = Speed();
    if (row < 2) {
      s_.top_rows_met = 1;
    } else if (row < 4) {
      s_.middle_rows_met = 1;
    }
    const float faster = Speed() / before;
    s_.ball_vx *= faster;
    s_.ball_vy *= faster;
  }

  void MeetPaddle() {
    const float reach = PaddleWidth() / 2 + kBallRadius;
    const float crossing = s_.ball_x - s_.ball_vx * ((s_.ball_y - kPaddleY) / s_.ball_vy);
    const float offset = crossing - s_.paddle_x;
    if (std::fabs(offset) > reach) return;
    ++s_.paddle_hits;
    s_.ball_x = std::clamp(crossing, 0.0f, kWidth);
    s_.ball_y = std::nextafter(kPaddleY, 0.0f);  // above it, so that the next crossing counts again
    Aim(static_cast<double>(offset / reach), -1.0f);
    if (Cleared()) BuildWall();
  }

  void LoseBall() {
    if (--s_.balls > 0) {
      PrepareServe();
    } else {
      s_.ball_y = kHeight;
      s_.ball_vx = s_.ball_vy = 0;
    }
  }

  BreakoutState& s_;
};

class Breakout final : public Env {
 public:
  Breakout(int rows, EnvSpec spec, int frame_skip)
      : spec_(std::move(spec)), frame_skip_(frame_skip), states_(rows), obs_(rows) {}

  const EnvSpec& spec() const override { return spec_; }
  int rows() const override { return static_cast<int>(states_.size()); }

  void ResetRow(int row, uint64_t episode_seed, const ObsOut& obs, uint8_t*) override {
    Game(states_[row]).Start(episode_seed);
    DrawBricks(row);
    Observe(row, obs);
  }

  void Step(const StepArgs& args) override {
    const int32_t* actions = static_cast<const int32_t*>(args.actions);
    for (int row = 0; row < rows(); ++row) {
      const float direction = actions[row] == 1 ? -1.0f : actions[row] == 2 ? 1.0f : 0.0f;
      Game game(states_[row]);
      const uint64_t before[2] = {states_[row].bricks[0], states_[row].bricks[1]};
      int points = 0;
      for (int frame = 0; frame < frame_skip_ && !game.over(); ++frame) points += game.Frame(direction);
      if (before[0] != states_[row].bricks[0] || before[1] != states_[row].bricks[1]) DrawBricks(row);
      args.reward[row] = points;
      args.terminated[row] = game.over();
      args.truncated[row] = 0;
      Observe(row, args.obs);
    }
  }

  size_t row_state_bytes() const override { return sizeof(BreakoutState); }
  void SaveRow(int row, std::byte* out) const override {
    std::memcpy(out, &states_[row], sizeof(BreakoutState));
  }
  void LoadRow(int row, const std::byte* in) override {
    std::memcpy(&states_[row], in, sizeof(BreakoutState));
    DrawBricks(row);
  }

 private:
  using Observation = std::array<float, kObs>;

  void DrawBricks(int row) {
    float* bricks = obs_[row].data() + kFirstBrick;
    for (int half = 0; half < 2; ++half) {
      const uint64_t bits = states_[row].bricks[half];
      for (int j = 0; j < 54; ++j) bricks[54 * half + j] = static_cast<float>(bits >> j & 1);
    }
  }

  void Observe(int row, const ObsOut& out) {
    BreakoutState& s = states_[row];
    const Game game(s);
    float* obs = obs_[row].data();
    obs[0] = s.paddle_x * (2 / kWidth) - 1;
    obs[1] = game.PaddleWidth() * (1 / kPaddleWidth);
    obs[2] = s.ball_x * (2 / kWidth) - 1;
    obs[3] = s.ball_y * (2 / kHeight) - 1;
    obs[4] = s.ball_vx * (1 / kFastest);
    obs[5] = s.ball_vy * (1 / kFastest);
    obs[6] = static_cast<float>(s.balls) * (1.0f / kBalls);
    obs[7] = static_cast<float>(s.score) * (1.0f / kMaxScore);
    obs[8] = static_cast<float>(game.SpeedLevel()) * 0.25f;
    obs[9] = s.pause == 0 && !game.over() ? 1.0f : 0.0f;
    std::memcpy(out.row<float>(0, row), obs, sizeof(Observation));
  }

  EnvSpec spec_;
  int frame_skip_;
  std::vector<BreakoutState> states_;  // [rows]
  std::vector<Observation> obs_;  // [rows, 118] f32: the last observation; its bricks change only when hit
};

}  // namespace

StatusOr<std::unique_ptr<Env>> MakeBreakout(int rows, const EnvParams& params) {
  ParamReader reader("Breakout", params);
  const int frame_skip = static_cast<int>(reader.Int("frame_skip", 4, 1, 16));
  MILL_RETURN_IF_ERROR(reader.status());
  EnvSpec spec;
  spec.id = "Breakout";
  spec.observations = {{"obs", DType::kF32, {kObs}}};
  spec.action.kind = ActionSpec::Kind::kDiscrete;
  spec.action.nvec = {3};
  spec.max_episode_steps = (kMaxFrames + frame_skip - 1) / frame_skip;
  spec.summary = "break two walls of bricks with five balls: 864 points, as numbers instead of pixels";
  return std::unique_ptr<Env>(std::make_unique<Breakout>(rows, std::move(spec), frame_skip));
}

}  // namespace millrace
