#include "learner/replay/rate_limiter.h"

#include <gtest/gtest.h>

#include <cmath>

namespace millrace {
namespace {

RateLimiter MakeLimiter(const RateLimiterOptions& options) {
  auto made = RateLimiter::Make(options);
  EXPECT_TRUE(made.ok()) << made.status();
  return *made;
}

RateLimiterOptions Options(double ratio, uint64_t min_size, uint64_t insert_block, uint64_t sample_block) {
  RateLimiterOptions options;
  options.samples_per_insert = ratio;
  options.min_size = min_size;
  options.insert_block = insert_block;
  options.sample_block = sample_block;
  return options;
}

// One side goes as far as it may, then the other, as a learner in sync mode does.
void Alternate(RateLimiter& limiter, uint64_t inserts, uint64_t samples, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    ASSERT_TRUE(limiter.CanInsert(inserts)) << limiter.Why();
    limiter.Insert(inserts);
    while (limiter.CanSample(samples)) limiter.Sample(samples);
  }
}

TEST(RateLimiter, NothingIsDrawnBeforeTheMinimum) {
  RateLimiter limiter = MakeLimiter(Options(256, 1000, 8, 256));
  for (int i = 0; i < 124; ++i) {
    ASSERT_TRUE(limiter.CanInsert(8));
    limiter.Insert(8);
    ASSERT_FALSE(limiter.CanSample(1));
  }
  EXPECT_EQ(limiter.waiting(), RateLimiter::Waiting::kLearner);
  EXPECT_EQ(limiter.Why(), "the learner waits for the first 1000 steps: 992 are there");
  limiter.Insert(8);
  EXPECT_TRUE(limiter.CanSample(256));
  EXPECT_EQ(limiter.SamplesAllowed(), 8u * 256) << "those of the last block";
}

TEST(RateLimiter, UpdatesPerStepOfManyRatios) {
  constexpr uint64_t kBatch = 256, kRows = 8, kMin = 1000;
  for (double updates : {1.0 / 8, 1.0 / 3, 1.0, 1.5, 2.0 / 7, 20.0}) {
    RateLimiter limiter = MakeLimiter(Options(updates * kBatch, kMin, kRows, kBatch));
    Alternate(limiter, kRows, kBatch, 10'000);
    const double wanted = updates * (static_cast<double>(limiter.inserted()) - kMin);
    const double got = static_cast<double>(limiter.sampled()) / kBatch;
    EXPECT_NEAR(got, wanted, updates * kRows + 1) << updates;
  }
}

TEST(RateLimiter, DoesNotDriftInABillionSteps) {
  // 1/3 of a batch a step: as a double neither it nor its product with a billion is exact.
  RateLimiter limiter = MakeLimiter(Options(100.0 / 3, 3000, 3'000'000, 100));
  for (int i = 0; i < 1000; ++i) {
    limiter.Insert(3'000'000);
    limiter.Sample(100'000'000);
  }
  EXPECT_EQ(limiter.inserted(), 3'000'000'000u);
  EXPECT_EQ(limiter.state().balance, 0);
  EXPECT_EQ(limiter.state().up, 100);
  EXPECT_EQ(limiter.state().down, 3);
}

TEST(RateLimiter, HoldsBothSidesToTheBand) {
  RateLimiterOptions options = Options(2, 10, 1, 1);
  options.error_band = 5;
  RateLimiter limiter = MakeLimiter(options);
  int inserted = 0;
  while (limiter.CanInsert(1)) {
    limiter.Insert(1);
    ASSERT_LT(++inserted, 1000);
  }
  EXPECT_EQ(inserted, 12) << "balance 24 of at most 2 * 10 + 5";
  EXPECT_EQ(limiter.waiting(), RateLimiter::Waiting::kActors);
  EXPECT_EQ(limiter.Why(), "the actors wait for the learner: 0 samples of 12 steps, 0 a step; 2 are wanted");
  int sampled = 0;
  while (limiter.CanSample(1)) {
    limiter.Sample(1);
    ASSERT_LT(++sampled, 1000);
  }
  EXPECT_EQ(sampled, 9) << "down to 2 * 10 - 5";
  EXPECT_EQ(limiter.waiting(), RateLimiter::Waiting::kLearner);
}

// Any order of the two sides: one of them can always go on.
TEST(RateLimiter, NeverDeadlocksWhereItIsMade) {
  uint64_t state = 1;
  const auto random = [&] {
    return state = state * 6364136223846793005u + 1442695040888963407u, state >> 40;
  };
  int refused = 0;
  for (int trial = 0; trial < 400; ++trial) {
    const uint64_t inserts = 1 + random() % 20, samples = 1 + random() % 300;
    RateLimiterOptions options =
        Options((1.0 + static_cast<double>(random() % 50)) / (1.0 + static_cast<double>(random() % 9)),
                1 + random() % 50, inserts, samples);
    options.error_band = static_cast<double>(random() % 300);
    const auto made = RateLimiter::Make(options);
    if (!made.ok()) {
      ++refused;
      continue;
    }
    RateLimiter limiter = *made;
    for (int i = 0; i < 500; ++i) {
      const bool can_insert = limiter.CanInsert(inserts), can_sample = limiter.CanSample(samples);
      ASSERT_TRUE(can_insert || can_sample) << limiter.Why();
      if (can_insert && (!can_sample || random() % 2 == 0)) {
        limiter.Insert(inserts);
      } else {
        limiter.Sample(samples);
      }
    }
  }
  EXPECT_GT(refused, 10);
  EXPECT_LT(refused, 390);
}

TEST(RateLimiter, RefusesWhatCouldDeadlock) {
  RateLimiterOptions options = Options(32, 1000, 1, 256);
  options.error_band = 100;
  EXPECT_EQ(
      RateLimiter::Make(options).status().message(),
      "replay.error_band 100 lets actors and learner wait for each other: 32 samples' worth of inserts and "
      "a batch of 256 need 144 or more");
  options.error_band = 0;
  options.capacity = 999;
  EXPECT_EQ(RateLimiter::Make(options).status().message(),
            "replay.min_size 1000 is never reached: replay.capacity is 999");
  for (double ratio : {0.0, -1.0, std::nan(""), 1e-7, 1e12}) {
    EXPECT_FALSE(RateLimiter::Make(Options(ratio, 1, 1, 1)).ok()) << ratio;
  }
  options = Options(1, 1, 1, 1);
  options.error_band = -1;
  EXPECT_FALSE(RateLimiter::Make(options).ok());
  EXPECT_FALSE(RateLimiter::Make(Options(1, 0, 1, 1)).ok());
}

TEST(RateLimiter, StateGoesOnExactly) {
  const RateLimiterOptions options = Options(100.0 / 3, 50, 2, 100);
  RateLimiter a = MakeLimiter(options), b = MakeLimiter(options);
  Alternate(a, 2, 100, 777);
  b.Load(a.state());
  EXPECT_EQ(a.state(), b.state());
  Alternate(a, 2, 100, 100);
  Alternate(b, 2, 100, 100);
  EXPECT_EQ(a.state(), b.state());

  RateLimiter other = MakeLimiter(Options(50, 50, 2, 100));
  other.Load(a.state());
  EXPECT_EQ(other.inserted(), a.inserted());
  EXPECT_TRUE(other.CanSample(100));
  EXPECT_TRUE(other.CanInsert(2));
}

}  // namespace
}  // namespace millrace
