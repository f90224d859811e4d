// ThreadPool: fork-join over numbered tasks, for work of microseconds and up. Nothing is allocated and no
// lock is taken after construction. Station: under env_pool, policy_runner and train_step.
//
// Owner: one thread constructs it, calls ParallelFor (one at a time, never from inside a task) and destroys
// it; it is worker 0 of its own calls. What a task writes is visible to the caller when ParallelFor returns.
//
// Affinity: worker w begins with the w-th of `threads` equal contiguous blocks of the tasks, so calls with
// the same number of tasks meet the same data in the same core's caches. A worker whose block is done takes
// single tasks from the far end of the others'. A worker that sleeps or lost its core holds nobody up: the
// others take its tasks. So which worker runs a task is not fixed, and results must not depend on it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace millrace {

class ThreadPool {
 public:
  // threads >= 1, the caller counted. More threads than CPUs is allowed; then nobody spins.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // f(task, worker) once for each task in [0, tasks), worker in [0, threads()); returns when all are done.
  template <class F>
  void ParallelFor(int tasks, F&& f) {
    using Body = std::remove_reference_t<F>;
    Run(
        tasks, [](void* body, int task, int worker) { (*static_cast<Body*>(body))(task, worker); },
        const_cast<void*>(static_cast<const void*>(&f)));
  }

 private:
  using Trampoline = void (*)(void* body, int task, int worker);

  // The tasks of a block that nobody has taken yet: [begin, end), begin in the low half of the word. The
  // owner takes from the front, others from the back. The word is the whole truth: a successful exchange is a
  // valid claim of the present job, however old the claimer's idea of it, for the job can't end before the
  // claimed task has.
  struct alignas(64) Block {
    std::atomic<uint64_t> left{0};
  };

  void Run(int tasks, Trampoline trampoline, void* body);
  void WorkerMain(int worker);
  void RunTasks(int worker);
  void RunTask(int task, int worker);
  static int TakeFront(Block& block);
  static int TakeBack(Block& block);

  const int threads_;
  const bool may_spin_;
  std::unique_ptr<Block[]> blocks_;
  std::vector<std::thread> workers_;

  // Written by the caller before the blocks are published, read after a claim.
  Trampoline trampoline_ = nullptr;
  void* body_ = nullptr;

  alignas(64) std::atomic<uint32_t> epoch_{0};       // a change wakes the workers
  alignas(64) std::atomic<uint32_t> unfinished_{0};  // tasks of the present job
  std::atomic<bool> stop_{false};
  std::atomic<bool> busy_{false};
};

}  // namespace millrace
