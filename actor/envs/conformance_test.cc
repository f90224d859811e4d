// What every environment of the registry must do, whatever it simulates.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "actor/envs/test_block.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/ops/philox.h"

namespace millrace {
namespace {

using testing::HasSubstr;
using testing_support::TestBlock;

constexpr int kSteps = 700;

// The random action of a row at a step, as the 4-byte words that Step takes.
std::vector<uint32_t> Action(const ActionSpec& spec, int row, int step) {
  std::vector<uint32_t> words(spec.width());
  for (size_t j = 0; j < words.size(); ++j) {
    const float unit = UniformFloat(PhiloxAt(11, Purpose::kTest, row, step, static_cast<uint32_t>(j)).v[0]);
    words[j] = spec.box() ? BitsOf(spec.low[j] + unit * (spec.high[j] - spec.low[j]))
                          : static_cast<uint32_t>(unit * static_cast<float>(spec.nvec[j]));
  }
  return words;
}

// Steps rows that play as global rows first, first + 1, ...; all that a row gives is appended to its bytes.
class Player {
 public:
  Player(const std::string& id, int rows, int first)
      : block(id, rows), seen(rows), first_(first), episodes_(rows, 0) {
    for (int row = 0; row < rows; ++row) Reset(row);
  }

  void Step(int step) {
    std::vector<uint32_t> actions;
    for (int row = 0; row < rows(); ++row) {
      const auto words = Action(block.spec().action, first_ + row, step);
      actions.insert(actions.end(), words.begin(), words.end());
    }
    block.Step(actions.data());
    for (int row = 0; row < rows(); ++row) {
      Record(row, block.obs_of(row));
      const std::byte* reward = reinterpret_cast<const std::byte*>(&block.reward[row]);
      Record(row, {reward, reward + sizeof(double)});
      Record(row, {std::byte{block.terminated[row]}, std::byte{block.truncated[row]}});
      if (block.terminated[row] != 0 || block.truncated[row] != 0) Reset(row);
    }
  }

  int rows() const { return block.env->rows(); }

  TestBlock block;
  std::vector<std::vector<std::byte>> seen;  // [rows]

 private:
  void Reset(int row) {
    block.Reset(row, static_cast<uint64_t>(first_ + row) * 1000 + episodes_[row]++);
    Record(row, block.obs_of(row));
  }
  void Record(int row, const std::vector<std::byte>& bytes) {
    seen[row].insert(seen[row].end(), bytes.begin(), bytes.end());
  }

