#include "cli/stop_signal.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <csignal>

#include <atomic>

#include "common/mutex.h"

namespace millrace {
namespace {

using std::chrono_literals::operator""ms;

// Waits for a number of calls; the thread of the watcher makes them.
class Calls {
 public:
  void Add() {
    const MutexLock lock(mutex_);
    ++count_;
    changed_.NotifyAll();
  }
  bool Reach(int count) {
    const MutexLock lock(mutex_);
    for (int i = 0; i < 100 && count_ < count; ++i) changed_.WaitFor(mutex_, 200ms);
    return count_ >= count;
  }
  int count() {
    const MutexLock lock(mutex_);
    return count_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int count_ = 0;
};

TEST(StopWatcher, TicksUntilItIsDestroyed) {
  Calls ticks, stops;
  {
    const StopWatcher watcher([&] { stops.Add(); }, 1ms, [&] { ticks.Add(); });
    EXPECT_TRUE(ticks.Reach(3));
  }
  EXPECT_EQ(stops.count(), 0);
}

// In a process of its own, for a request to stop stays.
TEST(StopWatcherDeathTest, ASignalIsToldOnceToEachWatcherEvenToLaterOnes) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto body = [] {
    InstallStopSignals("going");
    Calls ticks, stops, later;
    const StopWatcher watcher([&] { stops.Add(); }, 10'000ms, [&] { ticks.Add(); });
    raise(SIGTERM);
    const bool first = stops.Reach(1);
    const StopWatcher second([&] { later.Add(); }, 1ms, [&] { ticks.Add(); });
    const bool both = later.Reach(1) && ticks.Reach(5);
    _exit(first && both && stops.count() == 1 && later.count() == 1 && StopRequested() ? 7 : 1);
  };
  EXPECT_EXIT(body(), testing::ExitedWithCode(7), "going");
}

}  // namespace
}  // namespace millrace
