#include "learner/control_service_grpc.h"

#include <grpcpp/server_context.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "common/rpc/channel_grpc.h"
#include "millrace/v1/control.grpc.pb.h"

namespace millrace {
namespace {

using std::chrono::steady_clock;
using std::chrono::system_clock;

// Of a call whose caller set no deadline.
constexpr std::chrono::seconds kLongestWait{600};

steady_clock::time_point DeadlineOf(const grpc::ServerContext& context) {
  const auto now = system_clock::now();
  const auto left = std::clamp(context.deadline(), now, now + kLongestWait) - now;
  return steady_clock::now() + std::chrono::duration_cast<steady_clock::duration>(left);
}

class ControlService final : public v1::Control::Service {
 public:
  explicit ControlService(ControlTarget& target) : target_(target) {}

  grpc::Status Checkpoint(grpc::ServerContext* context, const v1::CheckpointRequest*,
                          v1::CheckpointReply* reply) override {
    const auto saved = target_.Checkpoint(DeadlineOf(*context));
    if (!saved.ok()) return ToGrpc(saved.status());
    reply->set_path(saved->path);
    reply->set_update(saved->update);
    return grpc::Status::OK;
  }
  grpc::Status Pause(grpc::ServerContext*, const v1::PauseRequest*, v1::ControlReply* reply) override {
    return Answer(target_.Pause(), *reply);
  }
  grpc::Status Resume(grpc::ServerContext*, const v1::ResumeRequest*, v1::ControlReply* reply) override {
    return Answer(target_.Resume(), *reply);
  }
  grpc::Status Drain(grpc::ServerContext*, const v1::DrainRequest*, v1::ControlReply* reply) override {
    return Answer(target_.Drain(), *reply);
  }
  grpc::Status Stop(grpc::ServerContext*, const v1::StopRequest*, v1::ControlReply* reply) override {
    return Answer(target_.Stop(), *reply);
  }
  grpc::Status Set(grpc::ServerContext*, const v1::SetRequest* request, v1::ControlReply* reply) override {
    return Answer(
        target_.Set(std::vector<std::string>(request->settings().begin(), request->settings().end())),
        *reply);
  }

 private:
  grpc::Status Answer(const Status& done, v1::ControlReply& reply) {
    if (!done.ok()) return ToGrpc(done);
    reply.set_state(target_.Status().state);
    return grpc::Status::OK;
  }

  ControlTarget& target_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeControlServiceGrpc(ControlTarget& target) {
  return std::make_unique<ControlService>(target);
}

}  // namespace millrace