  int first_;
  std::vector<uint64_t> episodes_;
};

class ConformanceTest : public testing::TestWithParam<std::string> {};

TEST_P(ConformanceTest, SpecIsComplete) {
  TestBlock block(GetParam(), 2);
  const EnvSpec& spec = block.spec();
  EXPECT_EQ(spec.id, GetParam());
  EXPECT_FALSE(spec.summary.empty());
  EXPECT_FALSE(spec.observations.empty());
  EXPECT_GT(spec.action.outputs(), 0);
  EXPECT_EQ(block.env->rows(), 2);
}

TEST_P(ConformanceTest, RowsDoNotDependOnTheSizeOfTheBlock) {
  Player wide(GetParam(), 64, 0);
  Player three(GetParam(), 3, 17);
  Player one(GetParam(), 1, 63);
  for (int step = 0; step < kSteps; ++step) {
    for (Player* player : {&wide, &three, &one}) player->Step(step);
  }
  for (int row = 0; row < 3; ++row) EXPECT_EQ(three.seen[row], wide.seen[17 + row]) << row;
  EXPECT_EQ(one.seen[0], wide.seen[63]);
  if (GetParam() == "Ledger") return;  // its rows are alike
  EXPECT_NE(one.seen[0], wide.seen[62]) << "rows with other seeds and actions must differ";
}

TEST_P(ConformanceTest, TheSameSeedGivesTheSameBits) {
  Player a(GetParam(), 2, 5), b(GetParam(), 2, 5);
  for (int step = 0; step < kSteps; ++step) {
    a.Step(step);
    b.Step(step);
  }
  EXPECT_EQ(a.seen, b.seen);
}

TEST_P(ConformanceTest, ASavedRowContinuesExactlyInAnotherBlock) {
  for (const int split : {1, 5, 333}) {
    Player from(GetParam(), 5, 0);
    for (int step = 0; step < split; ++step) from.Step(step);
    TestBlock to(GetParam(), 9);
    for (int row = 0; row < 9; ++row) to.Reset(row, 99);
    const auto state = from.block.Save(3);
    to.env->LoadRow(7, state.data());
    EXPECT_EQ(to.Save(7), state);
    for (int step = split; step < split + 40; ++step) {
      const auto action = Action(to.spec().action, 3, step);
      std::vector<uint32_t> actions;
      for (int row = 0; row < 9; ++row) actions.insert(actions.end(), action.begin(), action.end());
      from.Step(step);
      to.Step(actions.data());
      const size_t tail = from.block.obs_bytes + sizeof(double) + 2;
      if (to.terminated[7] != 0) break;
      ASSERT_TRUE(std::equal(to.observations.begin() + 7 * to.obs_bytes,
                             to.observations.begin() + 8 * to.obs_bytes, from.seen[3].end() - tail))
          << "split " << split << ", step " << step;
      ASSERT_EQ(to.reward[7], from.block.reward[3]);
      ASSERT_EQ(to.Save(7), from.block.Save(3));
    }
  }
}

TEST_P(ConformanceTest, SteppingAfterTheEndDoesNotFault) {
  TestBlock block(GetParam(), 3);
  for (int row = 0; row < 3; ++row) block.Reset(row, row);
  for (int step = 0; step < 3000; ++step) {
    std::vector<uint32_t> actions;
    for (int row = 0; row < 3; ++row) {
      const auto words = Action(block.spec().action, row, step);
      actions.insert(actions.end(), words.begin(), words.end());
    }
    block.Step(actions.data());
  }
}

// The greatest absolute value in an observation. CartPole's speeds have no bound of their own; within an
// episode of random actions they stay below 10.
float Bound(const std::string& id) {
  if (id == "Acrobot-v1") return 9 * 3.1415927f;
  if (id == "CartPole-v1") return 10;
  if (id == "Pendulum-v1") return 8;
  return id.starts_with("MountainCar") ? 1.2f : 1.0f;
}

TEST_P(ConformanceTest, ObservationsStayInTheirBounds) {
  TestBlock probe(GetParam(), 1);
  ASSERT_EQ(probe.spec().observations[0].dtype, DType::kF32);
  const float bound = Bound(GetParam());
  Player player(GetParam(), 32, 100);
  for (int step = 0; step < kSteps; ++step) {
    player.Step(step);
    for (int row = 0; row < 32; ++row) {
      for (int j = 0; j < player.block.spec().observation_elements(); ++j) {
        ASSERT_LE(std::fabs(player.block.obs(row)[j]), bound) << "step " << step << " value " << j;
      }
    }
  }
}

TEST_P(ConformanceTest, RefusesUnknownParamsByName) {
  const auto made = MakeEnv(GetParam(), 1, {{"zzzz", "1"}});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(made.status().message()), HasSubstr("env.params.zzzz: unknown key"));
}

std::string TestName(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  name.erase(std::remove(name.begin(), name.end(), '-'), name.end());
  return name;
}
INSTANTIATE_TEST_SUITE_P(All, ConformanceTest, testing::ValuesIn(EnvIds()), TestName);

std::string Refusal(const std::string& id, int rows, const EnvParams& params) {
  const auto made = MakeEnv(id, rows, params);
  return made.ok() ? "accepted" : std::string(made.status().message());
}

TEST(RegistryTest, IdsAreSorted) {
  const auto ids = EnvIds();
  EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
  EXPECT_THAT(ids, testing::IsSupersetOf({"CartPole-v1", "Breakout", "Null"}));
}

TEST(RegistryTest, NamesWhatIsWrong) {
  EXPECT_EQ(Refusal("cartpole", 1, {}), "env.id: unknown environment 'cartpole'; did you mean CartPole-v1?");
  EXPECT_THAT(Refusal("zzzzzzzzz", 1, {}), HasSubstr("; there are Acrobot-v1, Breakout, CartPole-v1, "));
  EXPECT_EQ(Refusal("CartPole-v1", 0, {}), "env.rows: must be at least 1, not 0");
  EXPECT_EQ(Refusal("CartPole-v1", 1, {{"gravity", "9"}}),
            "env.params.gravity: unknown key; CartPole-v1 has no settings");
  EXPECT_EQ(Refusal("Breakout", 1, {{"frame_skp", "4"}}),
            "env.params.frame_skp: unknown key; did you mean env.params.frame_skip?");
  for (const char* wrong : {"0", "17", "4x", "", "-1", "99999999999999999999"}) {
    EXPECT_THAT(Refusal("Breakout", 1, {{"frame_skip", wrong}}),
                HasSubstr("env.params.frame_skip: must be a whole number from 1 to 16, not '"));
  }
  EXPECT_THAT(Refusal("Null", 1, {{"obs", "84x0"}}), HasSubstr("env.params.obs: "));
  EXPECT_THAT(Refusal("Null", 1, {{"obs", "1000000x1000000"}}), HasSubstr("env.params.obs: "));
  EXPECT_THAT(Refusal("Null", 1, {{"u8", "maybe"}}), HasSubstr("env.params.u8: must be true or false"));
  EXPECT_THAT(Refusal("Null", 1, {{"box", "2"}, {"actions", "3"}}), HasSubstr("env.params.box: excludes"));
}

}  // namespace
}  // namespace millrace
