#include "learner/replay/rate_limiter.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/text.h"

namespace millrace {
namespace {

struct Fraction {
  int64_t up = 0, down = 1;
};

// The first convergent of the continued fraction that is x to within its rounding, or the best whose
// denominator is at most a million: 1/3 as a double becomes 1/3.
Fraction FractionOf(double x) {
  constexpr int64_t kMost = 1'000'000;
  int64_t up = 1, down = 0, last_up = 0, last_down = 1;
  for (double rest = x;;) {
    const double whole = std::floor(rest);
    const auto digit = static_cast<int64_t>(whole);
    const int64_t next_up = digit * up + last_up, next_down = digit * down + last_down;
    if (next_down > kMost) break;
    last_up = up;
    last_down = down;
    up = next_up;
    down = next_down;
    const double error = std::abs(static_cast<double>(up) / static_cast<double>(down) - x);
    if (error <= 4 * std::numeric_limits<double>::epsilon() * x || rest == whole) break;
    rest = 1 / (rest - whole);
    if (rest > 1e15) break;
  }
  return {up, down};
}

Status Refused(const std::string& why) {
  return absl::InvalidArgumentError(why);
}

}  // namespace

StatusOr<RateLimiter> RateLimiter::Make(const RateLimiterOptions& o) {
  constexpr double kMostRatio = 1e11, kLeastRatio = 1e-6;
  if (!(o.samples_per_insert >= kLeastRatio && o.samples_per_insert <= kMostRatio)) {
    return Refused(
        Cat("replay.samples_per_insert is ", o.samples_per_insert, "; from 1e-6 to 1e11 are possible"));
  }
  if (!(o.error_band >= 0) || !std::isfinite(o.error_band)) {
    return Refused(Cat("replay.error_band is ", o.error_band, "; it is a number of samples, 0 or more"));
  }
  if (o.min_size < 1 || o.insert_block < 1 || o.sample_block < 1) {
    return Refused("replay.min_size and the blocks of inserts and samples begin at 1");
  }
  if (o.capacity > 0 && o.min_size > o.capacity) {
    return Refused(Cat("replay.min_size ", o.min_size, " is never reached: replay.capacity is ", o.capacity));
  }
  const Fraction ratio = FractionOf(o.samples_per_insert);
  const double down = static_cast<double>(ratio.down);
  const double inserts = static_cast<double>(o.insert_block) * static_cast<double>(ratio.up) / down;
  const double samples = static_cast<double>(o.sample_block);
  const double band = o.error_band > 0 ? o.error_band : std::max(inserts, samples);
  // Both wait where the balance is above most - inserts and below least + samples.
  if (2 * band < inserts + samples) {
    return Refused(Cat("replay.error_band ", band, " lets actors and learner wait for each other: ", inserts,
                       " samples' worth of inserts and a batch of ", samples, " need ",
                       (inserts + samples) / 2, " or more"));
  }
  const double reach = (static_cast<double>(o.min_size) + static_cast<double>(o.insert_block)) *
                           static_cast<double>(ratio.up) +
                       (band + samples) * down;
  if (reach > 4e18) return Refused("replay.min_size and replay.samples_per_insert are too large together");
  RateLimiter limiter;
  limiter.min_size_ = o.min_size;
  limiter.insert_block_ = o.insert_block;
  limiter.sample_block_ = o.sample_block;
  limiter.up_ = ratio.up;
  limiter.down_ = ratio.down;
  const int64_t centre = static_cast<int64_t>(o.min_size) * ratio.up;
  const auto half = static_cast<int64_t>(std::ceil(band * down));
  limiter.least_ = centre - half;
  limiter.most_ = centre + half;
  return limiter;
}

bool RateLimiter::CanInsert(uint64_t n) const {
  if (inserted_ + n <= min_size_) return true;
  return balance_ + static_cast<int64_t>(n) * up_ <= most_;
}

bool RateLimiter::CanSample(uint64_t n) const {
  return inserted_ >= min_size_ && balance_ - static_cast<int64_t>(n) * down_ >= least_;
}

uint64_t RateLimiter::SamplesAllowed() const {
  if (inserted_ < min_size_ || balance_ < least_) return 0;
  return static_cast<uint64_t>((balance_ - least_) / down_);
}

void RateLimiter::Insert(uint64_t n) {
  inserted_ += n;
  balance_ += static_cast<int64_t>(n) * up_;
}

void RateLimiter::Sample(uint64_t n) {
  sampled_ += n;
  balance_ -= static_cast<int64_t>(n) * down_;
}

RateLimiter::Waiting RateLimiter::waiting() const {
  if (!CanSample(sample_block_)) return Waiting::kLearner;
  return CanInsert(insert_block_) ? Waiting::kNobody : Waiting::kActors;
}

std::string RateLimiter::Why() const {
  const double done = inserted_ == 0 ? 0 : static_cast<double>(sampled_) / static_cast<double>(inserted_);
  const std::string ratio = Cat(sampled_, " samples of ", inserted_, " steps, ", done, " a step; ",
                                samples_per_insert(), " are wanted");
  if (inserted_ < min_size_) {
    return Cat("the learner waits for the first ", min_size_, " steps: ", inserted_, " are there");
  }
  switch (waiting()) {
    case Waiting::kLearner:
      return Cat("the learner waits for steps of the actors: ", ratio);
    case Waiting::kActors:
      return Cat("the actors wait for the learner: ", ratio);
    case Waiting::kNobody:
      break;
  }
  return Cat("nobody waits: ", ratio);
}

void RateLimiter::Load(const State& state) {
  inserted_ = state.inserted;
  sampled_ = state.sampled;
  if (state.up == up_ && state.down == down_) {
    balance_ = state.balance;
    return;
  }
  balance_ = static_cast<int64_t>(std::min(inserted_, min_size_)) * up_;
}

}  // namespace millrace
