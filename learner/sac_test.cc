#include "learner/sac.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>

#include "learner/testing/replay_feed.h"

namespace millrace {
namespace {

using replay_testing::Feed;
using replay_testing::FeedSpec;
using testing::HasSubstr;

RunOptions Options() {
  RunOptions options;
  options.algorithm = "sac";
  options.env.rows = 4;
  options.policy.hidden = {16, 16};
  options.sac.batch_size = 20;
  options.sac.horizon = 2;
  options.sac.max_q_ratio = 1e6;
  options.replay.capacity = 400;
  options.replay.min_size = 24;
  return options;
}

// Two groups of two rows with ends of both kinds; rewards are as large as the observations' numbers.
struct Feeds {
  Feed first{FeedSpec(), 2, 2, {0.05, 0.05, 0.02}, 3, 0.5f};
  Feed second{FeedSpec(), 2, 2, {0.05, 0.05, 0.02}, 4, 200.5f};

  std::vector<SegmentView> Next() {
    std::vector<SegmentView> segments = {first.Next(), second.Next()};
    for (const SegmentView& s : segments) {
      for (int i = 0; i < s.layout().samples(); ++i) s.reward()[i] *= 0.01f;
    }
    return segments;
  }
};

std::unique_ptr<SacLearner> Make(const RunOptions& options, ThreadPool& threads) {
  auto learner = SacLearner::Make(options, FeedSpec(), {2, 2}, threads);
  EXPECT_TRUE(learner.ok()) << learner.status();
  return *std::move(learner);
}

std::map<std::string, std::vector<double>> StateOf(SacLearner& learner) {
  std::map<std::string, std::vector<double>> all;
  for (const StateTensor& t : learner.State()) {
    std::vector<double>& values = all[t.name];
    for (size_t i = 0; i < t.elements(); ++i) {
      values.push_back(t.f32 != nullptr   ? static_cast<double>(t.f32[i])
                       : t.f64 != nullptr ? t.f64[i]
                       : t.i64 != nullptr ? static_cast<double>(t.i64[i])
                                          : static_cast<double>(t.bytes[i]));
    }
  }
  return all;
}

TEST(SacLearner, BitsDoNotDependOnThreads) {
  RunOptions options = Options();
  options.env.normalize_obs = true;
  options.sac.updates_per_step = 0.5;
  options.replay.n_step = 2;
  for (const bool prioritized : {false, true}) {
    options.replay.prioritized = prioritized;
    std::vector<std::map<std::string, std::vector<double>>> results;
    for (int n : {1, 2, 5}) {
      ThreadPool threads(n);
      const auto learner = Make(options, threads);
      Feeds feeds;
      for (int i = 0; i < 12; ++i) {
        const auto report = learner->Update(feeds.Next(), 0.05 * i);
        ASSERT_TRUE(report.ok()) << report.status();
      }
      EXPECT_GT(learner->optimizer_steps(), 10u);
      results.push_back(StateOf(*learner));
    }
    EXPECT_EQ(results[1], results[0]);
    EXPECT_EQ(results[2], results[0]);
  }
}

TEST(SacLearner, TakesNoStepBeforeTheReplayHasEnoughAndThenKeepsTheRatioExactly) {
  for (const double ratio : {0.125, 1.0 / 3, 2.0}) {
    RunOptions options = Options();
    options.sac.updates_per_step = ratio;
    options.sac.batch_size = 8;
    ThreadPool threads(2);
    const auto learner = Make(options, threads);
    Feeds feeds;
    uint64_t first_steps = 0, first_inserts = 0;
    for (int i = 0; i < 150; ++i) {
      ASSERT_TRUE(learner->Update(feeds.Next(), 0).ok());
      const uint64_t inserted = learner->limiter().inserted(), steps = learner->optimizer_steps();
      if (inserted < options.replay.min_size) {
        EXPECT_EQ(steps, 0u);
      }
      if (i == 20) first_steps = steps, first_inserts = inserted;
      if (i < 20) continue;
      // Never further off than what one Update brings.
      const double due = static_cast<double>(inserted - first_inserts) * ratio;
      EXPECT_NEAR(static_cast<double>(steps - first_steps), due, std::max(1.0, 8 * ratio)) << ratio;
    }
    EXPECT_EQ(learner->updates(), 150u);
  }
}

TEST(SacLearner, AWideBandIsWorkedOffOverManyUpdates) {
  RunOptions options = Options();
  options.policy.hidden = {8};
  options.sac.batch_size = 4;
  options.replay.min_size = 8;
  options.replay.error_band = 1e8;
  ThreadPool threads(1);
  const auto learner = Make(options, threads);
  Feeds feeds;
  for (int i = 0; i < 4; ++i) {
    const auto report = learner->Update(feeds.Next(), 0);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->minibatches, 1000);
  }
  EXPECT_EQ(learner->limiter().sampled(), 4u * 1000 * 4);
  const uint64_t due = (learner->limiter().inserted() - options.replay.min_size) * 4;
  EXPECT_EQ(learner->limiter().SamplesAllowed(), 100'000'000 + due - 16'000) << "the rest stays due";
}

TEST(SacLearner, AnUpdateTakesAllThatItsOwnTransitionsMakeDue) {
  RunOptions options = Options();
  options.policy.hidden = {4};
  options.sac.batch_size = 1;
  options.sac.updates_per_step = 300;
  options.replay.min_size = 12;
  ThreadPool threads(1);
  const auto learner = Make(options, threads);
  Feeds feeds;
  ASSERT_EQ(learner->Update(feeds.Next(), 0)->minibatches, 0);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(learner->Update(feeds.Next(), 0).ok());
    const uint64_t due = learner->limiter().inserted() - options.replay.min_size;
    EXPECT_EQ(learner->optimizer_steps(), (due + 8) * 300) << "with the band, which is an Update's inserts";
  }
}

// Inserts of eight transitions at two samples each: sixteen more are due with every update.
RunOptions AdaptiveOptions(uint32_t least, uint32_t most) {
  RunOptions options = Options();
  options.sac.batch_size = 8;
  options.sac.updates_per_step = 0.25;
  options.sac.batch_min = least;
  options.sac.batch_max = most;
  return options;
}

TEST(SacLearner, AnAdaptiveBatchTakesWhatIsDueWithinItsBounds) {
  ThreadPool threads(2);
  const auto learner = Make(AdaptiveOptions(5, 24), threads);
  const RateLimiter& limiter = learner->limiter();
  Feeds feeds;
  int ready = 0;  // updates from the first gradient step on
  for (int i = 0; i < 60; ++i) {
    const uint64_t sampled = limiter.sampled(), inserted = limiter.inserted(),
                   left = limiter.SamplesAllowed();
    const auto report = learner->Update(feeds.Next(), 0);
    ASSERT_TRUE(report.ok()) << report.status();
    const uint64_t drawn = limiter.sampled() - sampled;
    EXPECT_LT(limiter.SamplesAllowed(), 5u) << "what is due was left";
    if (report->minibatches == 0) {
      EXPECT_EQ(drawn, 0u);
      EXPECT_TRUE(std::isnan(report->batch_mean) && std::isnan(report->batch_min) &&
                  std::isnan(report->batch_max));
      continue;
    }
    EXPECT_EQ(static_cast<uint64_t>(std::lround(report->batch_mean * report->minibatches)), drawn);
    EXPECT_GE(report->batch_min, 5);
    EXPECT_LE(report->batch_min, report->batch_mean);
    EXPECT_LE(report->batch_mean, report->batch_max);
    if (++ready == 1) {
      EXPECT_EQ(report->batch_max, 24) << "the limiter's band lets the first one go ahead";
      continue;
    }
    const uint64_t due = left + 2 * (limiter.inserted() - inserted);
    EXPECT_EQ(report->batch_max, due) << "one batch of all that came in";
    EXPECT_EQ(drawn, due);
  }
  EXPECT_GT(ready, 50);
}

// In mode async a batch of segments may have several of each group: larger batches, of the same content.
TEST(SacLearner, AnUpdateOfMoreSegmentsMakesALargerBatch) {
  ThreadPool threads(2);
  RunOptions options = AdaptiveOptions(5, 80);
  options.mode = RunMode::kAsync;
  options.env.normalize_obs = true;
  const auto one = Make(options, threads), many = Make(options, threads);
  const RateLimiter& limiter = many->limiter();
  Feeds feeds;
  for (int i = 0; i < 40; ++i) {
    std::vector<std::vector<uint64_t>> memory;  // a feed's segment is valid until its next one
    std::vector<SegmentView> segments;
    std::vector<uint32_t> groups;
    for (int round = 0; round <= i % 4; ++round) {
      const std::vector<SegmentView> fed = feeds.Next();
      ASSERT_TRUE(one->Update(fed, 0).ok());
      for (const SegmentView& s : fed) {
        memory.emplace_back(s.layout().bytes() / 8 + 1);
        std::memcpy(memory.back().data(), s.base(), s.layout().bytes());
        segments.emplace_back(&s.layout(), reinterpret_cast<std::byte*>(memory.back().data()));
        groups.push_back(static_cast<uint32_t>(groups.size() % 2));
      }
    }
    const uint64_t inserted = limiter.inserted(), left = limiter.SamplesAllowed();
    const auto report = many->Update(segments, 0, groups);
    ASSERT_TRUE(report.ok()) << report.status();
    if (i < 8) continue;  // the limiter's band lets the first ones go ahead
    EXPECT_EQ(report->minibatches, 1);
    EXPECT_EQ(report->batch_mean, left + 2 * (limiter.inserted() - inserted));
  }
  EXPECT_EQ(many->replay().added(), one->replay().added());
  EXPECT_EQ(StateOf(*many)["statistics/observation"], StateOf(*one)["statistics/observation"]);
}

// Gradient steps of an update are bounded; small batches need many, and the ratio is kept all the same.
TEST(SacLearner, BatchesFarBelowTheConfiguredSizeKeepTheRatio) {
  ThreadPool threads(1);
  RunOptions options = AdaptiveOptions(4, 8);
  options.sac.batch_size = 64;
  options.sac.updates_per_step = 40;
  const auto learner = Make(options, threads);
  Feeds feeds;
  for (int i = 0; i < 6; ++i) {
    const auto report = learner->Update(feeds.Next(), 0);
    ASSERT_TRUE(report.ok()) << report.status();
    if (i < 4) continue;  // until there is enough to draw from
    EXPECT_GT(report->minibatches, 2000);
    EXPECT_LT(learner->limiter().SamplesAllowed(), 8u);
  }
}

TEST(SacLearner, TheLagOfABatchIsReportedInModeAsync) {
  ThreadPool threads(1);
  for (const RunMode mode : {RunMode::kSync, RunMode::kAsync}) {
    RunOptions options = AdaptiveOptions(5, 24);
    options.mode = mode;
    const auto learner = Make(options, threads);
    Feeds feeds;
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(learner->Update(feeds.Next(), 0).ok());
    const std::vector<SegmentView> fed = feeds.Next();
    uint64_t sum = 0, samples = 0;
    for (const SegmentView& segment : fed) {
      for (int t = 0; t < segment.layout().steps(); ++t) {
        segment.policy_version()[t] = 2 + static_cast<uint64_t>(t % 2);
        sum += static_cast<uint64_t>(segment.layout().rows()) * (t % 2 == 0 ? 3 : 2);
        samples += static_cast<uint64_t>(segment.layout().rows());
      }
    }
    const auto report = learner->Update(fed, 0);
    ASSERT_TRUE(report.ok()) << report.status();
    if (mode == RunMode::kSync) {
      EXPECT_TRUE(std::isnan(report->policy_lag_mean) && std::isnan(report->policy_lag_max));
    } else {
      EXPECT_DOUBLE_EQ(report->policy_lag_mean, static_cast<double>(sum) / static_cast<double>(samples));
      EXPECT_EQ(report->policy_lag_max, 3);
    }
  }
}

TEST(SacLearner, WhatIsDueBelowTheLeastBatchWaits) {
  ThreadPool threads(1);
  const auto learner = Make(AdaptiveOptions(40, 40), threads);
  Feeds feeds;
  int steps = 0, updates_with_steps = 0;
  for (int i = 0; i < 50; ++i) {
    const auto report = learner->Update(feeds.Next(), 0);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_LT(learner->limiter().SamplesAllowed(), 40u);
    if (report->minibatches > 0) {
      EXPECT_EQ(report->batch_min, 40);
      ++updates_with_steps;
    }
    steps += report->minibatches;
  }
  // 400 transitions less the 24 before the first: 752 samples and the band's 40 are due.
  EXPECT_EQ(steps, 19);
  EXPECT_EQ(updates_with_steps, 19) << "an update brings less than a batch";
}

TEST(SacLearner, AdaptiveBatchesDoNotDependOnThreads) {
  std::vector<std::map<std::string, std::vector<double>>> results;
  for (int n : {1, 4}) {
    ThreadPool threads(n);
    RunOptions options = AdaptiveOptions(3, 100);
    options.replay.prioritized = true;
    const auto learner = Make(options, threads);
    Feeds feeds;
    for (int i = 0; i < 12; ++i) ASSERT_TRUE(learner->Update(feeds.Next(), 0).ok());
    EXPECT_GT(learner->optimizer_steps(), 5u);
    results.push_back(StateOf(*learner));
  }
  EXPECT_EQ(results[1], results[0]);
}

TEST(SacLearner, AStepThatIsNotFiniteStopsOrIsSkippedAndTheWeightsStand) {
  for (const OnNonfinite mode : {OnNonfinite::kStop, OnNonfinite::kSkip}) {
    RunOptions options = Options();
    options.run.on_nonfinite = mode;
    ThreadPool threads(1);
    const auto learner = Make(options, threads);
    Feeds feeds;
    const auto before = StateOf(*learner).at("weights/critic0/0/weight");
    Status status = absl::OkStatus();
    int skipped = 0;
    for (int i = 0; i < 4 && status.ok(); ++i) {
      const std::vector<SegmentView> segments = feeds.Next();
      for (const SegmentView& s : segments) {
        for (int k = 0; k < s.layout().samples(); ++k) s.reward()[k] = NAN;
      }
      const auto report = learner->Update(segments, 0);
      status = report.status();
      if (report.ok()) skipped += report->skipped;
    }
    EXPECT_EQ(StateOf(*learner).at("weights/critic0/0/weight"), before);
    if (mode == OnNonfinite::kStop) {
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
      EXPECT_THAT(status.message(), HasSubstr("gradient step 1 "));
      EXPECT_THAT(status.message(), HasSubstr("batch/reward is not finite"));
    } else {
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_GT(skipped, 0);
    }
  }
}

// Updates until one fails; the status of that, or OK after `most`.
Status UpdateUntilAnError(SacLearner& learner, int most) {
  Feeds feeds;
  for (int i = 0; i < most; ++i) {
    if (const Status status = learner.Update(feeds.Next(), 0).status(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

TEST(SacLearner, QBeyondItsBoundIsNamedOrCounted) {
  RunOptions options = Options();
  options.sac.max_q_ratio = 1e-6;
  ThreadPool threads(1);
  EXPECT_THAT(UpdateUntilAnError(*Make(options, threads), 20).message(),
              HasSubstr("q (of the critics) explodes"));
  options.run.on_nonfinite = OnNonfinite::kSkip;
  const auto learner = Make(options, threads);
  EXPECT_TRUE(UpdateUntilAnError(*learner, 20).ok());
  EXPECT_GT(learner->exploded(), 0);
  Feeds feeds;
  const auto report = learner->Update(feeds.Next(), 0);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->q_exploded, static_cast<uint64_t>(learner->exploded()));
  EXPECT_EQ(report->alpha_limited, 0u);
}

TEST(SacLearner, AlphaThatRunsAwayIsNamedOrHeld) {
  RunOptions options = Options();
  options.sac.auto_target_entropy = false;
  options.sac.target_entropy = 0.69 * FeedSpec().action.width();  // as good as uniform, so never reached
  options.sac.alpha_learning_rate = 0.1;
  options.sac.max_alpha = 2;
  ThreadPool threads(1);
  EXPECT_THAT(UpdateUntilAnError(*Make(options, threads), 20).message(), HasSubstr("alpha runs away"));
  options.run.on_nonfinite = OnNonfinite::kSkip;
  const auto learner = Make(options, threads);
  EXPECT_TRUE(UpdateUntilAnError(*learner, 20).ok());
  EXPECT_GT(learner->alpha_limited(), 0);
  Feeds feeds;
  const auto report = learner->Update(feeds.Next(), 0);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->alpha_limited, static_cast<uint64_t>(learner->alpha_limited()));
  EXPECT_LE(learner->step().alpha(), 2.0001);
}

TEST(SacLearner, ObservationStatisticsComeFromEachFrameOnce) {
  RunOptions options = Options();
  options.env.normalize_obs = true;
  options.sac.updates_per_step = 4;
  ThreadPool threads(2);
  const auto learner = Make(options, threads);
  Feeds feeds;
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(learner->Update(feeds.Next(), 0).ok());
  const std::vector<double> statistics = StateOf(*learner).at("statistics/observation");
  EXPECT_NEAR(statistics.back(), 10 * 8 + 1e-4, 1e-9);
}

// As a checkpoint does it.
Status Load(SacLearner& from, SacLearner& to, const std::function<void(StateTensor&)>& spoil = nullptr) {
  const std::vector<StateTensor> saved = from.State();
  for (const StateTensor& t : saved) EXPECT_TRUE(to.ResizeState(t.name, t.shape[0]).ok()) << t.name;
  std::vector<StateTensor> loaded = to.State();
  EXPECT_EQ(saved.size(), loaded.size());
  for (size_t i = 0; i < saved.size(); ++i) {
    EXPECT_EQ(saved[i].name, loaded[i].name);
    EXPECT_EQ(saved[i].shape, loaded[i].shape) << saved[i].name;
    const size_t n = saved[i].elements();
    if (saved[i].f32 != nullptr) std::copy_n(saved[i].f32, n, loaded[i].f32);
    if (saved[i].f64 != nullptr) std::copy_n(saved[i].f64, n, loaded[i].f64);
    if (saved[i].i64 != nullptr) std::copy_n(saved[i].i64, n, loaded[i].i64);
    if (saved[i].bytes != nullptr) std::copy_n(saved[i].bytes, n, loaded[i].bytes);
    if (spoil) spoil(loaded[i]);
  }
  return to.Loaded(from.updates(), from.optimizer_steps());
}

TEST(SacLearner, ACheckpointWithTheReplayGoesOnToTheBit) {
  RunOptions options = Options();
  options.env.normalize_obs = true;
  options.replay.prioritized = true;
  options.checkpoint.replay = true;
  ThreadPool threads(2);
  const auto first = Make(options, threads), second = Make(options, threads);
  Feeds feeds;
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(first->Update(feeds.Next(), 0.1).ok());
  ASSERT_TRUE(Load(*first, *second).ok());
  for (int i = 0; i < 5; ++i) {
    const std::vector<SegmentView> segments = feeds.Next();
    ASSERT_TRUE(first->Update(segments, 0.2).ok());
    const auto report = second->Update(segments, 0.2);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_GT(report->minibatches, 0);
  }
  EXPECT_EQ(StateOf(*second), StateOf(*first));
}

TEST(SacLearner, ACheckpointWithoutTheReplayBeginsItsCountsAnew) {
  RunOptions options = Options();
  ThreadPool threads(2);
  const auto first = Make(options, threads), second = Make(options, threads);
  Feeds feeds;
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(first->Update(feeds.Next(), 0.1).ok());
  ASSERT_TRUE(Load(*first, *second).ok());
  EXPECT_EQ(second->updates(), 10u);
  EXPECT_EQ(second->optimizer_steps(), first->optimizer_steps());
  EXPECT_EQ(second->limiter().inserted(), 0u) << "nothing is in the replay, so nothing is owed";
  EXPECT_EQ(second->Update(feeds.Next(), 0.2)->minibatches, 0);
  EXPECT_EQ(StateOf(*second).at("weights/critic0/0/weight"), StateOf(*first).at("weights/critic0/0/weight"));
}

TEST(SacLearner, StateThatDoesNotHoldTogetherIsRefusedWhenItIsLoaded) {
  RunOptions options = Options();
  options.checkpoint.replay = true;
  ThreadPool threads(1);
  const auto first = Make(options, threads);
  Feeds feeds;
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(first->Update(feeds.Next(), 0.1).ok());
  for (const char* name : {"replay/lanes", "replay/counters", "sac/counters", "sac/largest"}) {
    const auto second = Make(options, threads);
    const Status status = Load(*first, *second, [name](StateTensor& t) {
      if (t.name != name) return;
      if (t.i64 != nullptr) t.i64[0] = -5;
      if (t.f64 != nullptr) t.f64[0] = NAN;
    });
    EXPECT_FALSE(status.ok()) << name;
    EXPECT_THAT(status.message(), HasSubstr(name == std::string("replay/counters") ? "capacity" : name));
  }
}

TEST(SacLearner, LearningRatesMayChangeAndNothingElse) {
  RunOptions options = Options();
  ThreadPool threads(1);
  const auto learner = Make(options, threads);
  options.sac.actor_learning_rate = options.sac.critic_learning_rate = 0;
  EXPECT_TRUE(learner->Apply(options).ok());
  const auto before = StateOf(*learner);
  EXPECT_TRUE(UpdateUntilAnError(*learner, 10).ok());
  EXPECT_GT(learner->optimizer_steps(), 0u);
  EXPECT_EQ(StateOf(*learner).at("weights/policy/0/weight"), before.at("weights/policy/0/weight"));
  EXPECT_EQ(StateOf(*learner).at("weights/critic0/0/weight"), before.at("weights/critic0/0/weight"));
  options.sac.gamma = 0.5;
  EXPECT_THAT(learner->Apply(options).message(), HasSubstr("only sac.actor_learning_rate"));
}

}  // namespace
}  // namespace millrace
