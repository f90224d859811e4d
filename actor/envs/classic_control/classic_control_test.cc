#include "actor/envs/classic_control/classic_control.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "actor/envs/test_block.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

using testing_support::TestBlock;

void ExpectWithinOneUlp(float got, float want) {
  EXPECT_LE(want, std::nextafter(got, std::numeric_limits<float>::infinity()));
  EXPECT_GE(want, std::nextafter(got, -std::numeric_limits<float>::infinity()));
}

void Follow(const nlohmann::json& trace) {
  const std::string task = trace["task"];
  TestBlock row(task, 1);
  auto start = trace["start"].get<std::vector<double>>();
  if (task == "MountainCarContinuous-v0") start.push_back(1.0);  // the first step is still to come
  ASSERT_EQ(row.env->row_state_bytes(), start.size() * sizeof(double));
  row.env->LoadRow(0, reinterpret_cast<const std::byte*>(start.data()));
  int steps = 0;
  for (const auto& step : trace["steps"]) {
    SCOPED_TRACE(testing::Message() << task << " step " << steps);
    if (row.spec().action.box()) {
      const float action = step["action"][0].get<float>();
      row.Step(&action);
    } else {
      const int32_t action = step["action"].get<int32_t>();
      row.Step(&action);
    }
    ++steps;
    const auto wanted = step["obs"].get<std::vector<float>>();
    ASSERT_EQ(wanted.size() * sizeof(float), row.obs_bytes);
    for (size_t j = 0; j < wanted.size(); ++j) ExpectWithinOneUlp(row.obs(0)[j], wanted[j]);
    const double reward = step["reward"];
    EXPECT_LE(std::fabs(row.reward[0] - reward), 1e-12 * std::fabs(reward));
    EXPECT_EQ(row.terminated[0] != 0, step["terminated"].get<bool>());
    const bool out_of_time = steps >= row.spec().max_episode_steps;  // the pool's rule
    EXPECT_EQ(row.truncated[0] != 0 || out_of_time, step["truncated"].get<bool>());
    if (testing::Test::HasFailure()) return;
  }
}

TEST(ClassicControlTest, FollowsGymnasiumsTraces) {
  std::ifstream file(std::string(MILLRACE_GOLDEN_DIR) + "/env_traces.json");
  ASSERT_TRUE(file.is_open());
  const nlohmann::json golden = nlohmann::json::parse(file);
  std::map<std::string, int> followed;
  for (const auto& trace : golden["traces"]) {
    Follow(trace);
    if (HasFailure()) return;
    ++followed[trace["task"].get<std::string>()];
  }
  EXPECT_EQ(followed.size(), 5u) << "a task has no trace";
}

TEST(ClassicControlTest, InitialStatesFillTheirRanges) {
  TestBlock cartpole("CartPole-v1", 1), acrobot("Acrobot-v1", 1), car("MountainCar-v0", 1),
      pendulum("Pendulum-v1", 1);
  double least_theta = 0, most_theta = 0, least_position = 0, most_position = -1, widest = 0;
  for (uint64_t seed = 0; seed < 2'000; ++seed) {
    for (TestBlock* block : {&cartpole, &acrobot, &car, &pendulum}) block->Reset(0, seed);
    const auto pole = cartpole.SaveAs<CartPoleState>(0);
    for (const double value : {pole.x, pole.x_dot, pole.theta, pole.theta_dot}) {
      ASSERT_LE(std::fabs(value), 0.05);
      widest = std::max(widest, std::fabs(value));
    }
    const auto links = acrobot.SaveAs<AcrobotState>(0);
    for (const double value : {links.theta1, links.theta2, links.theta1_dot, links.theta2_dot}) {
      ASSERT_LE(std::fabs(value), static_cast<double>(0.1f));
      ASSERT_EQ(value, static_cast<double>(static_cast<float>(value))) << "float32 at the start";
    }
    const auto valley = car.SaveAs<MountainCarState>(0);
    ASSERT_EQ(valley.velocity, 0.0);
    least_position = std::min(least_position, valley.position);
    most_position = std::max(most_position, valley.position);
    const auto swing = pendulum.SaveAs<PendulumState>(0);
    ASSERT_LE(std::fabs(swing.theta_dot), 1.0);
    least_theta = std::min(least_theta, swing.theta);
    most_theta = std::max(most_theta, swing.theta);
  }
  EXPECT_NEAR(widest, 0.05, 1e-4);
  EXPECT_NEAR(least_position, -0.6, 1e-3);
  EXPECT_NEAR(most_position, -0.4, 1e-3);
  EXPECT_NEAR(least_theta, -3.14159265, 1e-2);
  EXPECT_NEAR(most_theta, 3.14159265, 1e-2);
}

// A pendulum that has turned very often leaves the range of the fast sine; the C library takes over.
TEST(ClassicControlTest, PendulumFarOutsideTheFastRange) {
  TestBlock block("Pendulum-v1", 3);
  const PendulumState far{4e6 + 0.5, 1.0};
  for (int row = 0; row < 3; ++row) block.LoadFrom(row, far);
  const float torque[3] = {0, 0, 0};
  block.Step(torque);
  const double rate = 1.0 + 15.0 * std::sin(far.theta) * 0.05;
  EXPECT_EQ(block.obs(2)[2], static_cast<float>(rate));
  EXPECT_EQ(block.obs(2)[0], static_cast<float>(std::cos(far.theta + rate * 0.05)));
}

}  // namespace
}  // namespace millrace
