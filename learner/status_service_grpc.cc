#include "learner/status_service_grpc.h"

#include <grpcpp/alarm.h>
#include <grpcpp/support/server_callback.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "common/mutex.h"
#include "common/rpc/status_codec.h"
#include "learner/live_calls.h"
#include "millrace/v1/status.grpc.pb.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;

constexpr uint32_t kDefaultIntervalMs = 1000, kMinIntervalMs = 100, kMaxIntervalMs = 60'000;

// One Watch. A reader that is slower than the interval gets the next status when it has read the last.
class StatusWatch final : public grpc::ServerWriteReactor<v1::RunStatus> {
 public:
  StatusWatch(LiveCalls<StatusWatch>& live, ControlTarget& target, milliseconds interval)
      : live_(live), target_(target), interval_(interval) {}

  // One status now, and one an interval from here on. `self` is for the timer, which may outlast the call.
  void Tick(const std::weak_ptr<StatusWatch>& self) {
    {
      MutexLock lock(mutex_);
      if (ending_) return;
      asking_ = true;  // the call, and so the target, stays until it has answered
    }
    v1::RunStatus status;
    ToProto(target_.Status(), status);
    MutexLock lock(mutex_);
    asking_ = false;
    if (ending_) {
      FinishWhenDone();
      return;
    }
    if (!writing_) Write(std::move(status));
    alarm_.emplace();  // a new one: this may be the old one's callback
    alarm_->Set(std::chrono::system_clock::now() + interval_, [self](bool due) {
      const std::shared_ptr<StatusWatch> watch = self.lock();
      if (due && watch != nullptr) watch->Tick(self);
    });
  }

  void End(const grpc::Status& why, bool with_status) {
    v1::RunStatus status;
    if (with_status) ToProto(target_.Status(), status);
    MutexLock lock(mutex_);
    if (ending_) return;
    ending_ = true;
    why_ = why;
    alarm_.reset();
    if (with_status && !writing_) Write(std::move(status));
    FinishWhenDone();
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(mutex_);
    writing_ = false;
    if (!ok && !ending_) {
      ending_ = true;
      alarm_.reset();
    }
    FinishWhenDone();
  }
  void OnCancel() override { End(grpc::Status::CANCELLED, false); }
  void OnDone() override { live_.Remove(this); }

 private:
  void Write(v1::RunStatus status) MILL_REQUIRES(mutex_) {
    status_ = std::move(status);
    writing_ = true;
    StartWrite(&status_);
  }
  void FinishWhenDone() MILL_REQUIRES(mutex_) {
    if (!ending_ || writing_ || asking_ || finished_) return;
    finished_ = true;
    Finish(why_);
  }

  LiveCalls<StatusWatch>& live_;
  ControlTarget& target_;
  const milliseconds interval_;
  Mutex mutex_;
  std::optional<grpc::Alarm> alarm_ MILL_GUARDED_BY(mutex_);
  v1::RunStatus status_ MILL_GUARDED_BY(mutex_);
  grpc::Status why_ MILL_GUARDED_BY(mutex_);
  bool writing_ MILL_GUARDED_BY(mutex_) = false, asking_ MILL_GUARDED_BY(mutex_) = false;
  bool ending_ MILL_GUARDED_BY(mutex_) = false, finished_ MILL_GUARDED_BY(mutex_) = false;
};

}  // namespace

class StatusServiceGrpc::Impl final : public v1::Status::CallbackService {
 public:
  explicit Impl(ControlTarget& target) : target_(target) {}

  grpc::ServerUnaryReactor* Get(grpc::CallbackServerContext* context, const v1::GetStatusRequest*,
                                v1::RunStatus* reply) override {
    ToProto(target_.Status(), *reply);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerWriteReactor<v1::RunStatus>* Watch(grpc::CallbackServerContext*,
                                                 const v1::WatchStatusRequest* request) override {
    const uint32_t asked = request->interval_ms();
    const milliseconds interval(asked == 0 ? kDefaultIntervalMs
                                           : std::clamp(asked, kMinIntervalMs, kMaxIntervalMs));
    const auto watch = std::make_shared<StatusWatch>(live_, target_, interval);
    if (live_.Add(watch)) {
      watch->Tick(watch);
    } else {
      watch->End({grpc::StatusCode::UNAVAILABLE, "the learner is shutting down"}, false);
    }
    return watch.get();
  }

  void Close() {
    for (const auto& watch : live_.Close()) watch->End(grpc::Status::OK, true);
  }
  bool WaitForNone(std::chrono::steady_clock::time_point deadline) { return live_.WaitForNone(deadline); }

 private:
  ControlTarget& target_;
  LiveCalls<StatusWatch> live_;
};

StatusServiceGrpc::StatusServiceGrpc(ControlTarget& target) : impl_(std::make_unique<Impl>(target)) {}
StatusServiceGrpc::~StatusServiceGrpc() = default;

grpc::Service* StatusServiceGrpc::service() {
  return impl_.get();
}
void StatusServiceGrpc::Close() {
  impl_->Close();
}
bool StatusServiceGrpc::WaitForNone(std::chrono::steady_clock::time_point deadline) {
  return impl_->WaitForNone(deadline);
}

}  // namespace millrace
