#include "learner/trajectory_service_grpc.h"

#include <grpcpp/alarm.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#define XXH_INLINE_ALL  // for this CPU's vector width
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "common/rpc/address.h"
#include "common/rpc/channel_grpc.h"
#include "common/rpc/codec.h"
#include "common/text.h"
#include "learner/live_calls.h"
#include "millrace/v1/trajectory.grpc.pb.h"

namespace millrace {
namespace {

using grpc::ByteBuffer;
using grpc::Slice;
using RawService = v1::Trajectory::WithCallbackMethod_Join<
    v1::Trajectory::WithRawCallbackMethod_Stream<v1::Trajectory::Service>>;

// A connection that says nothing, and one that does not take its Bye, end after this.
constexpr std::chrono::seconds kPatience{10};
constexpr size_t kMaxInbox = 2;  // messages that were read while one is taken in
// Answers that an actor has not read, beside reserved states. Credits keep an honest one far below.
constexpr size_t kMaxOutgoingBytes = size_t{256} << 20, kMaxOutgoing = size_t{1} << 16;

std::string_view View(const Slice& slice) {
  return {reinterpret_cast<const char*>(slice.begin()), slice.size()};
}

std::string Gather(const std::vector<Slice>& slices, size_t bytes) {
  std::string gathered;
  gathered.reserve(bytes);
  for (const Slice& slice : slices) {
    gathered.append(View(slice).substr(0, bytes - gathered.size()));
    if (gathered.size() == bytes) break;
  }
  return gathered;
}

// A segment is nearly always known by the first slice; what is not gets the whole head.
StatusOr<ActorFrame> ParseSlices(const std::vector<Slice>& slices, size_t total) {
  if (slices.empty()) return ParseActorFrame("", 0);
  StatusOr<ActorFrame> frame = ParseActorFrame(View(slices[0]), total);
  if (frame.ok() && std::holds_alternative<SegmentFrame>(*frame)) return frame;
  if (slices.size() == 1) return frame;
  const std::string head = Gather(slices, std::min(total, kMaxControlBytes));
  return ParseActorFrame(head, total);
}

// Writes what lies behind `offset` to `memory`, and returns its XXH3-64. Each slice is hashed while it is in
// the cache for the copy.
uint64_t CopyHashed(const std::vector<Slice>& slices, size_t offset, std::byte* memory) {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (const Slice& slice : slices) {
    const size_t skip = std::min(offset, slice.size());
    offset -= skip;
    const size_t bytes = slice.size() - skip;
    if (bytes == 0) continue;
    std::memcpy(memory, slice.begin() + skip, bytes);
    XXH3_64bits_update(&state, memory, bytes);
    memory += bytes;
  }
  return XXH3_64bits_digest(&state);
}

// What makes a message large.
size_t StateBytes(const LearnerMessage& message) {
  size_t bytes = 0;
  if (const auto* lease = std::get_if<Lease>(&message)) {
    for (const LeasedGroup& group : lease->add) bytes += group.state.size();
  }
  return bytes;
}

// One actor's stream, which is also the service's link to it. gRPC's callbacks and the service's calls come
// from any thread; operations are started under the mutex, for gRPC never calls back from within them.
class ActorStream final : public grpc::ServerBidiReactor<ByteBuffer, ByteBuffer>,
                          public ActorLink,
                          public std::enable_shared_from_this<ActorStream> {
 public:
  ActorStream(TrajectoryService& service, LiveCalls<ActorStream>& live, grpc::CallbackServerContext* context)
      : service_(service), live_(live), context_(context) {}

  void Begin() {
    MutexLock lock(mutex_);
    if (closed_) return;
    SetTimer(hello_timer_, [](ActorStream& stream) {
      if (!stream.greeted()) {
        stream.Close(absl::DeadlineExceededError(Cat("no Hello within ", kPatience.count(), " s")));
      }
    });
    ReadOn();
  }

  // ---- ActorLink ----

  void Send(LearnerMessage message) override { Queue(std::move(message), nullptr); }
  void ReserveStates(size_t bytes) override {
    MutexLock lock(mutex_);
    most_outgoing_bytes_ = kMaxOutgoingBytes + bytes;
  }
  void SendWeights(WeightsPtr) override {}  // they go by the Weights service
  void Close(const Status& why) override {
    const Bye bye{static_cast<int32_t>(why.code()), std::string(why.message())};
    Queue(bye, &why);
  }

  // ---- gRPC ----

  void OnReadDone(bool ok) override {
    MutexLock lock(mutex_);
    reading_ = false;
    if (ok) {
      inbox_.push_back(std::move(incoming_));
      incoming_.Clear();
    } else {
      input_ended_ = true;
    }
    ReadOn();
    if (!handling_) HandleAll();
    WriteOn();
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(mutex_);
    writing_ = false;
    written_.Clear();
    if (!ok) {
      outgoing_.clear();
      if (!closed_) why_ = absl::UnavailableError("the connection broke");
      closed_ = true;
    }
    WriteOn();
  }

  void OnDone() override {
    Status why;
    {
      MutexLock lock(mutex_);
      done_ = closed_ = true;
      why = why_;
      hello_timer_.Cancel();
      close_timer_.Cancel();
    }
    if (session_.has_value()) service_.Lost(*session_, why);
    live_.Remove(this);
  }

 private:
  bool greeted() const {
    MutexLock lock(mutex_);
    return greeted_;
  }

  // The stream may be gone before the timer.
  void SetTimer(grpc::Alarm& timer, void (*due)(ActorStream&)) MILL_REQUIRES(mutex_) {
    timer.Set(std::chrono::system_clock::now() + kPatience, [self = weak_from_this(), due](bool on_time) {
      const std::shared_ptr<ActorStream> stream = self.lock();
      if (on_time && stream != nullptr) due(*stream);
    });
  }

  // With `last`, the final message: the stream ends after it, with that status.
  void Queue(LearnerMessage message, const Status* last) {
    MutexLock lock(mutex_);
    if (closed_) return;
    if (last == nullptr && (outgoing_.size() >= kMaxOutgoing || outgoing_bytes_ >= most_outgoing_bytes_)) {
      closed_ = true;
      why_ = absl::ResourceExhaustedError("the actor does not read what it is sent");
      status_ = ToGrpc(why_);
      context_->TryCancel();
      return;
    }
    outgoing_bytes_ += StateBytes(message);
    Enqueue(outgoing_, std::move(message));
    if (last != nullptr) {
      closed_ = true;
      why_ = *last;
      status_ = ToGrpc(*last);
      SetTimer(close_timer_, [](ActorStream& stream) { stream.Cancel(); });
    }
    WriteOn();
  }

  void WriteOn() MILL_REQUIRES(mutex_) {
    if (writing_ || finished_) return;
    if (!outgoing_.empty()) {
      writing_ = true;
      const Slice slice(Encode(outgoing_.front()));
      written_ = ByteBuffer(&slice, 1);
      outgoing_bytes_ -= StateBytes(outgoing_.front());
      outgoing_.pop_front();
      StartWrite(&written_);
    } else if (closed_) {
      finished_ = true;
      Finish(status_);
    }
  }

  void Cancel() {
    MutexLock lock(mutex_);
    if (!done_) context_->TryCancel();
  }

  // The next message is on its way while this one is taken in.
  void ReadOn() MILL_REQUIRES(mutex_) {
    if (reading_ || closed_ || input_ended_ || inbox_.size() >= kMaxInbox) return;
    reading_ = true;
    StartRead(&incoming_);
  }

  // By whichever reading callback finds nobody at it: one message at a time, in their order.
  void HandleAll() MILL_REQUIRES(mutex_) {
    handling_ = true;
    while (!inbox_.empty() && !closed_) {
      const ByteBuffer message = std::move(inbox_.front());
      inbox_.pop_front();
      ReadOn();
      mutex_.Unlock();
      const Status status = Handle(message);
      if (!status.ok()) Close(status);
      mutex_.Lock();
    }
    handling_ = false;
    if (!input_ended_ || closed_) return;
    closed_ = true;
    why_ = absl::UnavailableError("the connection ended");
    status_ = grpc::Status::OK;
  }

  // ---- what the actor sent; one message at a time, without the mutex ----

  Status Handle(const ByteBuffer& message_bytes) {
    std::vector<Slice> slices;
    if (!message_bytes.Dump(&slices).ok()) return absl::InvalidArgumentError("message: can't be read");
    MILL_ASSIGN_OR_RETURN(const ActorFrame frame, ParseSlices(slices, message_bytes.Length()));
    if (std::holds_alternative<UnknownMessage>(frame)) return absl::OkStatus();
    const auto* message = std::get_if<ActorMessage>(&frame);
    const auto* hello = message == nullptr ? nullptr : std::get_if<Hello>(message);
    if (hello != nullptr) return HandleHello(*hello);
    if (!session_.has_value()) return absl::FailedPreconditionError("the first message must be Hello");
    if (message != nullptr) return service_.Receive(*session_, *message);
    return HandleSegment(std::get<SegmentFrame>(frame), slices);
  }

  Status HandleHello(const Hello& hello) {
    if (session_.has_value()) return absl::FailedPreconditionError("there was a Hello already");
    {
      MutexLock lock(mutex_);
      greeted_ = true;
      hello_timer_.Cancel();
    }
    MILL_ASSIGN_OR_RETURN(
        session_, service_.Open(hello, TransportKind::kGrpc, PeerName(context_->peer()), shared_from_this()));
    return absl::OkStatus();
  }

  Status HandleSegment(const SegmentFrame& frame, const std::vector<Slice>& slices) {
    if (frame.header.slot >= 0) {
      return absl::InvalidArgumentError("segment.header.slot: this connection has no shared ring");
    }
    MILL_ASSIGN_OR_RETURN(const TrajectoryService::Ingest ingest,
                          service_.BeginIngest(*session_, frame.header));
    if (ingest.skip) return absl::OkStatus();
    return service_.EndIngest(ingest, CopyHashed(slices, frame.payload_offset, ingest.memory));
  }

  TrajectoryService& service_;
  LiveCalls<ActorStream>& live_;
  grpc::CallbackServerContext* const context_;  // valid until done_
  ByteBuffer incoming_;                         // gRPC's while reading_
  std::optional<SessionId> session_;            // of whoever handles, and of OnDone

  mutable Mutex mutex_;
  std::deque<ByteBuffer> inbox_ MILL_GUARDED_BY(mutex_);
  bool reading_ MILL_GUARDED_BY(mutex_) = false, handling_ MILL_GUARDED_BY(mutex_) = false,
                input_ended_ MILL_GUARDED_BY(mutex_) = false;
  grpc::Alarm hello_timer_ MILL_GUARDED_BY(mutex_), close_timer_ MILL_GUARDED_BY(mutex_);
  std::deque<LearnerMessage> outgoing_ MILL_GUARDED_BY(mutex_);  // that wait for the one being written
  ByteBuffer written_ MILL_GUARDED_BY(mutex_);
  size_t outgoing_bytes_ MILL_GUARDED_BY(mutex_) = 0;  // of the states in them
  size_t most_outgoing_bytes_ MILL_GUARDED_BY(mutex_) = kMaxOutgoingBytes;
  bool greeted_ MILL_GUARDED_BY(mutex_) = false, writing_ MILL_GUARDED_BY(mutex_) = false;
  bool closed_ MILL_GUARDED_BY(mutex_) = false;  // nothing more is queued or read
  bool finished_ MILL_GUARDED_BY(mutex_) = false, done_ MILL_GUARDED_BY(mutex_) = false;
  Status why_ MILL_GUARDED_BY(mutex_);
  grpc::Status status_ MILL_GUARDED_BY(mutex_);
};

}  // namespace

class TrajectoryServiceGrpc::Impl final : public RawService {
 public:
  Impl(TrajectoryService& trajectories, TrajectoryGrpcOptions options)
      : trajectories_(trajectories), options_(std::move(options)), host_id_(HostId()) {}

  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context, const v1::JoinRequest*,
                                 v1::JoinReply* reply) override {
    reply->set_protocol_min(kOldestProtocol);
    reply->set_protocol_max(kProtocol);
    reply->set_program_version(options_.program_version);
    reply->set_run_id(options_.run_id);
    reply->set_host_id(host_id_);
    reply->set_unix_socket(options_.unix_socket);
    reply->set_no_socket_reason(options_.no_socket_reason);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerBidiReactor<ByteBuffer, ByteBuffer>* Stream(grpc::CallbackServerContext* context) override {
    const auto stream = std::make_shared<ActorStream>(trajectories_, live_, context);
    if (!live_.Add(stream)) stream->Close(absl::UnavailableError("the learner is shutting down"));
    stream->Begin();
    return stream.get();
  }

  void Close() {
    for (const auto& stream : live_.Close()) {
      stream->Close(absl::UnavailableError("the learner is shutting down"));
    }
  }
  bool WaitForNone(std::chrono::steady_clock::time_point deadline) { return live_.WaitForNone(deadline); }

 private:
  TrajectoryService& trajectories_;
  const TrajectoryGrpcOptions options_;
  const std::string host_id_;
  LiveCalls<ActorStream> live_;
};

TrajectoryServiceGrpc::TrajectoryServiceGrpc(TrajectoryService& trajectories, TrajectoryGrpcOptions options)
    : impl_(std::make_unique<Impl>(trajectories, std::move(options))) {}
TrajectoryServiceGrpc::~TrajectoryServiceGrpc() = default;

grpc::Service* TrajectoryServiceGrpc::service() {
  return impl_.get();
}
void TrajectoryServiceGrpc::Close() {
  impl_->Close();
}
bool TrajectoryServiceGrpc::WaitForNone(std::chrono::steady_clock::time_point deadline) {
  return impl_->WaitForNone(deadline);
}

}  // namespace millrace
