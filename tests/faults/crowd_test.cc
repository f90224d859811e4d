// Many actors on one learner, and weights of a size that few runs have. Prints what it measures.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "actor/transport_grpc.h"
#include "common/rpc/channel_grpc.h"
#include "common/text.h"
#include "tests/faults/light_actor.h"
#include "tests/faults/run_under_test.h"

namespace millrace {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using Clock = std::chrono::steady_clock;

constexpr size_t kThreads = 4;

// N light actors, a quarter of them a thread, each with a connection of its own.
class Crowd {
 public:
  Crowd(const std::string& address, size_t actors) {
    for (size_t i = 0; i < kThreads; ++i) {
      threads_.emplace_back([this, address, actors, i] { Run(address, actors, i); });
    }
  }
  ~Crowd() { Leave(); }
  void Leave() {
    stop_ = true;
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }
  // Why the first that failed did; empty: none.
  std::string failure() const {
    MutexLock lock(mutex_);
    return failure_;
  }

 private:
  void Run(const std::string& address, size_t actors, size_t first) {
    std::vector<std::unique_ptr<LightActor>> mine;
    for (size_t i = first; i < actors && !stop_; i += kThreads) {
      auto actor = LightActor::Make(Cat("light-", i), MakeGrpcTransport(MakeChannel(address), address));
      if (!actor.ok()) return Fail(actor.status());
      mine.push_back(*std::move(actor));
      for (const auto& one : mine) {  // those that are there are kept alive while the others come
        if (const Status done = one->Step(0ms); !done.ok()) return Fail(done);
      }
    }
    while (!stop_) {
      for (const auto& one : mine) {
        if (const Status done = one->Step(1ms); !done.ok()) return Fail(done);
      }
    }
  }
  void Fail(const Status& why) {
    MutexLock lock(mutex_);
    if (failure_.empty()) failure_ = why.ToString();
    stop_ = true;
  }

