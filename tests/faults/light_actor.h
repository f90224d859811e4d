// LightActor: what the learner sees of an actor - hello, leases, grants, segments, heartbeats - without an
// environment or a network behind it, so that one test process holds a thousand of them. Owner: the test; one
// thread at a time. Station: in the place of actor_loop, over a real transport.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actor/transport.h"
#include "common/messages.h"
#include "common/segment.h"
#include "common/status.h"

namespace millrace {

Hello HelloOf(const std::string& name, uint64_t incarnation = 99);

// The segments that this learner wants, of groups that are all alike.
StatusOr<SegmentLayout> LayoutOf(const Welcome& welcome);

// A segment that passes every check: zeros, acted by one version.
std::vector<std::byte> PlainSegment(const SegmentLayout& layout, uint64_t version);

class LightActor {
 public:
  // Says hello. `transport` is connected.
  static StatusOr<std::unique_ptr<LightActor>> Make(const std::string& name,
                                                    std::unique_ptr<ActorTransport> transport);
  ~LightActor();

  // Does all that can be done now, and waits up to `patience` for the first message. An error: the learner
  // has ended the connection, or said what an honest actor does not hear.
  Status Step(std::chrono::milliseconds patience);
  uint64_t segments() const { return sequence_; }

 private:
  explicit LightActor(std::unique_ptr<ActorTransport> transport) : transport_(std::move(transport)) {}
  Status Handle(const LearnerMessage& message);
  Status OnWelcome(const Welcome& welcome);
  Status OnGrant(const Grant& grant);

  std::unique_ptr<ActorTransport> transport_;
  std::optional<SegmentLayout> layout_;
  std::map<uint32_t, LeasedGroup> groups_;
  uint64_t sequence_ = 0;
  std::chrono::milliseconds heartbeat_{1000};
  std::chrono::steady_clock::time_point next_heartbeat_;
};

}  // namespace millrace
