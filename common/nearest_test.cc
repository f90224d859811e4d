#include "common/nearest.h"

#include "gtest/gtest.h"

namespace millrace {
namespace {

TEST(EditDistanceTest, CountsEdits) {
  EXPECT_EQ(EditDistance("", ""), 0);
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("abc", ""), 3);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
  EXPECT_EQ(EditDistance("gamma", "gama"), 1);
  EXPECT_EQ(EditDistance("clip_rnage", "clip_range"), 1) << "a swap of neighbours is one edit";
  EXPECT_EQ(EditDistance("ca", "abc"), 3) << "no part is edited twice";
  EXPECT_EQ(EditDistance("CARTPOLE", "cartpole"), 0);
}

TEST(EditDistanceTest, IsSymmetric) {
  EXPECT_EQ(EditDistance("minibatch", "mini_batches"), EditDistance("mini_batches", "minibatch"));
}

TEST(NearestNameTest, FindsTheLeastDistance) {
  const std::vector<std::string> keys = {"gamma", "gae_lambda", "clip_range", "clip_schedule"};
  EXPECT_EQ(NearestName("clip_rnage", keys), "clip_range");
  EXPECT_EQ(NearestName("lambda", keys), "");
  EXPECT_EQ(NearestName("gae_lamda", keys), "gae_lambda");
  EXPECT_EQ(NearestName("clip_sched", keys), "clip_schedule") << "the beginning of a name is near";
}

TEST(NearestNameTest, TheFirstOfEqualsWins) {
  EXPECT_EQ(NearestName("rob", {"rod", "rot"}), "rod");
}

TEST(NearestNameTest, NothingNearIsEmpty) {
  EXPECT_EQ(NearestName("zzzzzz", {"gamma", "seed"}), "");
  EXPECT_EQ(NearestName("", {"gamma"}), "");
  EXPECT_EQ(NearestName("gamma", {}), "");
  EXPECT_EQ(NearestName("ab", {"xy"}), "") << "a name of which nothing is left is not near";
}

TEST(NearestNameTest, EnvironmentIdsWithoutCaseOrVersion) {
  const std::vector<std::string> ids = {"Acrobot-v1", "CartPole-v1", "MountainCar-v0",
                                        "MountainCarContinuous-v0"};
  EXPECT_EQ(NearestName("cartpole", ids), "CartPole-v1");
  EXPECT_EQ(NearestName("MountainCar-v1", ids), "MountainCar-v0");
  EXPECT_EQ(NearestName("mountaincarcontinous", ids), "MountainCarContinuous-v0");
}

TEST(DidYouMeanTest, MakesTheClause) {
  EXPECT_EQ(DidYouMean("clip_rnage", {"clip_range"}, "ppo."), "; did you mean ppo.clip_range?");
  EXPECT_EQ(DidYouMean("zzzz", {"clip_range"}), "");
}

}  // namespace
}  // namespace millrace
