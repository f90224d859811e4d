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

void Join(Grant& grant, Grant&& more) {
  grant.bytes += more.bytes;
  grant.groups.insert(grant.groups.end(), more.groups.begin(), more.groups.end());
}

}  // namespace

void Enqueue(std::deque<LearnerMessage>& queue, LearnerMessage message) {
  auto* const ack = std::get_if<Ack>(&message);
  auto* const grant = std::get_if<Grant>(&message);
  for (auto waiting = queue.rbegin(); waiting != queue.rend() && (ack != nullptr || grant != nullptr);
       ++waiting) {
    auto* const other_ack = std::get_if<Ack>(&*waiting);
    auto* const other_grant = std::get_if<Grant>(&*waiting);
    if (other_ack == nullptr && other_grant == nullptr) break;
    if (ack != nullptr && other_ack != nullptr) {
      other_ack->sequence = ack->sequence;
      return;
    }
    if (grant != nullptr && other_grant != nullptr) {
      if (grant->exact != other_grant->exact || grant->policy_version != other_grant->policy_version) break;
      Join(*other_grant, std::move(*grant));
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
