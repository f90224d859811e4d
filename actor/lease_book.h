// LeaseBook: which row groups an actor holds, which it may step, and by which weights. Worker threads take
// their tasks here. Station: between trajectory_writer's credits and env_pool. Owner: actor_crew.
//
// Threads: Take, Release and Standing from workers; the rest from the thread that receives. One lock guards
// all; a group's rows belong to the worker that has taken it.
//
// After a lost connection nothing is certain until the learner has said again what is leased: a lease with
// its number unchanged goes on where the group stands here, any other begins from the learner's state.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "actor/leased_rows.h"
#include "common/messages.h"
#include "common/mutex.h"

namespace millrace {

class LeaseBook {
 public:
  // What a worker is to do: one segment of one group.
  struct Task {
    uint32_t group = 0, first_row = 0, rows = 0;
    uint64_t lease = 0;
    int32_t slot = -1;
    std::byte* memory = nullptr;  // of the slot; null: the actor's own
    bool exact = false;           // the whole segment by `version`
    uint64_t version = 0;
    bool begin = false;  // the rows have to begin from these first
    std::string state;
    uint64_t next_step = 0;
    std::unique_ptr<LeasedRows>* held = nullptr;  // the group's rows; null inside before their first segment
    double wait_weights_seconds = 0, wait_credit_seconds = 0;  // before there was a task
  };

  // Waits for a task; false after Drain or Stop. Tasks come in the order of the grants, as far as their
  // weights are there.
  bool Take(Task* task);
  // The worker is done with the group.
  void Release(const Task& task);

  enum class Holding : uint8_t { kYes, kUnknown, kNo };
  // Whether the group is held by this lease; unknown while the learner has not confirmed it.
  Holding Standing(uint32_t group, uint64_t lease) const;

  void OnLease(const Lease& lease);
  // `memory`: of the slots of grant.groups, in order; null where there is no slot.
  void OnGrant(const Grant& grant, const std::vector<std::byte*>& memory);
  // This version is the newest now.
  void OnWeights(uint64_t version);
  // The connection is gone, and all grants with it.
  void OnDisconnect();

  // Take returns false from now on; what was taken goes on.
  void Drain();
  // Groups that workers have taken and not released.
  int busy() const;

 private:
  struct Group {
    uint32_t first_row = 0, rows = 0;
    uint64_t lease = 0;  // 0: not held any more
    bool confirmed = true, busy = false;
    bool begin = false;
    std::string state;
    uint64_t next_step = 0;
    bool acted = false;  // a segment of this lease was begun by exactly this version
    uint64_t acted_version = 0;
    std::unique_ptr<LeasedRows> held;
  };
  struct Permit {
    uint32_t group = 0;
    uint64_t lease = 0;
    int32_t slot = -1;
    std::byte* memory = nullptr;
    bool exact = false;
    uint64_t version = 0;
  };
  enum class Fit : uint8_t { kNow, kNoWeights, kBusy, kVoid };

  Fit Look(const Permit& permit) const MILL_REQUIRES(mutex_);
  bool Find(Task* task, bool* only_weights_missing) MILL_REQUIRES(mutex_);
  void Fill(const Permit& permit, Task* task) MILL_REQUIRES(mutex_);

  mutable Mutex mutex_;
  CondVar changed_;
  std::map<uint32_t, Group> groups_ MILL_GUARDED_BY(mutex_);
  std::deque<Permit> permits_ MILL_GUARDED_BY(mutex_);
  bool have_weights_ MILL_GUARDED_BY(mutex_) = false, draining_ MILL_GUARDED_BY(mutex_) = false;
  uint64_t newest_ MILL_GUARDED_BY(mutex_) = 0;
  int busy_ MILL_GUARDED_BY(mutex_) = 0;
};

}  // namespace millrace
