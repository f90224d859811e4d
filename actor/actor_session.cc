#include "actor/actor_session.h"

#include <algorithm>

#include "common/text.h"

namespace millrace {
namespace {
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLook{100};       // between two looks at what other threads ask
constexpr milliseconds kFarewell{2000};  // for the answer to Goodbye

milliseconds Until(Clock::time_point time) {
  return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(time - Clock::now()));
}

Status FromBye(const Bye& bye) {
  if (bye.code == 0) return absl::OkStatus();
  return Status(static_cast<absl::StatusCode>(bye.code), Cat("the learner: ", bye.reason));
}
}  // namespace

bool ComesBack(const Status& status) {
  return absl::IsUnavailable(status) || absl::IsAborted(status) || absl::IsDataLoss(status);
}

StatusOr<Welcome> ActorSession::Greet(const Hello& hello, milliseconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  const Status sent = transport_.Send(hello);
  if (!sent.ok()) {
    const Status why = Lost(sent);
    done_ = why.ok();
    return done_ ? absl::UnavailableError("the run is done") : why;
  }
  while (Clock::now() < deadline) {
    if (requests_.stop || requests_.drain) return absl::CancelledError("the actor was told to stop");
    StatusOr<LearnerMessage> message = transport_.Receive(std::min(kLook, Until(deadline)));
    if (absl::IsDeadlineExceeded(message.status())) continue;
    MILL_RETURN_IF_ERROR(message.status());
    if (auto* welcome = std::get_if<Welcome>(&*message)) return std::move(*welcome);
    if (const auto* bye = std::get_if<Bye>(&*message)) {
      const Status status = FromBye(*bye);
      done_ = status.ok();
      return done_ ? absl::UnavailableError("the run is done") : status;
    }
  }
  return absl::UnavailableError(Cat("the learner did not answer within ", timeout.count(), " ms"));
}

Status ActorSession::Dispatch(ActorCrew& crew, const LearnerMessage& message) {
  if (const auto* bye = std::get_if<Bye>(&message)) {
    ended_ = true;
    return FromBye(*bye);
  }
  if (const auto* drain = std::get_if<Drain>(&message)) {
    draining_ = true;
    drain_reason_ = drain->reason;
    return absl::OkStatus();
  }
  useful_ |= std::holds_alternative<Grant>(message);
  return crew.Receive(message);
}

// The connection can't be sent on any more. What the learner said last is still to be heard, above all why.
Status ActorSession::Lost(const Status& why) {
  const Clock::time_point deadline = Clock::now() + kFarewell;
  while (Clock::now() < deadline && !requests_.stop) {
    const StatusOr<LearnerMessage> message = transport_.Receive(std::min(kLook, Until(deadline)));
    if (!message.ok() && !absl::IsDeadlineExceeded(message.status())) break;
    if (!message.ok()) continue;
    if (const auto* bye = std::get_if<Bye>(&*message)) return FromBye(*bye);
  }
  return why;
}

// The learner ends the connection when it has the Goodbye, and with it all that was sent before.
Status ActorSession::Leave(const std::string& reason) {
  const Clock::time_point deadline = Clock::now() + kFarewell;
  if (!transport_.Send(Goodbye{reason}).ok()) return absl::OkStatus();
  while (!ended_ && Clock::now() < deadline && !requests_.stop) {
    const StatusOr<LearnerMessage> message = transport_.Receive(std::min(kLook, Until(deadline)));
    if (!message.ok() && !absl::IsDeadlineExceeded(message.status())) break;
    ended_ = message.ok() && std::holds_alternative<Bye>(*message);
  }
  return absl::OkStatus();
}

Status ActorSession::Serve(ActorCrew& crew, const Welcome& welcome, milliseconds drain_timeout,
                           const std::function<ActorStats()>& stats) {
  const milliseconds every(std::max(1u, welcome.heartbeat_ms));
  const Status ready = transport_.Send(Ready{crew.layout().Hash(), crew.layout().Describe()});
  if (!ready.ok()) return Lost(ready);
  crew.Attach(&transport_);
  Clock::time_point heartbeat = Clock::now() + every, deadline = Clock::time_point::max();
  for (;;) {
    if (requests_.stop) return absl::CancelledError("the actor was told to stop");
    if (const Status failure = crew.failure(); !failure.ok()) {
      MILL_RETURN_IF_ERROR(Leave(std::string(failure.message())));
      return failure;
    }
    if ((draining_ || requests_.drain) && deadline == Clock::time_point::max()) {
      draining_ = true;
      crew.Drain();
      heartbeat = Clock::now();
      deadline = Clock::now() + drain_timeout;
    }
    if (draining_ && (crew.Idle() || Clock::now() >= deadline)) {
      return Leave(drain_reason_.empty() ? "the actor was asked to leave" : drain_reason_);
    }
    if (Clock::now() >= heartbeat) {
      const Status sent = transport_.Send(Heartbeat{stats(), received_});
      if (!sent.ok()) return Lost(sent);
      // Who leaves waits for acknowledgements, and a heartbeat is answered by them.
      heartbeat = Clock::now() + (draining_ ? std::min(every, kLook) : every);
    }
    const StatusOr<LearnerMessage> message = transport_.Receive(std::min(kLook, Until(heartbeat)));
    if (absl::IsDeadlineExceeded(message.status())) continue;
    if (!message.ok()) return draining_ ? absl::OkStatus() : message.status();
    received_ += Weight(*message);
    const Status status = Dispatch(crew, *message);
    if (ended_ || !status.ok()) return status;
  }
}

}  // namespace millrace
