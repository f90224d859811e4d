#include "common/messages.h"

namespace millrace {

std::string_view TransportName(TransportKind kind) {
  switch (kind) {
    case TransportKind::kInProcess:
      return "in_process";
    case TransportKind::kSharedMemory:
      return "shared_memory";
    case TransportKind::kGrpc:
      return "grpc";
  }
  return "";
}

namespace {

// Whether `waiting` can say what the acknowledgement says.
bool Carry(LearnerMessage& waiting, const Ack& ack) {
  if (auto* const grant = std::get_if<Grant>(&waiting)) {
    grant->acknowledged = ack.sequence;
  } else if (auto* const other = std::get_if<Ack>(&waiting)) {
    *other = ack;
  } else {
    return false;
  }
  return true;
}

bool Join(Grant& waiting, Grant& more) {
  if (waiting.exact != more.exact || waiting.policy_version != more.policy_version) return false;
  waiting.bytes += more.bytes;
  waiting.groups.insert(waiting.groups.end(), more.groups.begin(), more.groups.end());
  if (more.acknowledged > 0) waiting.acknowledged = more.acknowledged;
  return true;
}

}  // namespace

// Looking at the last one is enough: what could be joined further ahead has been joined to it.
void Enqueue(std::deque<LearnerMessage>& queue, LearnerMessage message) {
  if (!queue.empty()) {
    const auto* const ack = std::get_if<Ack>(&message);
    if (ack != nullptr && Carry(queue.back(), *ack)) return;
    auto* const grant = std::get_if<Grant>(&message);
    auto* const last = std::get_if<Grant>(&queue.back());
    if (grant != nullptr && last != nullptr && Join(*last, *grant)) return;
    if (const auto* const owed = std::get_if<Ack>(&queue.back()); grant != nullptr && owed != nullptr) {
      if (grant->acknowledged == 0) grant->acknowledged = owed->sequence;
      queue.back() = std::move(message);
      return;
    }
  }
  queue.push_back(std::move(message));
}

uint64_t Weight(const LearnerMessage& message) {
  if (const auto* lease = std::get_if<Lease>(&message)) return lease->drop.size() + lease->add.size();
  if (const auto* grant = std::get_if<Grant>(&message)) return grant->groups.size();
  return 0;
}

}  // namespace millrace
