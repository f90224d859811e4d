#include "learner/weights_service_grpc.h"

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "common/mutex.h"
#include "common/rpc/channel_grpc.h"
#include "common/rpc/weights_codec.h"
#include "learner/live_calls.h"
#include "millrace/v1/weights.grpc.pb.h"

namespace millrace {
namespace {

using grpc::ByteBuffer;
using RawService =
    v1::Weights::WithRawCallbackMethod_Watch<v1::Weights::WithRawCallbackMethod_Get<v1::Weights::Service>>;

// Up to so many are told by who publishes, which is soonest.
constexpr size_t kFewReaders = 16;

ByteBuffer ChunkOf(const WeightsPtr& weights, size_t offset, size_t bytes) {
  const grpc::Slice slices[] = {grpc::Slice(EncodeWeightsPrefix(*weights, offset, bytes)),
                                BorrowingSlice(weights->bytes.data() + offset, bytes, weights)};
  return ByteBuffer(slices, 2);
}

// One Watch or Get.
class WeightsCall final : public grpc::ServerWriteReactor<ByteBuffer> {
 public:
  // `once`: ends after one version.
  WeightsCall(LiveCalls<WeightsCall>& live, bool once) : live_(live), once_(once) {}

  bool once() const { return once_; }

  // `known`: a version that the reader has.
  void SkipKnown(uint64_t known) {
    MutexLock lock(mutex_);
    known_ = known;
    has_known_ = true;
  }

  void Offer(WeightsPtr weights) {
    MutexLock lock(mutex_);
    if (next_ != nullptr && next_->version >= weights->version) return;
    if (sending_ != nullptr && sending_->version >= weights->version) return;
    if (has_known_ && known_ >= weights->version) return;
    next_ = std::move(weights);
    WriteOn();
  }

  void End(const grpc::Status& status) {
    MutexLock lock(mutex_);
    if (ending_) return;
    ending_ = true;
    status_ = status;
    WriteOn();
  }

  void OnWriteDone(bool ok) override {
    ByteBuffer spent;  // its slice keeps the weights
    MutexLock lock(mutex_);
    spent.Swap(&chunk_);
    writing_ = false;
    if (!ok) ending_ = true;
    WriteOn();
  }
  void OnCancel() override { End(grpc::Status::CANCELLED); }
  void OnDone() override { live_.Remove(this); }

 private:
  // Starts what comes next unless a write is underway.
  void WriteOn() MILL_REQUIRES(mutex_) {
    if (writing_ || finished_) return;
    if (sending_ != nullptr && offset_ == sending_->bytes.size()) {
      has_known_ = true;
      known_ = sending_->version;
      sending_ = nullptr;
      if (once_) ending_ = true;
    }
    if (ending_) {
      finished_ = true;
      sending_ = next_ = nullptr;
      Finish(status_);
      return;
    }
    if (sending_ == nullptr) {
      if (next_ == nullptr) return;
      sending_ = std::move(next_);
      next_ = nullptr;
      offset_ = 0;
    }
    const size_t bytes = std::min(kWeightsChunkBytes, sending_->bytes.size() - offset_);
    chunk_ = ChunkOf(sending_, offset_, bytes);
    offset_ += bytes;
    writing_ = true;
    StartWrite(&chunk_);
  }

  LiveCalls<WeightsCall>& live_;
  const bool once_;
  Mutex mutex_;
  ByteBuffer chunk_ MILL_GUARDED_BY(mutex_);
  WeightsPtr sending_ MILL_GUARDED_BY(mutex_), next_ MILL_GUARDED_BY(mutex_);
  size_t offset_ MILL_GUARDED_BY(mutex_) = 0;
  uint64_t known_ MILL_GUARDED_BY(mutex_) = 0;
  bool has_known_ MILL_GUARDED_BY(mutex_) = false, writing_ MILL_GUARDED_BY(mutex_) = false;
  bool ending_ MILL_GUARDED_BY(mutex_) = false, finished_ MILL_GUARDED_BY(mutex_) = false;
  grpc::Status status_ MILL_GUARDED_BY(mutex_);
};

}  // namespace

class WeightsServiceGrpc::Impl final : public RawService {
 public:
  explicit Impl(const TrajectoryService& trajectories) : trajectories_(trajectories) {
    teller_ = std::thread([this] { TellMany(); });
  }
  ~Impl() override {
    {
      MutexLock lock(mutex_);
      closed_ = true;
      wake_.NotifyAll();
    }
    teller_.join();
  }

