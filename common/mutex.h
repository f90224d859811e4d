// A mutex and its condition variable that clang's thread-safety analysis understands (a bare std::mutex is
// invisible to it). Fields behind a Mutex are marked MILL_GUARDED_BY(mutex_).
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define MILL_THREAD_ATTR(x) __attribute__((x))
#else
#define MILL_THREAD_ATTR(x)
#endif
#define MILL_CAPABILITY(x) MILL_THREAD_ATTR(capability(x))
#define MILL_SCOPED_CAPABILITY MILL_THREAD_ATTR(scoped_lockable)
#define MILL_GUARDED_BY(x) MILL_THREAD_ATTR(guarded_by(x))
#define MILL_REQUIRES(...) MILL_THREAD_ATTR(requires_capability(__VA_ARGS__))
#define MILL_ACQUIRE(...) MILL_THREAD_ATTR(acquire_capability(__VA_ARGS__))
#define MILL_RELEASE(...) MILL_THREAD_ATTR(release_capability(__VA_ARGS__))
#define MILL_NO_THREAD_SAFETY_ANALYSIS MILL_THREAD_ATTR(no_thread_safety_analysis)

namespace millrace {

class MILL_CAPABILITY("mutex") Mutex {
 public:
  void Lock() MILL_ACQUIRE() { mutex_.lock(); }
  void Unlock() MILL_RELEASE() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class MILL_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) MILL_ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~MutexLock() MILL_RELEASE() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Waits are called with the mutex held and return with it held; spurious wake-ups happen, so callers loop.
class CondVar {
 public:
  void Wait(Mutex& mutex) MILL_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    cv_.wait(lock);
    lock.release();
  }
  // False when the time ran out first.
  bool WaitFor(Mutex& mutex, std::chrono::nanoseconds timeout) MILL_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const bool in_time = cv_.wait_for(lock, timeout) == std::cv_status::no_timeout;
    lock.release();
    return in_time;
  }
  void NotifyOne() { cv_.notify_one(); }
  void NotifyAll() { cv_.notify_all(); }

 private:
  std::condition_variable cv_;
};

}  // namespace millrace
