#include "cli/tune.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/tune_measure.h"

namespace millrace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Samples/s of sizes 8, 16, ...
BatchTuning Tuning(const std::vector<double>& samples_per_second, uint32_t configured) {
  BatchTuning tuning{"some-preset", "sac.batch_size", configured, 2, "avx2", {}, {}, {}};
  uint32_t batch = 8;
  for (const double rate : samples_per_second) {
    tuning.sizes.push_back({batch, rate / batch, rate, 0.02});
    batch *= 2;
  }
  return tuning;
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::string line;
  for (std::istringstream in(text); std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(Tune, SizesArePowersOfTwoAroundTheConfiguredOneAndItself) {
  EXPECT_THAT(SizesAround(256), ElementsAre(32, 64, 128, 256, 512, 1024, 2048));
  EXPECT_THAT(SizesAround(100), ElementsAre(16, 32, 64, 100, 128, 256, 512));
  EXPECT_THAT(SizesAround(1), ElementsAre(1, 2, 4, 8));
  EXPECT_EQ(SizesAround(UINT32_MAX).back(), UINT32_MAX);
}

TEST(Tune, TheKneeIsTheSmallestSizeWithNineTenthsOfTheBest) {
  EXPECT_EQ(KneeSize(Tuning({100, 500, 899, 900, 1000, 990}, 8).sizes), 3u);
  EXPECT_EQ(BestSize(Tuning({100, 500, 899, 900, 1000, 990}, 8).sizes), 4u);
  EXPECT_EQ(KneeSize(Tuning({950, 1000, 400}, 8).sizes), 0u);
  EXPECT_EQ(KneeSize(Tuning({100, 200, 400}, 8).sizes), 2u);
  EXPECT_EQ(KneeSize(Tuning({7}, 8).sizes), 0u);
}

TEST(Tune, ThePlotsBarsAreInProportionAndItsLinesAreBounded) {
  const BatchTuning tuning = Tuning({250, 500, 1000, 960}, 16);
  for (const int width : {40, 60, 78, 200}) {
    const std::vector<std::string> lines = LinesOf(PlotSizes(tuning, width));
    ASSERT_EQ(lines.size(), 4u);
    const auto bar = [&](size_t i) { return std::count(lines[i].begin(), lines[i].end(), '#'); };
    for (const std::string& line : lines) {
      EXPECT_LE(line.size(), static_cast<size_t>(width)) << line;
      for (const char c : line) EXPECT_TRUE(c >= ' ' && c <= '~') << "not ASCII";
    }
    EXPECT_NEAR(static_cast<double>(bar(0)), static_cast<double>(bar(2)) / 4, 0.51);
    EXPECT_NEAR(static_cast<double>(bar(1)), static_cast<double>(bar(2)) / 2, 0.51);
    EXPECT_EQ(lines[0].find(':'), lines[1].find(':'));
    EXPECT_THAT(lines[2], Not(HasSubstr(":"))) << "its bar is past the mark";
    EXPECT_THAT(lines[0], HasSubstr("        8 |##"));
    EXPECT_THAT(lines[1], HasSubstr("  now"));
    EXPECT_THAT(lines[2], HasSubstr("  proposed"));
  }
  EXPECT_EQ(PlotSizes(tuning, 1), PlotSizes(tuning, 40));
}

TEST(Tune, AProposalOfThePresentSizeSaysSo) {
  const std::string text = ToText(Tuning({500, 950, 1000}, 16));
  EXPECT_THAT(text, HasSubstr("now and proposed"));
  EXPECT_THAT(text, HasSubstr("It is the present size."));
  EXPECT_THAT(text, HasSubstr("--set sac.batch_size=16\n"));
}

TEST(Tune, AProposalAtAnEndOfTheSizesSaysSo) {
  BatchTuning last = Tuning({100, 200, 400}, 16), first = Tuning({950, 1000, 400}, 16);
  EXPECT_THAT(ToText(last), Not(HasSubstr("size measured"))) << "no other is allowed";
  EXPECT_THAT(ToText(first), Not(HasSubstr("size measured")));
  last.larger = {64, 128};
  first.smaller = {2, 4};
  EXPECT_THAT(ToText(last),
              HasSubstr("It is the largest size measured, and larger ones may be faster still:\n"
                        "  --sizes 32,64,128\n"));
  EXPECT_THAT(ToText(first), HasSubstr("It is the smallest size measured, and a smaller one may do as well:\n"
                                       "  --sizes 2,4,8\n"));
  EXPECT_THAT(ToText(Tuning({400, 1000, 900}, 16)), Not(HasSubstr("size measured")));
  EXPECT_TRUE(nlohmann::json::parse(ToJson(last))["at_edge"].get<bool>());
}

TEST(Tune, TextHasTheTableTheRuleAndTheFlag) {
  const std::string text = ToText(Tuning({200, 500, 950, 1000}, 16));
  EXPECT_THAT(text, HasSubstr("updates/s"));
  EXPECT_THAT(text, HasSubstr("       32        29.7         950       33.68      95%       2%  proposed\n"));
  EXPECT_THAT(text, HasSubstr("Proposed: 32, the smallest size with at least 90% of the best samples/s."));
  EXPECT_THAT(text, HasSubstr("Against 16: 2 times the samples an update, in 1.05 times the time."));
  EXPECT_THAT(text, HasSubstr("\n  --set sac.batch_size=32\n"));
  for (const std::string& line : LinesOf(text)) EXPECT_LE(line.size(), 78u) << line;
  EXPECT_THAT(ToText(Tuning({200, 500}, 10)), Not(HasSubstr("Against")));
  EXPECT_THAT(ToText(Tuning({899, 1000}, 8)), HasSubstr(" 89% ")) << "90% would read as enough";
}

TEST(Tune, RatesThatSpreadAreCalledUnsure) {
  BatchTuning tuning = Tuning({500, 950, 1000}, 8);
  EXPECT_THAT(ToText(tuning), Not(HasSubstr("spread by")));
  tuning.sizes[2].spread = 0.25;
  EXPECT_THAT(ToText(tuning), HasSubstr("The rates of a size spread by 25%: "));
}

TEST(Tune, JsonHasEverySize) {
  const auto json = nlohmann::json::parse(ToJson(Tuning({200, 950, 1000}, 8)));
  EXPECT_EQ(json["setting"], "sac.batch_size");
  EXPECT_EQ(json["proposed"], 16);
  EXPECT_EQ(json["set"], "sac.batch_size=16");
  EXPECT_EQ(json["at_edge"], false);
  ASSERT_EQ(json["sizes"].size(), 3u);
  EXPECT_EQ(json["sizes"][0]["batch"], 8);
  EXPECT_EQ(json["sizes"][0]["updates_per_second"], 25);
  EXPECT_EQ(json["sizes"][0]["ms_per_update"], 40);
  EXPECT_EQ(json["sizes"][0]["share_of_best"], 0.2);
}

// Rows, horizons and ratios that make few and many gradient steps of an update.
TEST(Tune, MeasuresBothAlgorithms) {
  ThreadPool threads(2);
  RunOptions ppo;
  ppo.env.id = "CartPole-v1";
  ppo.env.rows = 3;
  ppo.ppo.horizon = 7;
  ppo.ppo.epochs = 2;
  ppo.ppo.target_kl = 1e-9;  // would end an update at its first minibatch
  ppo.policy.hidden = {8};
  auto sizes = MeasureSizes(ppo, {5, 21}, 1e-4, threads);
  ASSERT_TRUE(sizes.ok()) << sizes.status();
  ASSERT_EQ(sizes->size(), 2u);
  EXPECT_EQ((*sizes)[0].batch, 5u);
  EXPECT_GT((*sizes)[0].updates_per_second, 0);
  // 21 samples are five minibatches.
  EXPECT_NEAR((*sizes)[0].samples_per_second / (*sizes)[0].updates_per_second, 4.2, 1e-6);
  EXPECT_NEAR((*sizes)[1].samples_per_second / (*sizes)[1].updates_per_second, 21, 1e-6);

  for (const double ratio : {0.01, 1.0, 30.0}) {
    RunOptions sac;
    sac.algorithm = "sac";
    sac.env.id = "Pendulum-v1";
    sac.env.rows = 2;
    sac.policy.hidden = {8};
    sac.sac.updates_per_step = ratio;
    sac.sac.horizon = 3;
    sac.replay.capacity = 300;
    sac.replay.prioritized = true;
    sizes = MeasureSizes(sac, {4, 64}, 1e-4, threads);
    ASSERT_TRUE(sizes.ok()) << sizes.status();
    EXPECT_GT((*sizes)[1].updates_per_second, 0);
    EXPECT_NEAR((*sizes)[1].samples_per_second / (*sizes)[1].updates_per_second, 64, 1e-6);
  }
}

TEST(Tune, AnErrorNamesItsSize) {
  ThreadPool threads(1);
  RunOptions sac;
  sac.algorithm = "sac";
  sac.env.id = "Pendulum-v1";
  sac.env.rows = 1;
  sac.replay.capacity = 1'000'000'000'000;
  const auto sizes = MeasureSizes(sac, {64}, 1e-4, threads);
  EXPECT_THAT(std::string(sizes.status().message()), HasSubstr("sac.batch_size=64: "));
}

}  // namespace
}  // namespace millrace
