#include "cli/in_process.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>

#include "common/mutex.h"
#include "learner/actor_link.h"

namespace millrace {
namespace {
using Clock = std::chrono::steady_clock;

// What the learner says, on its way to the actor. The service calls Send under its lock, so nothing here
// calls the service.
class Queue final : public ActorLink {
 public:
  void Send(LearnerMessage message) override {
    MutexLock lock(mutex_);
    if (ended_) return;
    messages_.push_back(std::move(message));
    changed_.NotifyAll();
  }

  void SendWeights(WeightsPtr weights) override {
    MutexLock lock(mutex_);
    if (ended_) return;
    weights_ = std::move(weights);  // and an older version that has not left is passed over
    changed_.NotifyAll();
  }

  void Close(const Status& why) override {
    MutexLock lock(mutex_);
    if (ended_) return;
    messages_.push_back(Bye{static_cast<int32_t>(why.code()), std::string(why.message())});
    ended_ = true;
    changed_.NotifyAll();
  }

  // The actor's end is closed.
  void Abandon() {
    MutexLock lock(mutex_);
    ended_ = abandoned_ = true;
    messages_.clear();
    weights_.reset();
    changed_.NotifyAll();
  }

  // A message, or in its place a version of the weights.
  struct Item {
    std::optional<LearnerMessage> message;
    WeightsPtr weights;
  };
  StatusOr<Item> Pop(std::chrono::milliseconds timeout) {
    const Clock::time_point deadline = Clock::now() + timeout;
    MutexLock lock(mutex_);
    while (true) {
      if (abandoned_) return absl::CancelledError("the transport was closed");
      if (weights_ != nullptr) return Item{std::nullopt, std::move(weights_)};
      if (!messages_.empty()) {
        Item item{std::move(messages_.front()), nullptr};
        messages_.pop_front();
        return item;
      }
      if (ended_) return absl::UnavailableError("the learner has ended the connection");
      const auto left = deadline - Clock::now();
      if (left <= left.zero()) return absl::DeadlineExceededError("nothing came in time");
      changed_.WaitFor(mutex_, left);
    }
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<LearnerMessage> messages_ MILL_GUARDED_BY(mutex_);
  WeightsPtr weights_ MILL_GUARDED_BY(mutex_);
  bool ended_ MILL_GUARDED_BY(mutex_) = false, abandoned_ MILL_GUARDED_BY(mutex_) = false;
};

class InProcessTransport final : public ActorTransport {
 public:
  explicit InProcessTransport(TrajectoryService& service) : service_(service) {}
  ~InProcessTransport() override { Close(); }

  TransportKind kind() const override { return TransportKind::kInProcess; }

  Status Send(const ActorMessage& message) override {
    if (const auto* hello = std::get_if<Hello>(&message)) {
      const StatusOr<SessionId> session = service_.Open(*hello, kind(), "in process", queue_);
      if (session.ok()) session_.store(*session);
      return End(session.status());
    }
    return End(service_.Receive(session_.load(), message));
  }

  Status SendSegment(const SegmentHeader& header, const std::byte* payload,
                     std::function<void()> released) override {
    // Segments are taken in in the order of their sequences.
    MutexLock lock(segments_);
    const Status status = HandOver(header, payload);
    released();
    return End(status);
  }

  std::byte* Slot(int32_t) override { return nullptr; }

  StatusOr<LearnerMessage> Receive(std::chrono::milliseconds timeout) override {
    if (arriving_ == nullptr) {
      MILL_ASSIGN_OR_RETURN(Queue::Item item, queue_->Pop(timeout));
      if (item.message.has_value()) return *std::move(item.message);
      arriving_ = std::move(item.weights);
      arrived_ = 0;
    }
    return NextPiece();
  }

  void Close() override {
    queue_->Abandon();
    const SessionId session = session_.exchange(0);
    if (session != 0) service_.Lost(session, absl::UnavailableError("the actor has closed its end"));
  }

 private:
  Status HandOver(const SegmentHeader& header, const std::byte* payload) {
    MILL_ASSIGN_OR_RETURN(const TrajectoryService::Ingest ingest,
                          service_.BeginIngest(session_.load(), header));
    if (ingest.skip) return absl::OkStatus();
    std::memcpy(ingest.memory, payload, header.bytes);
    return service_.EndIngest(ingest, XXH3_64bits(ingest.memory, header.bytes));
  }

  // A breach ends the connection; the actor reads why as a Bye.
  Status End(const Status& status) {
    if (status.ok()) return status;
    queue_->Close(status);
    return absl::UnavailableError(status.message());
  }

  WeightsChunk NextPiece() {
    WeightsChunk chunk;
    chunk.version = arriving_->version;
    chunk.total_bytes = arriving_->bytes.size();
    chunk.offset = arrived_;
    chunk.checksum = arriving_->checksum;
    const size_t bytes = std::min(kWeightsChunkBytes, arriving_->bytes.size() - arrived_);
    chunk.data.assign(reinterpret_cast<const char*>(arriving_->bytes.data()) + arrived_, bytes);
    arrived_ += bytes;
    if (arrived_ == arriving_->bytes.size()) arriving_.reset();
    return chunk;
  }

  TrajectoryService& service_;
  const std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
  std::atomic<SessionId> session_{0};
  Mutex segments_;

  // The receiving thread's: weights of which pieces are still to come.
  WeightsPtr arriving_;
  size_t arrived_ = 0;
};

}  // namespace

StatusOr<std::unique_ptr<ActorTransport>> InProcessConnector::Connect(std::chrono::milliseconds,
                                                                      std::string*) {
  if (shut_.load()) return absl::CancelledError("the connector was shut down");
  return std::unique_ptr<ActorTransport>(new InProcessTransport(service_));
}

}  // namespace millrace
