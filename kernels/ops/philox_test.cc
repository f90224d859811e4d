#include "kernels/ops/philox.h"

#include <gtest/gtest.h>

#include <set>

#include "kernels/testing/golden.h"

namespace millrace {
namespace {

TEST(Philox, FollowsThePublishedAnswers) {
  for (const auto& row : Golden("philox4x32_10").at("rows")) {
    Philox4 counter;
    for (size_t i = 0; i < 4; ++i) counter.v[i] = row.at("counter")[i].get<uint32_t>();
    const Philox4 out = Philox(counter, row.at("key")[0].get<uint32_t>(), row.at("key")[1].get<uint32_t>());
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(out.v[i], row.at("out")[i].get<uint32_t>());
  }
}

TEST(Philox, EveryPartOfTheKeyMatters) {
  std::set<uint32_t> first_words;
  first_words.insert(PhiloxAt(1, Purpose::kAction, 2, 3).v[0]);
  first_words.insert(PhiloxAt(2, Purpose::kAction, 2, 3).v[0]);
  first_words.insert(PhiloxAt(1ull << 32 | 1, Purpose::kAction, 2, 3).v[0]);
  first_words.insert(PhiloxAt(1, Purpose::kEpisode, 2, 3).v[0]);
  first_words.insert(PhiloxAt(1, Purpose::kAction, 3, 3).v[0]);
  first_words.insert(PhiloxAt(1, Purpose::kAction, 2, 4).v[0]);
  first_words.insert(PhiloxAt(1, Purpose::kAction, 2, 1ull << 32 | 3).v[0]);
  first_words.insert(PhiloxAt(1, Purpose::kAction, 2, 3, 1).v[0]);
  EXPECT_EQ(first_words.size(), 8u);
}

TEST(Philox, UniformsStayBelowOne) {
  EXPECT_EQ(UniformFloat(0), 0.0f);
  EXPECT_EQ(UniformFloat(0xffffffffu), 1.0f - 0x1p-24f);
  EXPECT_EQ(UniformDouble(0, 0), 0.0);
  EXPECT_LT(UniformDouble(0xffffffffu, 0xffffffffu), 1.0);
  EXPECT_GT(UniformDouble(0xffffffffu, 0xffffffffu), 1.0 - 1e-15);
}

}  // namespace
}  // namespace millrace
