#include "learner/control_service_grpc.h"

#include <grpcpp/server_context.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include "common/rpc/channel_grpc.h"
#include "common/text.h"
#include "millrace/v1/control.grpc.pb.h"

namespace millrace {
namespace {

using std::chrono::steady_clock;
using std::chrono::system_clock;

// One line for a terminal, whatever the caller sent.
std::string ForTerminal(std::string text) {
  constexpr size_t kMost = 500;
  if (text.size() > kMost) text = text.substr(0, kMost) + " ...";
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return text;
}

// Of a call whose caller set no deadline.
constexpr std::chrono::seconds kLongestWait{600};
// Calls that wait for a checkpoint each hold a thread, of kMaxBlockingThreads in server_grpc.cc. The others
// must be left some: whoever asks to stop or to pause is not to wait for an update.
constexpr int kMostWaiting = 8;

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
    StatusOr<ControlTarget::Saved> saved = absl::ResourceExhaustedError(
        Cat(kMostWaiting, " calls wait for a checkpoint already; try again when it is written"));
    if (waiting_.fetch_add(1) < kMostWaiting) saved = target_.Checkpoint(DeadlineOf(*context));
    waiting_.fetch_sub(1);
    Note(*context, "checkpoint", saved.status());
    if (!saved.ok()) return ToGrpc(saved.status());
    reply->set_path(saved->path);
    reply->set_update(saved->update);
    return grpc::Status::OK;
  }
  grpc::Status Pause(grpc::ServerContext* context, const v1::PauseRequest*,
                     v1::ControlReply* reply) override {
    return Answer(*context, "pause", target_.Pause(), *reply);
  }
  grpc::Status Resume(grpc::ServerContext* context, const v1::ResumeRequest*,
                      v1::ControlReply* reply) override {
    return Answer(*context, "resume", target_.Resume(), *reply);
  }
  grpc::Status Drain(grpc::ServerContext* context, const v1::DrainRequest*,
                     v1::ControlReply* reply) override {
    return Answer(*context, "drain", target_.Drain(), *reply);
  }
  grpc::Status Stop(grpc::ServerContext* context, const v1::StopRequest*, v1::ControlReply* reply) override {
    return Answer(*context, "stop", target_.Stop(), *reply);
  }
  grpc::Status Set(grpc::ServerContext* context, const v1::SetRequest* request,
                   v1::ControlReply* reply) override {
    const std::vector<std::string> settings(request->settings().begin(), request->settings().end());
    const Status done = target_.Set(settings);
    std::string what = "set";
    for (const std::string& setting : settings) what += " " + setting;
    return Answer(*context, what, done, *reply);
  }

 private:
  void Note(const grpc::ServerContext& context, const std::string& what, const Status& done) {
    target_.Note(ForTerminal(Cat(PeerName(context.peer()), " asked for: ", what,
                                 done.ok() ? "" : Cat(" (refused: ", done.message(), ")"))));
  }

  grpc::Status Answer(const grpc::ServerContext& context, const std::string& what, const Status& done,
                      v1::ControlReply& reply) {
    Note(context, what, done);
    if (!done.ok()) return ToGrpc(done);
    reply.set_state(target_.Status().state);
    return grpc::Status::OK;
  }

  ControlTarget& target_;
  std::atomic<int> waiting_{0};  // for a checkpoint
};

}  // namespace

std::unique_ptr<grpc::Service> MakeControlServiceGrpc(ControlTarget& target) {
  return std::make_unique<ControlService>(target);
}

}  // namespace millrace
