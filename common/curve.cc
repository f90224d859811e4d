#include "common/curve.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_format.h"
#include "common/human.h"
#include "common/status.h"

namespace millrace {
namespace {

// The points resampled to `columns` values: the mean of those that fall into a column, or the straight line
// between the neighbours where none does.
std::vector<double> Resample(std::span<const CurvePoint> points, int columns) {
  const double first = points.front().x;
  const double width = (points.back().x - first) / columns;
  std::vector<double> values(static_cast<size_t>(columns));
  size_t next = 0;  // the first point beyond the columns so far
  for (int c = 0; c < columns; ++c) {
    const double end = c + 1 == columns ? points.back().x : first + width * (c + 1);
    double sum = 0;
    int count = 0;
    for (; next < points.size() && points[next].x <= end; ++next, ++count) sum += points[next].y;
    if (count > 0 || next == 0 || next == points.size()) {
      values[c] = count > 0 ? sum / count : points[next == 0 ? 0 : next - 1].y;
    } else {
      const CurvePoint& a = points[next - 1];
      const CurvePoint& b = points[next];
      const double middle = first + width * (c + 0.5);
      values[c] = a.y + (b.y - a.y) * std::clamp((middle - a.x) / (b.x - a.x), 0.0, 1.0);
    }
  }
  return values;
}

// A picture of dots, of which a character holds 2 x 4 (braille) or one (ASCII).
class Dots {
 public:
  Dots(const PlotStyle& style)
      : unicode_(style.unicode),
        across_(unicode_ ? 2 : 1),
        down_(unicode_ ? 4 : 1),
        width_(style.width),
        cells_(static_cast<size_t>(style.width) * style.height) {}

  int columns() const { return width_ * across_; }
  int rows() const { return static_cast<int>(cells_.size()) / width_ * down_; }

  void Set(int column, int row) {
    // Unicode's numbering of the dots: the lower row came later and has the high bits.
    constexpr uint8_t kBits[2][4] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};
    cells_[(row / down_) * width_ + column / across_] |= kBits[column % across_][row % down_];
  }

  void AppendLine(std::string& out, int line) const {
    const auto begin = cells_.begin() + static_cast<ptrdiff_t>(line) * width_;
    auto end = begin + width_;
    while (end != begin && end[-1] == 0) --end;
    for (auto cell = begin; cell != end; ++cell) {
      if (*cell == 0 || !unicode_) {
        out += *cell == 0 ? ' ' : '*';
      } else {
        // U+2800 and the bits, as UTF-8.
        out += '\xe2';
        out += static_cast<char>(0xa0 | *cell >> 6);
        out += static_cast<char>(0x80 | (*cell & 0x3f));
      }
    }
  }

 private:
  bool unicode_;
  int across_, down_, width_;
  std::vector<uint8_t> cells_;
};

}  // namespace

Curve::Curve(size_t capacity) : capacity_(capacity) {
  MILL_CHECK(capacity >= 2 && capacity % 2 == 0);
  points_.reserve(capacity);
}

void Curve::Add(double x, double y) {
  if (!std::isfinite(y)) return;
  sum_ = {x, sum_.y + y};
  if (++pending_ < stride_) return;
  if (points_.size() == capacity_) {
    for (size_t i = 0; i < capacity_ / 2; ++i) {
      points_[i] = {points_[2 * i + 1].x, (points_[2 * i].y + points_[2 * i + 1].y) / 2};
    }
    points_.resize(capacity_ / 2);
    stride_ *= 2;
    if (pending_ < stride_) return;
  }
  points_.push_back({x, sum_.y / static_cast<double>(pending_)});
  sum_ = {};
  pending_ = 0;
}

std::string PlotCurve(std::span<const CurvePoint> points, const PlotStyle& style) {
  if (points.size() < 2 || points.back().x <= points.front().x) return "";
  Dots dots(style);
  const std::vector<double> values = Resample(points, dots.columns());
  const double low = *std::min_element(values.begin(), values.end());
  const double high = *std::max_element(values.begin(), values.end());
  const double range = high > low ? high - low : 1.0;
  int last = -1;
  for (int c = 0; c < dots.columns(); ++c) {
    const int row = static_cast<int>(std::lround((high - values[c]) / range * (dots.rows() - 1)));
    // Down or up to the neighbour's height, so that a steep curve is one line.
    const int from = last < 0 ? row : last < row ? last + 1 : last > row ? last - 1 : row;
    for (int r = std::min(from, row); r <= std::max(from, row); ++r) dots.Set(c, r);
    last = row;
  }

  std::string out;
  for (int line = 0; line < style.height; ++line) {
    const bool labelled = line == 0 || line + 1 == style.height;
    const std::string label = labelled ? FormatReal(line == 0 ? high : low) : "";
    const char* axis = style.unicode ? (labelled ? "┤" : "│") : (labelled ? "+" : "|");
    absl::StrAppendFormat(&out, "%8s%s", label, axis);
    dots.AppendLine(out, line);
    out += '\n';
  }
  absl::StrAppendFormat(&out, "%8s%s", "", style.unicode ? "└" : "+");
  for (int c = 0; c < style.width; ++c) out += style.unicode ? "─" : "-";
  const std::string left = FormatCount(points.front().x), right = FormatCount(points.back().x);
  absl::StrAppendFormat(&out, "\n%9s%s%*s\n", "", left, style.width - static_cast<int>(left.size()), right);
  return out;
}

}  // namespace millrace
