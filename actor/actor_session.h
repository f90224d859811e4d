// ActorSession: one connection of an actor, from its Hello to its end. Station: between the transport and
// actor_crew. Owner: actor_loop, whose thread does everything here.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <string>

#include "actor/actor_crew.h"
#include "actor/transport.h"

namespace millrace {

// What other threads ask of an actor.
struct ActorRequests {
  std::atomic<bool> drain{false};  // hand over what there is, then leave
  std::atomic<bool> stop{false};   // leave at once
};

class ActorSession {
 public:
  ActorSession(ActorTransport& transport, const ActorRequests& requests)
      : transport_(transport), requests_(requests) {}

  // Says hello and waits for the answer. A learner that refuses gives its Bye as a status, see Serve; one
  // whose run is done, Unavailable, and done() is true.
  StatusOr<Welcome> Greet(const Hello& hello, std::chrono::milliseconds timeout);

  // Offers the crew's work and passes on messages until the end. Ok: the run is done, or the actor has left
  // after a drain, having handed over what it had as far as `drain_timeout` allowed. Unavailable, Aborted and
  // DataLoss: come back. Cancelled: stopped. Anything else will not go away by itself.
  Status Serve(ActorCrew& crew, const Welcome& welcome, std::chrono::milliseconds drain_timeout,
               const std::function<ActorStats()>& stats);

  // Says goodbye and waits, not for long, for the learner to have it.
  Status Leave(const std::string& reason);

  bool done() const { return done_; }
  // The learner has granted something: the connection was of use.
  bool useful() const { return useful_; }
  // Why the learner wants this actor to leave; empty where it does not.
  const std::string& drain_reason() const { return drain_reason_; }

 private:
  Status Dispatch(ActorCrew& crew, const LearnerMessage& message);
  Status Lost(const Status& why);

  ActorTransport& transport_;
  const ActorRequests& requests_;
  bool useful_ = false, draining_ = false, ended_ = false, done_ = false;
  std::string drain_reason_;
  uint64_t received_ = 0;  // as Heartbeat has it
};

// A new connection may help.
bool ComesBack(const Status& status);

}  // namespace millrace
