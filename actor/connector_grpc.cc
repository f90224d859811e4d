// Join, then the transport that fits: shared memory where both are on one host, gRPC otherwise.
#include "actor/connector_grpc.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <algorithm>
#include <utility>

#include "actor/transport_grpc.h"
#include "actor/transport_shm.h"
#include "common/mutex.h"
#include "common/rpc/address.h"
#include "common/rpc/channel_grpc.h"
#include "common/text.h"
#include "millrace/v1/trajectory.grpc.pb.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

Status CheckProtocol(const v1::JoinReply& reply, const std::string& address) {
  if (reply.protocol_min() <= kProtocol && reply.protocol_max() >= kOldestProtocol) return absl::OkStatus();
  const bool learner_is_older = reply.protocol_max() < kOldestProtocol;
  return absl::FailedPreconditionError(
      Cat(address, ": the learner (", reply.program_version(), ") is ", learner_is_older ? "older" : "newer",
          " than this actor: it speaks protocol ", reply.protocol_min(), " to ", reply.protocol_max(),
          ", the actor ", kOldestProtocol, " to ", kProtocol, "; update the ",
          learner_is_older ? "learner" : "actor"));
}

class Connector final : public ActorConnector {
 public:
  Connector(std::string address, ConnectorOptions options)
      : address_(std::move(address)), options_(std::move(options)) {}

  StatusOr<std::unique_ptr<ActorTransport>> Connect(milliseconds deadline, std::string* note) override;
  void Shutdown() override {
    MutexLock lock(mutex_);
    shut_down_ = true;
    if (joining_ != nullptr) joining_->TryCancel();
  }

 private:
  StatusOr<v1::JoinReply> Join(const std::shared_ptr<grpc::Channel>& channel, milliseconds deadline);
  // Why shared memory can't be used with this learner; empty where it may be tried.
  static std::string WhyNotShared(const v1::JoinReply& reply);
  bool shut_down() {
    MutexLock lock(mutex_);
    return shut_down_;
  }

  const std::string address_;
  const ConnectorOptions options_;
  Mutex mutex_;
  bool shut_down_ MILL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* joining_ MILL_GUARDED_BY(mutex_) = nullptr;
};

StatusOr<std::unique_ptr<ActorTransport>> Connector::Connect(milliseconds deadline, std::string* note) {
  const auto end = steady_clock::now() + deadline;
  note->clear();
  std::shared_ptr<grpc::Channel> channel = MakeChannel(address_);
  MILL_ASSIGN_OR_RETURN(const v1::JoinReply reply, Join(channel, deadline));
  MILL_RETURN_IF_ERROR(CheckProtocol(reply, address_));
  if (options_.transport == TransportChoice::kGrpc) return MakeGrpcTransport(std::move(channel), address_);

  const bool must_share = options_.transport == TransportChoice::kShm;
  std::string reason = WhyNotShared(reply);
  if (reason.empty()) {
    const auto left = std::chrono::duration_cast<milliseconds>(end - steady_clock::now());
    auto shared = ConnectSharedMemory(reply.unix_socket(), std::max(left, milliseconds(1)));
    if (shut_down()) return absl::CancelledError("the connector was shut down");
    if (shared.ok()) return shared;
    // The learner may be about to end or to begin: then both transports are tried again.
    if (must_share && shared.status().code() == absl::StatusCode::kUnavailable) return shared.status();
    reason = std::string(shared.status().message());
  }
  if (must_share) {
    return absl::FailedPreconditionError(
        Cat("actors.transport is shm, but shared memory with ", address_, " is impossible: ", reason));
  }
  *note = std::move(reason);
  return MakeGrpcTransport(std::move(channel), address_);
}

StatusOr<v1::JoinReply> Connector::Join(const std::shared_ptr<grpc::Channel>& channel,
                                        milliseconds deadline) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + deadline);
  {
    MutexLock lock(mutex_);
    if (shut_down_) return absl::CancelledError("the connector was shut down");
    joining_ = &context;
  }
  v1::JoinRequest request;
  request.set_protocol_min(kOldestProtocol);
  request.set_protocol_max(kProtocol);
  request.set_program_version(options_.program_version);
  v1::JoinReply reply;
  const grpc::Status status = v1::Trajectory::NewStub(channel)->Join(&context, request, &reply);
  {
    MutexLock lock(mutex_);
    joining_ = nullptr;
    if (shut_down_) return absl::CancelledError("the connector was shut down");
  }
  if (status.ok()) return reply;
  const Status failure = ExplainFailure(status, address_);
  // A learner that is slow to answer may be so for this once.
  if (failure.code() == absl::StatusCode::kDeadlineExceeded) return absl::UnavailableError(failure.message());
  return failure;
}

std::string Connector::WhyNotShared(const v1::JoinReply& reply) {
  if (reply.host_id().empty() || reply.host_id() != HostId()) return "the learner is on another host";
  if (!reply.unix_socket().empty()) return "";
  return reply.no_socket_reason().empty() ? "the learner does not offer it"
                                          : Cat("the learner does not offer it: ", reply.no_socket_reason());
}

}  // namespace

StatusOr<std::unique_ptr<ActorConnector>> MakeConnector(const ConnectorOptions& options) {
  MILL_ASSIGN_OR_RETURN(const HostPort address, ParseAddress(options.learner));
  if (address.port == 0) {
    return absl::InvalidArgumentError(Cat(options.learner, ": port 0 is no port to connect to"));
  }
  return std::make_unique<Connector>(FormatAddress(address), options);
}

}  // namespace millrace
