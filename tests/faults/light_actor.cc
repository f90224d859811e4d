#include "tests/faults/light_actor.h"

#include <xxhash.h>

#include <utility>
#include <variant>

#include "actor/row_group.h"
#include "common/config/config.h"
#include "common/row_groups.h"
#include "common/text.h"
#include "kernels/net/fingerprint.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

}  // namespace

Hello HelloOf(const std::string& name, uint64_t incarnation) {
  Hello hello;
  hello.program_version = "test";
  hello.actor = name;
  hello.incarnation = incarnation;
  hello.host = "test";
  hello.threads = 1;
  hello.kernel_bits = KernelFingerprint();
  return hello;
}

StatusOr<SegmentLayout> LayoutOf(const Welcome& welcome) {
  MILL_ASSIGN_OR_RETURN(const RunOptions run, ParseConfig(welcome.config));
  const int rows = GroupRows(static_cast<int>(run.env.rows), static_cast<int>(run.env.group_rows))[0];
  const int steps = static_cast<int>(Horizon(run));
  MILL_ASSIGN_OR_RETURN(const auto group, RowGroup::Make(run.env, run.run.seed, 0, rows));
  const EnvSpec& spec = group->spec();
  SegmentLayout layout(spec, steps, rows, SegmentLayout::FinalCapacity(spec.max_episode_steps, steps, rows),
                       group->row_state_bytes());
  if (layout.Hash() == welcome.layout_hash) return layout;
  return absl::InternalError(Cat("layouts differ: ", layout.Describe(), " and ", welcome.layout));
}

std::vector<std::byte> PlainSegment(const SegmentLayout& layout, uint64_t version) {
  std::vector<std::byte> memory(layout.bytes());
  const SegmentView view(&layout, memory.data());
  for (int t = 0; t < layout.steps(); ++t) view.policy_version()[t] = version;
  for (int i = 0; i < layout.samples(); ++i) view.valid()[i] = 1;
  return memory;
}

StatusOr<std::unique_ptr<LightActor>> LightActor::Make(const std::string& name,
                                                       std::unique_ptr<ActorTransport> transport) {
  MILL_RETURN_IF_ERROR(transport->Send(HelloOf(name)));
  return std::unique_ptr<LightActor>(new LightActor(std::move(transport)));
}

LightActor::~LightActor() {
  transport_->Close();
}

Status LightActor::Step(milliseconds patience) {
  while (true) {
    auto message = transport_->Receive(patience);
    if (absl::IsDeadlineExceeded(message.status())) break;
    MILL_RETURN_IF_ERROR(message.status());
    MILL_RETURN_IF_ERROR(Handle(*message));
    patience = milliseconds(0);
  }
  if (layout_ && Clock::now() >= next_heartbeat_) {
    next_heartbeat_ = Clock::now() + heartbeat_;
    return transport_->Send(Heartbeat{});
  }
  return absl::OkStatus();
}

Status LightActor::Handle(const LearnerMessage& message) {
  if (const auto* welcome = std::get_if<Welcome>(&message)) return OnWelcome(*welcome);
  if (const auto* grant = std::get_if<Grant>(&message)) return OnGrant(*grant);
  if (const auto* lease = std::get_if<Lease>(&message)) {
    for (const uint32_t group : lease->drop) groups_.erase(group);
    for (const LeasedGroup& group : lease->add) groups_[group.group] = group;
  }
  if (const auto* bye = std::get_if<Bye>(&message)) return absl::UnavailableError(bye->reason);
  return absl::OkStatus();
}

Status LightActor::OnWelcome(const Welcome& welcome) {
  MILL_ASSIGN_OR_RETURN(layout_, LayoutOf(welcome));
  heartbeat_ = milliseconds(welcome.heartbeat_ms);
  next_heartbeat_ = Clock::now() + heartbeat_;
  return transport_->Send(Ready{welcome.layout_hash, welcome.layout});
}

Status LightActor::OnGrant(const Grant& grant) {
  for (const GroupGrant& allowed : grant.groups) {
    const auto found = groups_.find(allowed.group);
    if (found == groups_.end() || found->second.lease != allowed.lease) continue;  // of a lease that is over
    const auto memory =
        std::make_shared<std::vector<std::byte>>(PlainSegment(*layout_, grant.policy_version));
    SegmentHeader header;
    header.sequence = ++sequence_;
    header.group = allowed.group;
    header.lease = allowed.lease;
    header.first_step = found->second.next_step;
    header.policy_version = grant.policy_version;
    header.bytes = memory->size();
    header.checksum = XXH3_64bits(memory->data(), memory->size());
    found->second.next_step += static_cast<uint64_t>(layout_->steps());
    MILL_RETURN_IF_ERROR(transport_->SendSegment(header, memory->data(), [memory] {}));
  }
  return absl::OkStatus();
}

}  // namespace millrace