  grpc::ServerWriteReactor<ByteBuffer>* Watch(grpc::CallbackServerContext*, const ByteBuffer* raw) override {
    auto call = std::make_shared<WeightsCall>(live_, false);
    v1::WatchWeightsRequest request;
    grpc::Slice slice;
    const bool parsed = raw->DumpToSingleSlice(&slice).ok() &&
                        request.ParseFromArray(slice.begin(), static_cast<int>(slice.size()));
    if (parsed && request.have_any()) call->SkipKnown(request.have_version());
    if (!parsed) call->End({grpc::StatusCode::INVALID_ARGUMENT, "WatchWeightsRequest: malformed"});
    return Begin(call);
  }

  grpc::ServerWriteReactor<ByteBuffer>* Get(grpc::CallbackServerContext*, const ByteBuffer*) override {
    return Begin(std::make_shared<WeightsCall>(live_, true));
  }

  void Announce(const WeightsPtr& weights) {
    {
      MutexLock lock(mutex_);
      if (announced_ != nullptr && announced_->version >= weights->version) return;
      announced_ = weights;
      if (live_.size() > kFewReaders) {
        wake_.NotifyAll();
        return;
      }
      told_ = weights;
    }
    Tell(weights);
  }

  void Close() {
    for (const auto& call : live_.Close()) call->End(grpc::Status::OK);
  }
  bool WaitForNone(std::chrono::steady_clock::time_point deadline) { return live_.WaitForNone(deadline); }

 private:
  void Tell(const WeightsPtr& weights) {
    for (const auto& call : live_.All()) call->Offer(weights);
  }

  // A crowd is told by a thread of its own, so that the learner does not wait for it, and of whatever is
  // newest, in a fifth of that thread's time: many actors need the CPUs for more than every version.
  void TellMany() {
    MutexLock lock(mutex_);
    while (!closed_) {
      if (told_ == announced_) {
        wake_.Wait(mutex_);
        continue;
      }
      told_ = announced_;
      const WeightsPtr weights = told_;
      mutex_.Unlock();
      const auto began = std::chrono::steady_clock::now();
      Tell(weights);
      const auto ended = std::chrono::steady_clock::now();
      mutex_.Lock();
      const auto next = ended + 4 * (ended - began);
      for (auto now = ended; !closed_ && now < next; now = std::chrono::steady_clock::now()) {
        wake_.WaitFor(mutex_, next - now);
      }
    }
  }

  // Adds it before it asks for the newest weights, so that none published meanwhile is missed; and asks
  // without a lock, for Announce comes with the trajectory service's.
  WeightsCall* Begin(const std::shared_ptr<WeightsCall>& call) {
    // A watch that begins too late ends in order, like those before it: why is in the other stream's Bye,
    // which an error here would cut off.
    if (!live_.Add(call)) {
      call->End(call->once() ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "the learner is shutting down")
                             : grpc::Status::OK);
    }
    WeightsPtr newest = trajectories_.weights();
    if (newest != nullptr) {
      call->Offer(std::move(newest));
    } else if (call->once()) {
      call->End({grpc::StatusCode::NOT_FOUND, "no weights were published yet"});
    }
    return call.get();
  }

  const TrajectoryService& trajectories_;
  LiveCalls<WeightsCall> live_;
  Mutex mutex_;
  CondVar wake_;
  WeightsPtr announced_ MILL_GUARDED_BY(mutex_), told_ MILL_GUARDED_BY(mutex_);
  bool closed_ MILL_GUARDED_BY(mutex_) = false;
  std::thread teller_;
};

WeightsServiceGrpc::WeightsServiceGrpc(const TrajectoryService& trajectories)
    : impl_(std::make_unique<Impl>(trajectories)) {}
WeightsServiceGrpc::~WeightsServiceGrpc() = default;

grpc::Service* WeightsServiceGrpc::service() {
  return impl_.get();
}
void WeightsServiceGrpc::Announce(const WeightsPtr& weights) {
  impl_->Announce(weights);
}
void WeightsServiceGrpc::Close() {
  impl_->Close();
}
bool WeightsServiceGrpc::WaitForNone(std::chrono::steady_clock::time_point deadline) {
  return impl_->WaitForNone(deadline);
}

}  // namespace millrace
