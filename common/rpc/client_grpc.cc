#include "common/rpc/client_grpc.h"

#include <grpcpp/client_context.h>

#include <algorithm>
#include <utility>

#include "common/rpc/address.h"
#include "common/rpc/channel_grpc.h"
#include "common/rpc/status_codec.h"
#include "millrace/v1/control.grpc.pb.h"
#include "millrace/v1/status.grpc.pb.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kShortestInterval{100}, kLongestInterval{60'000};

}  // namespace

class LearnerClient::Impl {
 public:
  explicit Impl(std::string address)
      : address_(std::move(address)),
        channel_(MakeChannel(address_)),
        status_(v1::Status::NewStub(channel_)),
        control_(v1::Control::NewStub(channel_)) {}

  v1::Status::Stub& status() { return *status_; }

  // One call with a deadline: `(stub.*method)(context, request, reply)`.
  template <typename Stub, typename Request, typename Reply>
  StatusOr<Reply> Call(Stub& stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                       const Request& request, milliseconds deadline) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + deadline);
    Reply reply;
    const grpc::Status status = (stub.*method)(&context, request, &reply);
    if (!status.ok()) return ExplainFailure(status, address_);
    return reply;
  }

  template <typename Request>
  StatusOr<std::string> Control(grpc::Status (v1::Control::Stub::*method)(grpc::ClientContext*,
                                                                          const Request&, v1::ControlReply*),
                                const Request& request, milliseconds deadline) {
    MILL_ASSIGN_OR_RETURN(const v1::ControlReply reply, Call(*control_, method, request, deadline));
    return reply.state();
  }

  StatusOr<Checkpoint> Save(milliseconds deadline) {
    MILL_ASSIGN_OR_RETURN(const v1::CheckpointReply reply,
                          Call(*control_, &v1::Control::Stub::Checkpoint, v1::CheckpointRequest(), deadline));
    return Checkpoint{reply.path(), reply.update()};
  }

  Status Watch(milliseconds interval, const std::function<bool(const RunStatus&)>& next);

 private:
  const std::string address_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Status::Stub> status_;
  const std::unique_ptr<v1::Control::Stub> control_;
};

// A learner that stands still is noticed by the keepalive of the connection, which ends the stream.
Status LearnerClient::Impl::Watch(milliseconds interval, const std::function<bool(const RunStatus&)>& next) {
  interval = std::clamp(interval, kShortestInterval, kLongestInterval);
  grpc::ClientContext context;
  v1::WatchStatusRequest request;
  request.set_interval_ms(static_cast<uint32_t>(interval.count()));
  const auto reader = status_->Watch(&context, request);
  v1::RunStatus message;
  while (reader->Read(&message)) {
    if (next(FromProto(message))) continue;
    context.TryCancel();
    static_cast<void>(reader->Finish());
    return absl::OkStatus();
  }
  const grpc::Status status = reader->Finish();
  return status.ok() ? absl::OkStatus() : ExplainFailure(status, address_);
}

StatusOr<std::unique_ptr<LearnerClient>> LearnerClient::Make(const std::string& address) {
  MILL_ASSIGN_OR_RETURN(const HostPort parsed, ParseAddress(address));
  return std::unique_ptr<LearnerClient>(new LearnerClient(std::make_unique<Impl>(FormatAddress(parsed))));
}

LearnerClient::LearnerClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LearnerClient::~LearnerClient() = default;

StatusOr<RunStatus> LearnerClient::GetStatus(milliseconds deadline) {
  MILL_ASSIGN_OR_RETURN(const v1::RunStatus reply, impl_->Call(impl_->status(), &v1::Status::Stub::Get,
                                                               v1::GetStatusRequest(), deadline));
  return FromProto(reply);
}

Status LearnerClient::WatchStatus(milliseconds interval, const std::function<bool(const RunStatus&)>& next) {
  return impl_->Watch(interval, next);
}

StatusOr<LearnerClient::Checkpoint> LearnerClient::SaveCheckpoint(milliseconds deadline) {
  return impl_->Save(deadline);
}

StatusOr<std::string> LearnerClient::Pause(milliseconds deadline) {
  return impl_->Control(&v1::Control::Stub::Pause, v1::PauseRequest(), deadline);
}
StatusOr<std::string> LearnerClient::Resume(milliseconds deadline) {
  return impl_->Control(&v1::Control::Stub::Resume, v1::ResumeRequest(), deadline);
}
StatusOr<std::string> LearnerClient::Drain(milliseconds deadline) {
  return impl_->Control(&v1::Control::Stub::Drain, v1::DrainRequest(), deadline);
}
StatusOr<std::string> LearnerClient::Stop(milliseconds deadline) {
  return impl_->Control(&v1::Control::Stub::Stop, v1::StopRequest(), deadline);
}
StatusOr<std::string> LearnerClient::Set(const std::vector<std::string>& settings, milliseconds deadline) {
  v1::SetRequest request;
  for (const std::string& setting : settings) request.add_settings(setting);
  return impl_->Control(&v1::Control::Stub::Set, request, deadline);
}

}  // namespace millrace
