#include "kernels/core/thread_pool.h"

#include <numeric>
#include <vector>

#include "gtest/gtest.h"

namespace millrace {
namespace {

class ThreadPoolTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 5, 16));

TEST_P(ThreadPoolTest, RunsEveryTaskExactlyOnce) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.threads(), GetParam());
  for (int tasks : {0, 1, 2, 3, 4, 5, 6, 64, 1000}) {
    std::vector<std::atomic<int>> runs(static_cast<size_t>(tasks));
    std::atomic<bool> strange{false};
    pool.ParallelFor(tasks, [&](int task, int worker) {
      if (task < 0 || task >= tasks || worker < 0 || worker >= pool.threads()) {
        strange = true;
        return;
      }
      runs[static_cast<size_t>(task)]++;
    });
    EXPECT_FALSE(strange);
    for (int t = 0; t < tasks; ++t)
      EXPECT_EQ(runs[static_cast<size_t>(t)], 1) << "task " << t << " of " << tasks;
  }
}

// Plain memory, so that ThreadSanitizer sees a missing edge between fork, tasks and join. Jobs of changing
// size follow each other at once: a worker late from one job must not disturb the next.
TEST_P(ThreadPoolTest, ManyJobsPassTheirResultsOn) {
  ThreadPool pool(GetParam());
  std::vector<int64_t> a(37, 0), b(37, 0);
  for (int job = 0; job < 3000; ++job) {
    const int tasks = 1 + job % 37;
    pool.ParallelFor(tasks,
                     [&](int task, int) { b[static_cast<size_t>(task)] = a[static_cast<size_t>(task)] + 1; });
    for (int t = 0; t < tasks; ++t) EXPECT_EQ(b[static_cast<size_t>(t)], a[static_cast<size_t>(t)] + 1);
    a.swap(b);
  }
}

// No two tasks run as the same worker at the same time, so a worker's own memory needs no lock.
TEST_P(ThreadPoolTest, AWorkerRunsOneTaskAtATime) {
  ThreadPool pool(GetParam());
  std::vector<int> sums(static_cast<size_t>(pool.threads()), 0);
  for (int job = 0; job < 200; ++job) {
    pool.ParallelFor(50, [&](int, int worker) { sums[static_cast<size_t>(worker)]++; });
  }
  EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), 0), 200 * 50);
}

TEST(ThreadPool, OneThreadRunsInOrderOnTheCaller) {
  ThreadPool pool(1);
  std::vector<int> order;
  pool.ParallelFor(5, [&](int task, int worker) {
    EXPECT_EQ(worker, 0);
    order.push_back(task);
  });
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
}

// Two tasks that wait for each other end only if two workers run them, and the caller takes the first block.
TEST(ThreadPool, BlocksGoToTheirOwnWorkers) {
  ThreadPool pool(2);
  for (int job = 0; job < 20; ++job) {
    std::atomic<int> arrived{0};
    int worker_of[2] = {-1, -1};
    pool.ParallelFor(2, [&](int task, int worker) {
      worker_of[task] = worker;
      arrived.fetch_add(1);
      arrived.notify_all();
      for (int n; (n = arrived.load()) < 2;) arrived.wait(n);
    });
    EXPECT_NE(worker_of[0], worker_of[1]);
  }
}

TEST(ThreadPool, StealsFromABlockedWorker) {
  ThreadPool pool(2);
  std::atomic<int> done{0};
  // Task 0 blocks its worker until all others have run, those of its own block too.
  pool.ParallelFor(10, [&](int task, int) {
    if (task == 0) {
      for (int n; (n = done.load()) < 9;) done.wait(n);
    } else {
      done.fetch_add(1);
      done.notify_all();
    }
  });
  EXPECT_EQ(done, 9);
}

TEST(ThreadPool, DestructionWhileIdleOrUnused) {
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool(3);
    if (i % 2 == 0) pool.ParallelFor(i, [](int, int) {});
  }
}

TEST(ThreadPoolDeathTest, NestedCallsAreABug) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        ThreadPool pool(2);
        pool.ParallelFor(1, [&](int, int) { pool.ParallelFor(1, [](int, int) {}); });
      },
      "invariant broken");
}

}  // namespace
}  // namespace millrace
