// In the steady state a rollout and an update allocate nothing: malloc is replaced by one that counts. And a
// learner takes the memory that it says it takes.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <regex>

#include "actor/env_pool.h"
#include "cli/presets.h"
#include "cli/trainer.h"
#include "common/row_groups.h"
#include "learner/ppo.h"
#include "learner/sac.h"
#include "learner/testing/replay_feed.h"
#include "learner/weight_publisher.h"

extern "C" void* __libc_malloc(size_t bytes);
extern "C" void* __libc_calloc(size_t count, size_t bytes);
extern "C" void* __libc_realloc(void* p, size_t bytes);
extern "C" void* __libc_memalign(size_t alignment, size_t bytes);

namespace {
std::atomic<long> allocations{0};
}  // namespace

// Exact glibc signatures; free stays as it is.
extern "C" void* malloc(size_t bytes) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(bytes);
}
extern "C" void* calloc(size_t count, size_t bytes) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(count, bytes);
}
extern "C" void* realloc(void* p, size_t bytes) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(p, bytes);
}
extern "C" void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_memalign(alignment, bytes);
}

namespace millrace {
namespace {

TEST(Allocation, TheCounterSeesNewAndMalloc) {
  const long before = allocations.load();
  std::vector<int>* volatile v = new std::vector<int>(100);
  delete v;
  EXPECT_GE(allocations.load() - before, 2);
}

// Segments of any groups with V-trace, statistics of both kinds, and the weights packed for actors each time.
TEST(Allocation, AnUpdateInAsyncModeAllocatesNothing) {
  const std::vector<std::string> overrides = {"run.threads=2", "mode=async", "env.normalize_obs=true",
                                              "env.scale_reward=true"};
  auto options = LoadPresetOrFile("cartpole", overrides);
  ASSERT_TRUE(options.ok()) << options.status();
  ThreadPool threads(2);
  auto pool = EnvPool::Make(options->env, 1, static_cast<int>(options->ppo.horizon), threads);
  ASSERT_TRUE(pool.ok()) << pool.status();
  const std::vector<int> rows = GroupRows((*pool)->rows(), static_cast<int>(options->env.group_rows));
  auto learner = PpoLearner::Make(*options, (*pool)->spec(), rows, threads);
  ASSERT_TRUE(learner.ok()) << learner.status();
  std::vector<uint32_t> groups(
      rows.size());  // one group has all of them, then each its own: the second actor's
  WeightPublisher publisher;
  const auto iterate = [&] {
    const WeightsPtr weights = publisher.Pack((*learner)->policy());
    (*pool)->Collect((*learner)->policy(), 0);
    return weights->version == (*learner)->updates() &&
           (*learner)->Update((*pool)->segments(), 0.0, groups).ok();
  };
  ASSERT_TRUE(iterate());
  for (size_t i = 0; i < groups.size(); ++i) groups[i] = static_cast<uint32_t>(groups.size() + i);
  ASSERT_TRUE(iterate());
  const long before = allocations.load();
  for (int i = 0; i < 3; ++i) {
    if (!iterate()) FAIL();
  }
  EXPECT_EQ(allocations.load() - before, 0);
}

// Prioritised, with normalised observations, layer norm and checkpoints; several gradient steps an update, so
// that batches are gathered beside them.
TEST(Allocation, GradientStepsOfSacAllocateNothing) {
  RunOptions options;
  options.algorithm = "sac";
  options.env.rows = 4;
  options.env.normalize_obs = true;
  options.sac.batch_size = 100;
  options.sac.horizon = 2;
  options.sac.layer_norm = true;
  options.sac.activation_checkpoint = 1;
  options.sac.critics = 3;
  options.replay.capacity = 1000;
  options.replay.min_size = 100;
  options.replay.prioritized = true;
  ThreadPool threads(2);
  auto learner = SacLearner::Make(options, replay_testing::FeedSpec(), {4}, threads);
  ASSERT_TRUE(learner.ok()) << learner.status();
  replay_testing::Feed feed(replay_testing::FeedSpec(), 2, 4, {0.05, 0.05, 0.0}, 3, 0.5f);
  std::vector<SegmentView> segments(1);
  const auto iterate = [&] {
    segments[0] = feed.Next();
    const long before = allocations.load();
    const bool ok = (*learner)->Update(segments, 0.0).ok();
    return ok ? allocations.load() - before : -1;
  };
  while ((*learner)->optimizer_steps() < 20) ASSERT_GE(iterate(), 0);
  const uint64_t steps = (*learner)->optimizer_steps();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(iterate(), 0);
  EXPECT_GE((*learner)->optimizer_steps(), steps + 32);
}

uint64_t BytesInUse() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// make(available): the figure that is refused when nothing is available is what it takes when it just
// suffices.
template <class Make>
void ExpectTakesWhatItSays(const Make& make) {
  const std::string refused(make(0).status().message());
  std::smatch figures;
  ASSERT_TRUE(std::regex_search(refused, figures, std::regex("take ([0-9]+) bytes and 0 are"))) << refused;
  const uint64_t bytes = std::stoull(figures[1]);
  EXPECT_EQ(make(bytes - 1).status().code(), absl::StatusCode::kResourceExhausted);
  const uint64_t before = BytesInUse();
  const auto made = make(bytes);
  const uint64_t taken = BytesInUse() - before;
  EXPECT_TRUE(made.ok()) << made.status();
  EXPECT_GE(taken, bytes);
  EXPECT_LT(taken, bytes + bytes / 100) << "something large is not counted";
}

TEST(Allocation, ALearnerTakesWhatItSays) {
  ThreadPool threads(3);
  RunOptions options;
  options.policy.hidden = {1024, 40};
  for (const uint32_t checkpoint : {0u, 1u}) {
    options.sac.activation_checkpoint = checkpoint;
    ExpectTakesWhatItSays([&](uint64_t available) {
      return SacStep::Make(options, replay_testing::FeedSpec(), 3, 500, threads, available);
    });
  }
  const std::vector<int> rows(20, 100);
  ExpectTakesWhatItSays([&](uint64_t available) {
    return PpoLearner::Make(options, replay_testing::FeedSpec(), rows, threads, available);
  });
}

class SteadyState : public testing::TestWithParam<const char*> {};

TEST_P(SteadyState, AllocatesNothing) {
  const std::vector<std::string> overrides = {"run.threads=2"};
  const auto options = LoadPresetOrFile(GetParam(), overrides);
  ASSERT_TRUE(options.ok()) << options.status();
  auto trainer = Trainer::Make(*options);
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  for (int i = 0; i < 2; ++i) ASSERT_TRUE((*trainer)->Iterate().ok());
  const long before = allocations.load();
  for (int i = 0; i < 5; ++i) {
    if (!(*trainer)->Iterate().ok()) FAIL();
  }
  EXPECT_EQ(allocations.load() - before, 0);
}

INSTANTIATE_TEST_SUITE_P(Presets, SteadyState,
                         testing::Values("cartpole", "pendulum", "mountaincar", "mountaincar-continuous",
                                         "breakout"));

}  // namespace
}  // namespace millrace
