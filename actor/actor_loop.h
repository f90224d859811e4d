// ActorLoop: an actor process - finds the learner, works for it, and finds it again after either of them or
// the network has failed. Station: around all of the actor's. Owner: the command `millrace actor`, and tests.
//
// Threads: Run in one; Drain, Stop and stats from any.
//
// What happens to segments that were sent and not acknowledged when a connection is lost: they are sent again
// to the same learner process, in order, for it takes each once. In shared memory they are lost with the
// ring; the actor then comes back as another incarnation and goes on from the states that the learner has.
// The same holds for another learner process, which knows nothing of this actor; and where it does, because
// several learners take turns behind one address, the actor leaves it and comes back as another incarnation.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "actor/actor_crew.h"
#include "actor/actor_session.h"
#include "actor/transport.h"
#include "common/mutex.h"
#include "common/status.h"

namespace millrace {

struct ActorLoopOptions {
  std::string name;          // unique among the learner's actors; empty: host:pid
  std::string learner;       // its address, for messages
  int threads = 0;           // 0: as many as the CPUs that this process may use
  uint64_t incarnation = 0;  // 0: random
  std::string program_version;
  std::chrono::milliseconds connect_timeout{10'000}, drain_timeout{10'000};
  // Between two attempts to connect; doubles from one to the next, less up to a half by chance.
  std::chrono::milliseconds backoff_min{100}, backoff_max{10'000};
  uint64_t backoff_seed = 0;                              // 0: the incarnation
  std::function<void(const std::string&)> log = nullptr;  // lines for people, from Run's thread
};

class ActorLoop {
 public:
  // The connector must outlive the loop.
  ActorLoop(ActorConnector& connector, ActorLoopOptions options);
  ~ActorLoop();

  // Until the run is done or a Drain has ended (Ok), Stop (Cancelled), or an error that no new connection
  // mends: the learner's refusal, an environment that can't be made, no memory.
  Status Run();

  // Finishes what is underway, hands it over and leaves.
  void Drain();
  // Leaves at once.
  void Stop();

  ActorStats stats() const;  // totals over all connections

 private:
  Status Connected();
  Status RunOnce(std::unique_ptr<ActorTransport> transport, const std::string& note, bool* useful);
  bool KnowsUs(const Welcome& welcome) const;
  void BecomeNew() MILL_REQUIRES(mutex_);
  Status Prepare(const Welcome& welcome, TransportKind kind);
  void DropCrew() MILL_REQUIRES(mutex_);
  Hello MakeHello(const std::string& note) const;
  std::string Intent() const;
  bool Backoff(int attempt);
  void Log(const std::string& line) const;

  ActorConnector& connector_;
  ActorLoopOptions options_;
  ActorRequests requests_;

  // Of Run's thread.
  uint64_t learner_incarnation_ = 0;
  std::set<uint64_t> met_;  // learners that have seen sequences of this incarnation
  std::string learner_config_;
  bool shares_memory_ = false;  // the crew's segments lie in a connection's ring

  // Guards the pointers, for stats; only Run's thread changes them.
  mutable Mutex mutex_;
  CondVar wake_;
  std::unique_ptr<ActorCrew> crew_ MILL_GUARDED_BY(mutex_);
  ActorStats former_ MILL_GUARDED_BY(mutex_);  // of crews that are gone
};

}  // namespace millrace
