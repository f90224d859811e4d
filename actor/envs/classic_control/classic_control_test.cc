#include "actor/envs/classic_control/classic_control.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "actor/env.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

// One row of an environment with the memory that its steps write.
class OneRow {
 public:
  explicit OneRow(const std::string& id) {
    auto made = MakeEnv(id, 1, {});
    EXPECT_TRUE(made.ok()) << made.status();
    if (!made.ok()) return;
    env = *std::move(made);
    observation.resize(env->spec().observation_elements());
    pointer_ = reinterpret_cast<std::byte*>(observation.data());
    stride_ = observation.size() * sizeof(float);
  }

  ObsOut obs() const { return {&pointer_, &stride_}; }
  void Load(const std::vector<double>& state) {
    ASSERT_EQ(env->row_state_bytes(), state.size() * sizeof(double));
    env->LoadRow(0, reinterpret_cast<const std::byte*>(state.data()));
  }
  void Step(const void* action) { env->Step({action, obs(), &reward, &terminated, &truncated, nullptr}); }

  std::unique_ptr<Env> env;
  std::vector<float> observation;
  double reward = 0;
  uint8_t terminated = 0, truncated = 0;

 private:
  std::byte* pointer_ = nullptr;
  size_t stride_ = 0;
};

void ExpectWithinOneUlp(float got, float want) {
  EXPECT_LE(want, std::nextafter(got, std::numeric_limits<float>::infinity()));
  EXPECT_GE(want, std::nextafter(got, -std::numeric_limits<float>::infinity()));
}

void Follow(const nlohmann::json& trace) {
  const std::string task = trace["task"];
  OneRow row(task);
  ASSERT_NE(row.env, nullptr);
  auto start = trace["start"].get<std::vector<double>>();
  if (task == "MountainCarContinuous-v0") start.push_back(1.0);  // the first step is still to come
  row.Load(start);
  int steps = 0;
  for (const auto& step : trace["steps"]) {
    SCOPED_TRACE(testing::Message() << task << " step " << steps);
    if (row.env->spec().action.box()) {
      const float action = step["action"][0].get<float>();
      row.Step(&action);
    } else {
      const int32_t action = step["action"].get<int32_t>();
      row.Step(&action);
    }
    ++steps;
    const auto wanted = step["obs"].get<std::vector<float>>();
    ASSERT_EQ(wanted.size(), row.observation.size());
    for (size_t j = 0; j < wanted.size(); ++j) ExpectWithinOneUlp(row.observation[j], wanted[j]);
    const double reward = step["reward"];
    EXPECT_LE(std::fabs(row.reward - reward), 1e-12 * std::fabs(reward));
    EXPECT_EQ(row.terminated != 0, step["terminated"].get<bool>());
    const bool out_of_time = steps >= row.env->spec().max_episode_steps;  // the pool's rule
    EXPECT_EQ(row.truncated != 0 || out_of_time, step["truncated"].get<bool>());
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

}  // namespace
}  // namespace millrace
