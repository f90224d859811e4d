#include "cli/bench_wire.h"

#include <unistd.h>
#include <xxhash.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "actor/connector_grpc.h"
#include "actor/row_group.h"
#include "common/config/config.h"
#include "kernels/net/fingerprint.h"

namespace millrace {
namespace {

constexpr int kGroups = 8;
constexpr auto kTimeout = std::chrono::seconds(10);

RunOptions OptionsFor(const WireShape& shape) {
  RunOptions run;
  run.mode = RunMode::kAsync;
  run.env.id = "Null";
  run.env.params = {{"obs", absl::StrCat(shape.obs)}};
  run.env.rows = static_cast<uint32_t>(shape.rows * kGroups);
  run.env.group_rows = static_cast<uint32_t>(shape.rows);
  run.ppo.horizon = static_cast<uint32_t>(shape.steps);
  run.ppo.minibatch_size = 1;
  run.learner.max_policy_lag = 1'000'000;  // pacing is not what is measured
  return run;
}

}  // namespace

StatusOr<std::unique_ptr<BenchLearner>> BenchLearner::Start(const WireShape& shape) {
  auto learner = std::unique_ptr<BenchLearner>(new BenchLearner);
  TrajectoryServiceOptions options;
  options.run = OptionsFor(shape);
  MILL_ASSIGN_OR_RETURN(const auto group, RowGroup::Make(options.run.env, 1, 0, shape.rows));
  options.spec = group->spec();
  options.row_state_bytes = group->row_state_bytes();
  options.serialized_config = SerializeConfig(options.run);
  options.run_id = "bench";
  options.kernel_bits = KernelFingerprint();
  const int finals = SegmentLayout::FinalCapacity(options.spec.max_episode_steps, shape.steps, shape.rows);
  learner->segment_bytes_ =
      SegmentLayout(options.spec, shape.steps, shape.rows, finals, options.row_state_bytes).bytes();
  MILL_ASSIGN_OR_RETURN(learner->service_, TrajectoryService::Make(std::move(options)));
  ServerOptions server;
  server.listen = "127.0.0.1:0";
  server.max_segment_bytes = learner->segment_bytes_;
  server.run_id = "bench";
  server.unix_socket = absl::StrCat("/tmp/millrace-bench-", getpid(), ".sock");
  MILL_ASSIGN_OR_RETURN(learner->shm_, ShmServer::Start(server.unix_socket, *learner->service_));
  MILL_ASSIGN_OR_RETURN(learner->grpc_, GrpcServer::Start(server, *learner->service_, *learner));
  auto weights = std::make_shared<WeightsBlob>();
  weights->checksum = WeightsChecksum(0, nullptr, 0);
  learner->service_->Publish(std::move(weights));
  return learner;
}

void BenchLearner::Consume() {
  consumer_ = std::thread([this] {
    while (service_->Take().ok()) service_->Release();
  });
}

BenchLearner::~BenchLearner() {
  if (service_ != nullptr) service_->Stop(absl::OkStatus());
  if (consumer_.joinable()) consumer_.join();
  grpc_.reset();
  shm_.reset();
}

RunStatus BenchLearner::Status() {
  RunStatus status;
  service_->FillStatus(status);
  return status;
}

StatusOr<std::unique_ptr<BenchActor>> BenchActor::Connect(BenchLearner& learner, TransportKind kind,
                                                          const std::string& name) {
  auto actor = std::unique_ptr<BenchActor>(new BenchActor);
  ConnectorOptions options;
  options.learner = learner.address();
  options.transport = kind == TransportKind::kGrpc ? TransportChoice::kGrpc : TransportChoice::kShm;
  MILL_ASSIGN_OR_RETURN(const auto connector, MakeConnector(options));
  std::string note;
  MILL_ASSIGN_OR_RETURN(actor->transport_, connector->Connect(kTimeout, &note));
  if (actor->transport_->kind() != kind) return absl::UnavailableError(note);
  actor->segment_bytes_ = learner.segment_bytes();
  MILL_RETURN_IF_ERROR(actor->Greet(name));
  actor->thread_ = std::thread([a = actor.get()] { a->Run(); });
  return actor;
}

BenchActor::~BenchActor() {
  if (transport_ != nullptr) transport_->Close();
  if (thread_.joinable()) thread_.join();
}

Status BenchActor::status() {
  return failed_ ? status_ : absl::OkStatus();
}

Status BenchActor::Greet(const std::string& name) {
  Hello hello;
  hello.actor = name;
  hello.incarnation = 1;
  hello.threads = 1;
  hello.kernel_bits = KernelFingerprint();
  MILL_RETURN_IF_ERROR(transport_->Send(hello));
  MILL_ASSIGN_OR_RETURN(const LearnerMessage first, transport_->Receive(kTimeout));
  const auto* welcome = std::get_if<Welcome>(&first);
  if (welcome == nullptr) return absl::InternalError("the learner did not begin with Welcome");
  MILL_ASSIGN_OR_RETURN(const RunOptions run, ParseConfig(welcome->config));
  MILL_ASSIGN_OR_RETURN(const auto group,
                        RowGroup::Make(run.env, 1, 0, static_cast<int>(run.env.group_rows)));
  const auto steps = static_cast<int>(Horizon(run)), rows = group->rows();
  layout_ = std::make_unique<SegmentLayout>(
      group->spec(), steps, rows, SegmentLayout::FinalCapacity(group->spec().max_episode_steps, steps, rows),
      group->row_state_bytes());
  own_.resize(layout_->bytes() / sizeof(uint64_t) + 16);
  FillSegment(Memory({}));
  return transport_->Send(Ready{welcome->layout_hash, welcome->layout});
}

void BenchActor::FillSegment(std::byte* memory) const {
  std::memset(memory, 0, layout_->bytes());
  std::memset(SegmentView(layout_.get(), memory).valid(), 1, static_cast<size_t>(layout_->samples()));
}

std::byte* BenchActor::Memory(const GroupGrant& grant) {
  if (grant.slot < 0) {  // on a line of the cache
    auto at = reinterpret_cast<uintptr_t>(own_.data());
    return reinterpret_cast<std::byte*>((at + 63) / 64 * 64);
  }
  std::byte* const slot = transport_->Slot(grant.slot);
  if (slot != nullptr && !std::exchange(filled_[grant.slot], true)) FillSegment(slot);
  return slot;
}

void BenchActor::Run() {
  for (;;) {
    const StatusOr<LearnerMessage> message = transport_->Receive(kTimeout);
    if (absl::IsDeadlineExceeded(message.status())) continue;
    const Status status = message.ok() ? Handle(*message) : message.status();
    if (status.ok()) continue;
    status_ = status;
    failed_ = true;
    return;
  }
}

Status BenchActor::Handle(const LearnerMessage& message) {
  if (const auto* grant = std::get_if<Grant>(&message)) {
    if (grant->acknowledged > 0) acknowledged_ = grant->acknowledged;
    return Answer(*grant);
  }
  if (const auto* ack = std::get_if<Ack>(&message)) acknowledged_ = ack->sequence;
  if (const auto* lease = std::get_if<Lease>(&message)) {
    for (const LeasedGroup& group : lease->add) next_step_[group.group] = group.next_step;
  }
  if (const auto* bye = std::get_if<Bye>(&message)) return absl::CancelledError(bye->reason);
  if (const auto* chunk = std::get_if<WeightsChunk>(&message)) {
    if (weights_.size() < chunk->total_bytes) weights_.resize(chunk->total_bytes);
    std::memcpy(weights_.data() + chunk->offset, chunk->data.data(), chunk->data.size());
    if (chunk->offset + chunk->data.size() == chunk->total_bytes) {
      if (WeightsChecksum(chunk->version, weights_.data(), chunk->total_bytes) != chunk->checksum) {
        return absl::DataLossError("weights were damaged on their way");
      }
      version_ = chunk->version;
    }
  }
  return absl::OkStatus();
}

Status BenchActor::Answer(const Grant& grant) {
  for (const GroupGrant& group : grant.groups) {
    std::byte* const memory = Memory(group);
    if (memory == nullptr) return absl::InternalError("a grant without memory");
    SegmentHeader header;
    header.sequence = ++sequence_;
    header.group = group.group;
    header.lease = group.lease;
    header.first_step = next_step_[group.group];
    header.bytes = layout_->bytes();
    header.checksum = XXH3_64bits(memory, layout_->bytes());
    header.slot = group.slot;
    next_step_[group.group] += static_cast<uint64_t>(layout_->steps());
    MILL_RETURN_IF_ERROR(transport_->SendSegment(header, memory, [] {}));
  }
  return absl::OkStatus();
}

}  // namespace millrace
