// Steps a second of one thread with random actions, resets of ended and overlong episodes included: what the
// pool asks of a block, without the pool. Random actions come from a table, made beforehand.
#include <algorithm>
#include <vector>

#include "actor/env.h"
#include "benchmark/benchmark.h"
#include "kernels/ops/philox.h"

namespace millrace {
namespace {

constexpr int kActionSteps = 61;  // length of the table; prime, so that rows do not repeat with it

// [kActionSteps, rows, width] 4-byte values
std::vector<uint32_t> RandomActions(const ActionSpec& spec, int rows) {
  std::vector<uint32_t> table(static_cast<size_t>(kActionSteps) * rows * spec.width());
  for (size_t i = 0; i < table.size(); ++i) {
    const float unit = UniformFloat(PhiloxAt(7, Purpose::kTest, 0, i).v[0]);
    if (spec.box()) {
      table[i] = BitsOf(spec.low[0] + unit * (spec.high[0] - spec.low[0]));
    } else {
      table[i] = static_cast<uint32_t>(unit * static_cast<float>(spec.nvec[0]));
    }
  }
  return table;
}

void RandomPolicy(benchmark::State& state, const char* id) {
  const int rows = static_cast<int>(state.range(0));
  auto env = *MakeEnv(id, rows, {});
  const EnvSpec& spec = env->spec();
  const std::vector<uint32_t> actions = RandomActions(spec.action, rows);
  std::vector<float> obs(static_cast<size_t>(rows) * spec.observation_elements());
  std::byte* pointer = reinterpret_cast<std::byte*>(obs.data());
  const size_t stride = obs.size() / rows * sizeof(float);
  const ObsOut out{&pointer, &stride};
  std::vector<double> reward(rows);
  std::vector<uint8_t> terminated(rows), truncated(rows);
  std::vector<int> length(rows, 0);
  uint64_t seed = 0;
  for (int row = 0; row < rows; ++row) env->ResetRow(row, seed++, out, nullptr);

  const int limit = spec.max_episode_steps > 0 ? spec.max_episode_steps : 1 << 30;
  int at = 0;
  for (auto _ : state) {
    const uint32_t* now = actions.data() + static_cast<size_t>(at) * rows * spec.action.width();
    at = at + 1 == kActionSteps ? 0 : at + 1;
    env->Step({now, out, reward.data(), terminated.data(), truncated.data(), nullptr});
    for (int row = 0; row < rows; ++row) {
      if (terminated[row] == 0 && ++length[row] < limit) continue;
      length[row] = 0;
      env->ResetRow(row, seed++, out, nullptr);
    }
  }
  state.SetItemsProcessed(state.iterations() * rows);
}

#define MILL_ENV_BENCHMARK(name, id) BENCHMARK_CAPTURE(RandomPolicy, name, id)->Arg(64)->Arg(128)->Arg(256)
MILL_ENV_BENCHMARK(CartPole, "CartPole-v1");
MILL_ENV_BENCHMARK(Acrobot, "Acrobot-v1");
MILL_ENV_BENCHMARK(MountainCar, "MountainCar-v0");
MILL_ENV_BENCHMARK(MountainCarContinuous, "MountainCarContinuous-v0");
MILL_ENV_BENCHMARK(Pendulum, "Pendulum-v1");
MILL_ENV_BENCHMARK(Breakout, "Breakout");
MILL_ENV_BENCHMARK(Null, "Null");

}  // namespace
}  // namespace millrace
