// RateWindow: totals over the last ten seconds, for status: what changed, and in how long. Owner: whoever
// guards it. `Total` is anything with a difference that makes sense, copied at most twice a second.
#pragma once

#include <chrono>
#include <deque>

namespace millrace {

template <class Total>
class RateWindow {
 public:
  using Time = std::chrono::steady_clock::time_point;

  void Add(Time now, const Total& total) {
    if (samples_.size() >= 2 && now - samples_[samples_.size() - 2].time < kSpacing) samples_.pop_back();
    samples_.push_back({now, total});
    while (samples_.size() > 2 && now - samples_[1].time >= kWindow) samples_.pop_front();
  }
  bool known() const { return samples_.size() >= 2 && samples_.back().time > samples_.front().time; }
  const Total& first() const { return samples_.front().total; }
  const Total& last() const { return samples_.back().total; }
  double seconds() const {
    return std::chrono::duration<double>(samples_.back().time - samples_.front().time).count();
  }
  void Clear() { samples_.clear(); }

 private:
  static constexpr auto kWindow = std::chrono::seconds(10);
  static constexpr auto kSpacing = std::chrono::milliseconds(500);
  struct Sample {
    Time time;
    Total total;
  };
  std::deque<Sample> samples_;
};

}  // namespace millrace
