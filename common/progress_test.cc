#include "common/progress.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

#include "common/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

constexpr Terminal kPlain{false, false, 80};

ProgressState State(uint64_t steps, double return_mean) {
  return {steps, 1'000'000, return_mean};
}

// Columns of a live line: without the carriage return and the erasing, a UTF-8 character counting one.
int Columns(std::string_view line) {
  EXPECT_TRUE(line.starts_with('\r') && line.ends_with("\x1b[K")) << line;
  line = line.substr(1, line.size() - 4);
  return static_cast<int>(std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

TEST(Progress, PlainLinesComeSoonThenEveryFiveSeconds) {
  Progress progress(kPlain, "cartpole", 0, 100.0);
  std::string times;
  for (int tick = 0; tick <= 300; ++tick) {
    const double now = 100.0 + 0.1 * tick;
    if (!progress.Update(State(1000 * tick, 20), now).empty()) CatTo(times, " ", tick);
  }
  EXPECT_EQ(times, " 5 15 35 75 125 175 225 275");
}

TEST(Progress, PlainLine) {
  Progress progress(kPlain, "cartpole", 0, 0.0);
  EXPECT_EQ(progress.Update(State(0, NAN), 0.25), "");
  EXPECT_EQ(progress.Update(State(100'000, NAN), 1.0),
            "1s  100k of 1.00M steps (10%)  100k steps/s  return -  left 9s\n");
  EXPECT_EQ(progress.Clear(), "");
  EXPECT_EQ(progress.Finish(State(1'000'000, 487.25), 10.0),
            "10s  1.00M of 1.00M steps (100%)  100k steps/s  return 487.2\n");
}

// The rate is of what this process did, and follows changes within some seconds.
TEST(Progress, RateOfAResumedRun) {
  Progress progress(kPlain, "a", 400'000, 0.0);
  EXPECT_THAT(std::string(progress.Update(State(500'000, 1), 1.0)),
              HasSubstr("  100k steps/s  return 1  left 5s"));
  // e^(-3/3) of the old rate stays.
  EXPECT_THAT(std::string(progress.Update(State(530'000, 1), 4.0)), HasSubstr("  43.1k steps/s"));
}

TEST(Progress, LiveLine) {
  Progress unicode({true, true, 80}, "cartpole", 0, 0.0);
  EXPECT_EQ(unicode.Update(State(300'000, 21.5), 1.0),
            "\rcartpole [████▏         ] 30%  return 21.5  left 2.3s  300k steps/s  300k/1.00M\x1b[K");
  Progress ascii({true, false, 80}, "cartpole", 0, 0.0);
  EXPECT_EQ(ascii.Update(State(300'000, 21.5), 1.0),
            "\rcartpole [====>         ] 30%  return 21.5  left 2.3s  300k steps/s  300k/1.00M\x1b[K");
  EXPECT_EQ(ascii.Clear(), "\r\x1b[K");
  EXPECT_EQ(ascii.Finish(State(1'000'000, 480), 2.0).back(), '\n');
}

TEST(Progress, LiveIsRedrawnTenTimesASecondAtMost) {
  Progress progress({true, true, 80}, "a", 0, 0.0);
  int drawn = 0;
  for (int ms = 0; ms <= 1000; ++ms) drawn += !progress.Update(State(ms, 1), ms / 1000.0).empty();
  EXPECT_GE(drawn, 9);
  EXPECT_LE(drawn, 10);
  // Another message was written: draw at once.
  EXPECT_EQ(progress.Update(State(1000, 1), 1.001), "");
  progress.Clear();
  EXPECT_NE(progress.Update(State(1000, 1), 1.002), "");
}

// At every width and every fraction the line ends before the last column.
TEST(Progress, LiveLineFits) {
  for (int width = 1; width <= 200; ++width) {
    for (const uint64_t steps : {0, 1, 94'999, 99'600, 500'000, 999'999, 1'000'000, 1'100'000}) {
      Progress progress({true, true, 80}, "breakout-long-name", 0, 0.0);
      progress.SetWidth(width);
      const std::string_view line = progress.Update(State(steps, -123.456), 1.0);
      ASSERT_LE(Columns(line), std::max(0, width - 1)) << width << ": " << line;
      if (width >= 100) {
        ASSERT_THAT(std::string(line), HasSubstr("steps/s"));
      }
    }
  }
}

TEST(Progress, NoStepsKnown) {
  Progress progress({true, false, 60}, "a", 0, 0.0);
  EXPECT_THAT(std::string(progress.Update({0, 0, 0}, 1.0)), HasSubstr("  0%  return 0  left -"));
}

class DetectTerminalTest : public ::testing::Test {
 protected:
  static Terminal With(const char* term, const char* lc_all, const char* lang) {
    ::setenv("TERM", term, 1);
    ::setenv("LC_ALL", lc_all, 1);
    ::unsetenv("LC_CTYPE");
    ::setenv("LANG", lang, 1);
    return DetectTerminal(-1);
  }
};

TEST_F(DetectTerminalTest, Unicode) {
  EXPECT_TRUE(With("xterm", "", "en_GB.UTF-8").unicode);
  EXPECT_TRUE(With("xterm", "C.utf8", "C").unicode);
  EXPECT_FALSE(With("xterm", "C", "en_GB.UTF-8").unicode);
  EXPECT_FALSE(With("xterm", "", "C").unicode);
  EXPECT_FALSE(With("xterm", "", "").unicode);
  EXPECT_FALSE(With("dumb", "", "en_GB.UTF-8").unicode);
  EXPECT_FALSE(With("xterm", "", "en_GB.UTF-8").live) << "no terminal there";
  EXPECT_EQ(With("xterm", "", "").width, 80);
}

}  // namespace
}  // namespace millrace
