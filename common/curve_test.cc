#include "common/curve.h"

#include <cmath>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;

TEST(Curve, MergesNeighboursWhenFull) {
  Curve curve(4);
  for (int i = 1; i <= 4; ++i) curve.Add(i, 10 * i);
  EXPECT_THAT(curve.points(),
              ElementsAre(CurvePoint{1, 10}, CurvePoint{2, 20}, CurvePoint{3, 30}, CurvePoint{4, 40}));
  curve.Add(5, 50);
  EXPECT_THAT(curve.points(), ElementsAre(CurvePoint{2, 15}, CurvePoint{4, 35}));
  curve.Add(5.5, NAN);
  curve.Add(6, 60);
  EXPECT_THAT(curve.points(), ElementsAre(CurvePoint{2, 15}, CurvePoint{4, 35}, CurvePoint{6, 55}));
}

// Whatever the number of points, the mean over all is that of what was given.
TEST(Curve, StaysBoundedAndKeepsTheMean) {
  Curve curve(16);
  const CurvePoint* storage = curve.points().data();
  for (int i = 0; i < 4096; ++i) {
    curve.Add(i, i);
    ASSERT_LE(curve.points().size(), 16u);
  }
  EXPECT_EQ(curve.points().data(), storage);
  double sum = 0;
  for (const CurvePoint& p : curve.points()) sum += p.y;
  const double each = (curve.points().back().x + 1) / static_cast<double>(curve.points().size());
  EXPECT_DOUBLE_EQ(sum * each, curve.points().back().x * (curve.points().back().x + 1) / 2);
}

std::vector<CurvePoint> Line(int n, double slope) {
  std::vector<CurvePoint> points;
  for (int i = 0; i < n; ++i) points.push_back({1000.0 * i, slope * i});
  return points;
}

TEST(PlotCurve, Ascii) {
  EXPECT_EQ(PlotCurve(Line(12, 10), {.width = 12, .height = 4, .unicode = false}),
            "     110+          **\n"
            "        |      ****\n"
            "        |  ****\n"
            "       0+**\n"
            "        +------------\n"
            "         0      11.0k\n");
}

TEST(PlotCurve, Braille) {
  EXPECT_EQ(PlotCurve(Line(12, -10), {.width = 12, .height = 3, .unicode = true}),
            "       0┤⠑⠢⢄⣀\n"
            "        │    ⠉⠒⠤⣀\n"
            "    -110┤        ⠉⠑⠢⢄\n"
            "        └────────────\n"
            "         0      11.0k\n");
}

// A jump is one line from bottom to top, and sparse points are joined.
TEST(PlotCurve, StepsAreJoined) {
  EXPECT_EQ(PlotCurve(std::vector<CurvePoint>{{0, 0}, {4, 0}, {5, 3}, {10, 3}},
                      {.width = 10, .height = 4, .unicode = false}),
            "       3+    ******\n"
            "        |    *\n"
            "        |    *\n"
            "       0+****\n"
            "        +----------\n"
            "         0       10\n");
}

TEST(PlotCurve, LevelsAndTooFewPoints) {
  const PlotStyle style{.width = 4, .height = 2, .unicode = false};
  EXPECT_EQ(PlotCurve({}, style), "");
  EXPECT_EQ(PlotCurve(std::vector<CurvePoint>{{1, 1}}, style), "");
  EXPECT_EQ(PlotCurve(std::vector<CurvePoint>{{1, 1}, {1, 2}}, style), "");
  EXPECT_EQ(PlotCurve(std::vector<CurvePoint>{{0, 5}, {9, 5}}, style),
            "       5+****\n"
            "       5+\n"
            "        +----\n"
            "         0  9\n");
}

}  // namespace
}  // namespace millrace
