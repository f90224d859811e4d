// A curve of bounded size (the return over the steps), and its picture in text.
// Owner: the run's loop. Threads: one. A Curve allocates once, at the start.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace millrace {

struct CurvePoint {
  double x = 0, y = 0;
  bool operator==(const CurvePoint&) const = default;
};

// Takes any number of points in the order of x and keeps at most `capacity` (even, at least 2): when full,
// neighbours are merged into their mean, and from then on each kept point stands for twice as many.
class Curve {
 public:
  explicit Curve(size_t capacity = 512);
  void Add(double x, double y);  // a y that is not finite is passed over
  std::span<const CurvePoint> points() const { return points_; }

 private:
  size_t capacity_;
  std::vector<CurvePoint> points_;
  size_t stride_ = 1;  // points given for one that is kept
  CurvePoint sum_;     // of the `pending_` points since the last one kept
  size_t pending_ = 0;
};

struct PlotStyle {
  int width = 60;  // characters of the picture itself; the scale at its left takes nine more
  int height = 10;
  bool unicode = true;  // braille and lines; else ASCII
};

// Lines of text, each with its newline; empty for less than two points. Below the picture the range of x.
std::string PlotCurve(std::span<const CurvePoint> points, const PlotStyle& style);

}  // namespace millrace
