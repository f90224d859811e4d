// LiveCalls: the streams that a gRPC service is serving, so that shutting down can end them and wait until no
// callback of theirs is left. Station: beside every *_service_grpc. Any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <unordered_map>
#include <vector>

#include "common/mutex.h"

namespace millrace {

template <typename Call>
class LiveCalls {
 public:
  // Keeps the call until Remove. False while shutting down: it is to end at once.
  bool Add(const std::shared_ptr<Call>& call) {
    MutexLock lock(mutex_);
    calls_.emplace(call.get(), call);
    return !closed_;
  }
  // The last that a call does; it may be gone when this returns.
  void Remove(Call* call) {
    std::shared_ptr<Call> last;  // goes after the lock
    MutexLock lock(mutex_);
    const auto found = calls_.find(call);
    if (found == calls_.end()) return;
    last = std::move(found->second);
    calls_.erase(found);
    if (calls_.empty()) none_.NotifyAll();
  }
  std::vector<std::shared_ptr<Call>> All() const {
    MutexLock lock(mutex_);
    std::vector<std::shared_ptr<Call>> all;
    all.reserve(calls_.size());
    for (const auto& call : calls_) all.push_back(call.second);
    return all;
  }
  size_t size() const {
    MutexLock lock(mutex_);
    return calls_.size();
  }
  // From now on Add says false; those that are there.
  std::vector<std::shared_ptr<Call>> Close() {
    {
      MutexLock lock(mutex_);
      closed_ = true;
    }
    return All();
  }
  bool WaitForNone(std::chrono::steady_clock::time_point deadline) {
    MutexLock lock(mutex_);
    while (!calls_.empty()) {
      const auto left = deadline - std::chrono::steady_clock::now();
      if (left <= left.zero()) return false;
      none_.WaitFor(mutex_, left);
    }
    return true;
  }

 private:
  mutable Mutex mutex_;
  CondVar none_;
  std::unordered_map<Call*, std::shared_ptr<Call>> calls_ MILL_GUARDED_BY(mutex_);
  bool closed_ MILL_GUARDED_BY(mutex_) = false;
};

}  // namespace millrace