  std::atomic<bool> stop_{false};
  mutable Mutex mutex_;
  std::string failure_ MILL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

// Segments that each actor had taken in since an earlier status; those that joined before were served while
// others still connected.
struct Shares {
  double mean = 0;
  uint64_t least = 0, most = 0;
};
Shares SharesOf(const RunStatus& status, const RunStatus& since = {}) {
  std::map<std::string, uint64_t> before;
  for (const ActorStatus& actor : since.actors) before[actor.name] = actor.segments;
  Shares shares{0, std::numeric_limits<uint64_t>::max(), 0};
  for (const ActorStatus& actor : status.actors) {
    const uint64_t segments = actor.segments - before[actor.name];
    shares.mean += static_cast<double>(segments) / static_cast<double>(status.actors.size());
    shares.least = std::min(shares.least, segments);
    shares.most = std::max(shares.most, segments);
  }
  return shares;
}

double Mib(size_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

TEST(Crowd, ManyActorsHaveFairSharesAndTheLearnersMemoryStaysFlat) {
  const size_t actors = LongForm() ? 1000 : 200;
  Settings settings = SmallLedger();
  settings.insert(settings.end(),
                  {"mode=async", "metrics.segments=false", "metrics.every=100", "checkpoint.every=0",
                   "env.rows=4", "ppo.horizon=4", "ppo.minibatch_size=16", "ppo.epochs=1",
                   "policy.hidden=[8]", "learner.max_policy_lag=64", "actors.lease_seconds=30"});
  Learner learner(FreshDir("crowd"), settings);
  Crowd crowd(learner.address(), actors);
  const auto reached = [&](double mean, const RunStatus& since = {}) {
    return learner.WaitFor(
        [&](const RunStatus& s) {
          return !crowd.failure().empty() || (s.actors.size() == actors && SharesOf(s, since).mean >= mean);
        },
        LongForm() ? 600s : 60s);
  };
  ASSERT_TRUE(reached(8)) << crowd.failure() << learner.process().output();
  const RunStatus before = learner.Status();
  std::vector<double> answers;  // milliseconds
  for (int i = 0; i < 20; ++i) {
    const auto began = Clock::now();
    EXPECT_EQ(learner.Status().actors.size(), actors);
    answers.push_back(std::chrono::duration<double, std::milli>(Clock::now() - began).count());
  }
  std::sort(answers.begin(), answers.end());
  EXPECT_LT(answers.back(), 5000);
  ASSERT_TRUE(reached(32, before)) << crowd.failure();
  const size_t warm = learner.process().resident_bytes();
  ASSERT_TRUE(reached(128, before)) << crowd.failure();
  const size_t end = learner.process().resident_bytes();
  const RunStatus after = learner.Status();
  const Shares shares = SharesOf(after, before);
  std::printf(
      "%zu actors: %.0f segments each (%lu to %lu); status in %.1f ms (median of 20, at most %.1f); "
      "learner %.1f MiB warm, %+.2f MiB after %lu more updates\n",
      actors, shares.mean, shares.least, shares.most, answers[10], answers.back(), Mib(warm),
      Mib(end) - Mib(warm), after.updates - before.updates);
  EXPECT_EQ(crowd.failure(), "");
  EXPECT_GE(2 * static_cast<double>(shares.least), shares.mean);
  EXPECT_LE(static_cast<double>(shares.most), 2 * shares.mean);
#if !defined(__SANITIZE_ADDRESS__)  // whose quarantine grows
  EXPECT_LE(Mib(end) - Mib(warm), 4.0);
#endif
  crowd.Leave();
  learner.Stop();
}

// States of 68 MiB in all over shared memory, in the long form of 280 MiB over gRPC: more than may wait for
// an actor otherwise. Another actor gets them all at once, and goes on where the first was killed.
TEST(LargeStates, GoToTheNextActorWhole) {
  const int rows = LongForm() ? 70 : 17;
  const Settings settings = {"env.id=Null",
                             "env.params.obs=1048576",
                             "env.params.actions=2",
                             Cat("env.rows=", rows),
                             "env.group_rows=1",
                             "policy.hidden=[1]",
                             "ppo.horizon=1",
                             Cat("ppo.minibatch_size=", rows),
                             "ppo.epochs=1",
                             "ppo.lr_schedule=constant",
                             "run.stop_window=0",
                             "run.steps=1000000",
                             "eval.every=0",
                             "checkpoint.every=0",
                             "metrics.tensorboard=false",
                             "learner.queue_mib=4096",
                             "actors.lease_seconds=60"};
  const auto deadline = LongForm() ? 600s : 60s;
  Learner learner(FreshDir("large-states"), settings);
  const std::string transport = LongForm() ? "grpc" : "shm";
  auto actor = StartActor(learner.address(deadline), "a", transport);
  learner.WaitForUpdates(2, deadline);
  actor->Signal(SIGKILL);
  actor->WaitForEnd();
  actor = StartActor(learner.address(), "b", transport);
  learner.WaitForUpdates(2, deadline);
  EXPECT_EQ(learner.Counter("connections_lost"), 1u) << actor->output();
  learner.Stop();
  ExpectBitsOfTrain(learner.run_dir(), settings, static_cast<uint64_t>(rows), deadline);
}

// Weights of 64 MiB, in the long form of 1 GiB, to an actor and back to bits.
TEST(LargeWeights, ReachTheActorWhole) {
  const Settings settings = {"env.id=Null",
                             Cat("env.params.obs=", LongForm() ? 1 << 20 : 1 << 16),
                             "env.params.actions=2",
                             "env.rows=2",
                             "env.group_rows=1",
                             "policy.hidden=[128]",
                             "ppo.horizon=2",
                             "ppo.minibatch_size=4",
                             "ppo.epochs=1",
                             "ppo.lr_schedule=constant",
                             "run.stop_window=0",
                             "run.steps=8",
                             "eval.every=0",
                             "checkpoint.every=0",
                             "checkpoint.keep=1",
                             "metrics.tensorboard=false",
                             "learner.queue_mib=1024",
                             "actors.lease_seconds=600"};
  const auto deadline = LongForm() ? 900s : 60s;
  Learner learner(FreshDir("large"), settings);
  const auto actor = StartActor(learner.address(deadline), "a");
  const auto began = Clock::now();
  uint64_t bytes = 0;
  EXPECT_TRUE(learner.WaitFor(
      [&](const RunStatus& s) {
        bytes = s.weights_bytes;
        return s.updates >= 1;
      },
      deadline))
      << learner.process().output() << actor->output();
  std::printf("weights of %.0f MiB: connected, acted by and trained on after %.2f s\n", Mib(bytes),
              std::chrono::duration<double>(Clock::now() - began).count());
  EXPECT_GE(bytes, LongForm() ? size_t{1} << 30 : size_t{64} << 20);
  EXPECT_EQ(learner.process().WaitForEnd(deadline), 0) << learner.process().output();
  EXPECT_EQ(actor->WaitForEnd(deadline), 0) << actor->output();
  ExpectBitsOfTrain(learner.run_dir(), settings, 4, deadline);
}

}  // namespace
}  // namespace millrace
