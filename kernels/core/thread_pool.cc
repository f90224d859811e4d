#include "kernels/core/thread_pool.h"

#include <sched.h>

#include <chrono>

#include "common/status.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace millrace {
namespace {

// Longer than the gaps between the phases of an update, for a CPU that has gone to sleep (a virtual one above
// all) takes tens of microseconds to come back: small networks trained 20 to 30 % faster with 300 than with
// 100. Shorter than anybody would notice in the CPU's accounts.
constexpr auto kSpin = std::chrono::microseconds(300);

uint64_t Word(uint32_t begin, uint32_t end) {
  return (static_cast<uint64_t>(end) << 32) | begin;
}
uint32_t Begin(uint64_t word) {
  return static_cast<uint32_t>(word);
}
uint32_t End(uint64_t word) {
  return static_cast<uint32_t>(word >> 32);
}

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

int Cpus() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

// Waits until value != old: spinning for a while if allowed, then asleep.
void AwaitChange(const std::atomic<uint32_t>& value, uint32_t old, bool may_spin) {
  if (may_spin) {
    const auto until = std::chrono::steady_clock::now() + kSpin;
    do {
      for (int i = 0; i < 8; ++i) {
        if (value.load(std::memory_order_acquire) != old) return;
        Pause();
      }
    } while (std::chrono::steady_clock::now() < until);
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int threads)
    : threads_(threads),
      may_spin_(threads <= Cpus()),
      blocks_(std::make_unique<Block[]>(static_cast<size_t>(threads))) {
  MILL_CHECK(threads >= 1);
  workers_.reserve(static_cast<size_t>(threads) - 1);
  for (int worker = 1; worker < threads; ++worker)
    workers_.emplace_back([this, worker] { WorkerMain(worker); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_release);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(int tasks, Trampoline trampoline, void* body) {
  if (tasks <= 0) return;
  MILL_CHECK(!busy_.exchange(true, std::memory_order_acquire));
  if (tasks == 1 || threads_ == 1) {
    for (int task = 0; task < tasks; ++task) trampoline(body, task, 0);
    busy_.store(false, std::memory_order_release);
    return;
  }
  trampoline_ = trampoline;
  body_ = body;
  unfinished_.store(static_cast<uint32_t>(tasks), std::memory_order_relaxed);
  const auto boundary = [&](int worker) {
    return static_cast<uint32_t>(static_cast<int64_t>(tasks) * worker / threads_);
  };
  for (int w = 0; w < threads_; ++w) {
    blocks_[static_cast<size_t>(w)].left.store(Word(boundary(w), boundary(w + 1)), std::memory_order_release);
  }
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  RunTasks(0);
  for (uint32_t left; (left = unfinished_.load(std::memory_order_acquire)) != 0;) {
    AwaitChange(unfinished_, left, may_spin_);
  }
  busy_.store(false, std::memory_order_release);
}

void ThreadPool::WorkerMain(int worker) {
  uint32_t seen = 0;
  while (true) {
    AwaitChange(epoch_, seen, may_spin_);
    seen = epoch_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_acquire)) return;
    RunTasks(worker);
  }
}

void ThreadPool::RunTasks(int worker) {
  for (int task; (task = TakeFront(blocks_[static_cast<size_t>(worker)])) >= 0;) RunTask(task, worker);
  for (int i = 1; i < threads_; ++i) {
    Block& other = blocks_[static_cast<size_t>((worker + i) % threads_)];
    for (int task; (task = TakeBack(other)) >= 0;) RunTask(task, worker);
  }
}

void ThreadPool::RunTask(int task, int worker) {
  trampoline_(body_, task, worker);
  if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_one();
}

int ThreadPool::TakeFront(Block& block) {
  uint64_t word = block.left.load(std::memory_order_acquire);
  while (Begin(word) < End(word)) {
    if (block.left.compare_exchange_weak(word, Word(Begin(word) + 1, End(word)), std::memory_order_acq_rel,
                                         std::memory_order_acquire)) {
      return static_cast<int>(Begin(word));
    }
  }
  return -1;
}

int ThreadPool::TakeBack(Block& block) {
  uint64_t word = block.left.load(std::memory_order_acquire);
  while (Begin(word) < End(word)) {
    if (block.left.compare_exchange_weak(word, Word(Begin(word), End(word) - 1), std::memory_order_acq_rel,
                                         std::memory_order_acquire)) {
      return static_cast<int>(End(word) - 1);
    }
  }
  return -1;
}

}  // namespace millrace
