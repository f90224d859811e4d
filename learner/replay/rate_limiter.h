// RateLimiter: holds the samples that a learner draws and the items that actors insert to a ratio. Station:
// rate_limiter. Pure arithmetic: it says who may go on and counts; who waits, waits elsewhere. Owner: the
// learner of the algorithm; one thread.
//
// The contract is that of Reverb (Cassirer et al. 2021, section 3.4). With
//   balance = inserted * samples_per_insert - sampled,  centre = min_size * samples_per_insert
// inserting n is allowed while it leaves balance <= centre + error_band, and always up to min_size items;
// drawing n is allowed once min_size items are there and while it leaves balance >= centre - error_band.
// The ratio is kept as a fraction of whole numbers, and so is the balance: it does not drift.
#pragma once

#include <cstdint>
#include <string>

#include "common/status.h"

namespace millrace {

struct RateLimiterOptions {
  double samples_per_insert = 1;
  uint64_t min_size = 1;      // items inserted before the first sample
  double error_band = 0;      // in samples; 0: the larger of a block of inserts and a block of samples
  uint64_t insert_block = 1;  // items that are inserted at once, at most
  uint64_t sample_block = 1;  // samples that are drawn at once, at most
  uint64_t capacity = 0;      // of the replay, items; 0: not bounded
};

class RateLimiter {
 public:
  // InvalidArgument for what is not a ratio, and for a configuration in which both sides could wait for each
  // other: min_size above the capacity, or a band in which neither a block of inserts nor of samples has
  // room.
  static StatusOr<RateLimiter> Make(const RateLimiterOptions& options);

  bool CanInsert(uint64_t n) const;
  bool CanSample(uint64_t n) const;
  // Counts; whether it was allowed is the caller's business.
  void Insert(uint64_t n);
  void Sample(uint64_t n);
  // Samples that may be drawn now.
  uint64_t SamplesAllowed() const;

  enum class Waiting : uint8_t { kNobody, kActors, kLearner };
  // Who could not go on by a block.
  Waiting waiting() const;
  // That in a sentence with its figures, for status.
  std::string Why() const;

  uint64_t inserted() const { return inserted_; }
  uint64_t sampled() const { return sampled_; }
  double samples_per_insert() const { return static_cast<double>(up_) / static_cast<double>(down_); }

  // All that a checkpoint needs to go on exactly.
  struct State {
    uint64_t inserted = 0, sampled = 0;
    int64_t balance = 0, up = 0, down = 1;
    bool operator==(const State&) const = default;
  };
  State state() const { return {inserted_, sampled_, balance_, up_, down_}; }
  // A state of another ratio keeps the counts; its balance begins at the centre, or where it has fewer than
  // min_size items, as if all had been inserted at the present ratio.
  void Load(const State& state);

 private:
  uint64_t inserted_ = 0, sampled_ = 0;
  uint64_t min_size_ = 1, insert_block_ = 1, sample_block_ = 1;
  int64_t up_ = 1, down_ = 1;  // samples_per_insert = up / down
  int64_t balance_ = 0;        // these three in samples / down
  int64_t least_ = 0, most_ = 0;
};

}  // namespace millrace
