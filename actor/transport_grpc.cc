#include "actor/transport_grpc.h"

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>

#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "common/rpc/channel_grpc.h"
#include "common/rpc/codec.h"
#include "common/rpc/weights_codec.h"
#include "common/text.h"
#include "millrace/v1/weights.pb.h"

namespace millrace {
namespace {

using grpc::ByteBuffer;
using std::chrono::milliseconds;

// What a stream has read and nobody has received: it stops reading beyond this, and HTTP/2's window then
// holds the learner back.
constexpr size_t kMaxInboxBytes = size_t{8} << 20;
// A connection that is torn down lets go of its memory at once, unless a write stands in a full socket of a
// frozen peer: then the kernel gives up after kKeepaliveTimeout.
constexpr milliseconds kReleasePatience = 3 * kKeepaliveTimeout;

ByteBuffer BufferOf(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return ByteBuffer(&slice, 1);
}

std::string_view View(const grpc::Slice& slice) {
  return {reinterpret_cast<const char*>(slice.begin()), slice.size()};
}

// The whole message as one piece; it may be in one already.
StatusOr<std::string_view> Whole(const ByteBuffer& buffer, grpc::Slice& slice) {
  if (buffer.TrySingleSlice(&slice).ok() || buffer.DumpToSingleSlice(&slice).ok()) return View(slice);
  return absl::InvalidArgumentError("message: can't be read");
}

// How many segments gRPC still holds.
class Lent {
 public:
  void Add() {
    MutexLock lock(mutex_);
    ++count_;
  }
  void Return() {
    MutexLock lock(mutex_);
    if (--count_ == 0) none_.NotifyAll();
  }
  bool WaitForNone(milliseconds patience) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    MutexLock lock(mutex_);
    while (count_ > 0) {
      const auto left = deadline - std::chrono::steady_clock::now();
      if (left <= left.zero()) return false;
      none_.WaitFor(mutex_, left);
    }
    return true;
  }

 private:
  Mutex mutex_;
  CondVar none_;
  int count_ MILL_GUARDED_BY(mutex_) = 0;
};

// Calls `released` when gRPC drops the slice that owns it, and counts it among the lent until then.
class Loan {
 public:
  Loan(std::shared_ptr<Lent> lent, std::function<void()> released)
      : lent_(std::move(lent)), released_(std::move(released)) {
    lent_->Add();
  }
  ~Loan() {
    if (released_) released_();
    lent_->Return();
  }
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

 private:
  const std::shared_ptr<Lent> lent_;
  const std::function<void()> released_;
};

class GrpcTransport;

// One bidirectional call of raw messages. Its fields are guarded by the transport's mutex, but no operation
// is started with it held: gRPC may drop slices meanwhile, and so call `released`, which is the caller's
// code. Instead an operation is claimed under the lock, which also adds a hold, so that the call can't end
// before the operation was started. `held_` is one more hold, from Start until nothing will be claimed any
// more.
class RawStream final : public grpc::ClientBidiReactor<ByteBuffer, ByteBuffer> {
 public:
  using Parse = StatusOr<LearnerFrame> (*)(std::string_view);
  RawStream(GrpcTransport& owner, Parse parse) : owner_(owner), parse_(parse) { context_.emplace(); }

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  friend class GrpcTransport;

  bool ClaimRead() {
    if (!held_ || reading_ || inbox_bytes_ >= kMaxInboxBytes) return false;
    AddHold();
    return reading_ = true;
  }
  void ReadClaimed() {
    StartRead(&incoming_);
    RemoveHold();
  }
  // What to write next; null when there is nothing, or a write is underway.
  ByteBuffer* ClaimWrite() {
    if (!held_ || writing_ || outgoing_.empty()) return nullptr;
    AddHold();
    writing_ = true;
    return &outgoing_.front();
  }
  void WriteClaimed(ByteBuffer* buffer) {
    StartWrite(buffer);
    RemoveHold();
  }

  GrpcTransport& owner_;
  const Parse parse_;
  std::optional<grpc::ClientContext> context_;
  ByteBuffer incoming_;
  std::deque<ByteBuffer> outgoing_;  // bounded by the learner's credits
  size_t inbox_bytes_ = 0;
  bool started_ = false, held_ = false, reading_ = false, writing_ = false, done_ = false;
};

class GrpcTransport final : public ActorTransport {
 public:
  GrpcTransport(std::shared_ptr<grpc::Channel> channel, std::string address)
      : address_(std::move(address)),
        channel_(std::move(channel)),
        stub_(std::make_unique<grpc::GenericStub>(channel_)),
        trajectory_(*this, ParseLearnerFrame),
        weights_(*this, ParseWeightsFrame) {}
  ~GrpcTransport() override { Close(); }

  TransportKind kind() const override { return TransportKind::kGrpc; }
  std::byte* Slot(int32_t) override { return nullptr; }

  Status Send(const ActorMessage& message) override {
    if (const auto* hello = std::get_if<Hello>(&message)) Open(*hello);
    const Status sent = Write(trajectory_, BufferOf(Encode(message)));
    if (sent.ok() && std::holds_alternative<Ready>(message)) WatchWeights();
    return sent;
  }
  Status SendSegment(const SegmentHeader& header, const std::byte* payload,
                     std::function<void()> released) override;
  StatusOr<LearnerMessage> Receive(milliseconds timeout) override;
  void Close() override;

 private:
  friend class RawStream;
  struct Received {
    RawStream* stream;
    LearnerMessage message;
    size_t bytes;
  };

  void Open(const Hello& hello);
  void WatchWeights();
  void Start(RawStream& stream, const char* method) MILL_REQUIRES(mutex_);
  Status Write(RawStream& stream, ByteBuffer buffer);
  // The connection is lost; the first reason stays. Not from a thread that may outlive the streams.
  void Fail(const Status& why);

  void ReadDone(RawStream& stream, bool ok);
  void WriteDone(RawStream& stream, bool ok);
  void Done(RawStream& stream, const grpc::Status& status);

  const std::string address_;
  const std::shared_ptr<Lent> lent_ = std::make_shared<Lent>();
  Mutex mutex_;
  CondVar changed_;
  std::shared_ptr<grpc::Channel> channel_ MILL_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::GenericStub> stub_ MILL_GUARDED_BY(mutex_);
  std::deque<Received> inbox_ MILL_GUARDED_BY(mutex_);
  Status failed_ MILL_GUARDED_BY(mutex_);
  std::string actor_ MILL_GUARDED_BY(mutex_);  // its name
  bool closed_ MILL_GUARDED_BY(mutex_) = false;
  RawStream trajectory_, weights_;
};

void RawStream::OnReadDone(bool ok) {
  owner_.ReadDone(*this, ok);
}
void RawStream::OnWriteDone(bool ok) {
  owner_.WriteDone(*this, ok);
}
void RawStream::OnDone(const grpc::Status& status) {
  owner_.Done(*this, status);
}

void GrpcTransport::Open(const Hello& hello) {
  MutexLock lock(mutex_);
  if (closed_ || trajectory_.started_) return;
  actor_ = hello.actor;
  Start(trajectory_, "/millrace.v1.Trajectory/Stream");
}

// Not before: who is not ready has no place for them, and could only let them pass.
void GrpcTransport::WatchWeights() {
  v1::WatchWeightsRequest request;
  {
    MutexLock lock(mutex_);
    if (closed_ || !failed_.ok() || weights_.started_) return;
    request.set_actor(actor_);
    Start(weights_, "/millrace.v1.Weights/Watch");
  }
  static_cast<void>(Write(weights_, BufferOf(request.SerializeAsString())));
}

// Under the lock, for nothing has been lent yet.
void GrpcTransport::Start(RawStream& stream, const char* method) {
  stub_->PrepareBidiStreamingCall(&*stream.context_, method, grpc::StubOptions(), &stream);
  stream.started_ = stream.held_ = true;
  stream.AddHold();
  if (stream.ClaimRead()) stream.ReadClaimed();
  stream.StartCall();
}

Status GrpcTransport::Write(RawStream& stream, ByteBuffer buffer) {
  ByteBuffer* claimed = nullptr;
  {
    MutexLock lock(mutex_);
    if (closed_) return absl::CancelledError("the transport is closed");
    if (!failed_.ok()) return failed_;
    MILL_CHECK(stream.started_);  // Hello comes first
    if (!stream.held_) return absl::UnavailableError(Cat(address_, ": the connection has ended"));
    stream.outgoing_.push_back(std::move(buffer));
    claimed = stream.ClaimWrite();
  }
  if (claimed != nullptr) stream.WriteClaimed(claimed);
  return absl::OkStatus();
}

Status GrpcTransport::SendSegment(const SegmentHeader& header, const std::byte* payload,
                                  std::function<void()> released) {
  auto loan = std::make_unique<Loan>(lent_, std::move(released));
  const grpc::Slice slices[] = {grpc::Slice(EncodeSegmentPrefix(header)),
                                BorrowingSlice(payload, header.bytes, std::move(loan))};
  return Write(trajectory_, ByteBuffer(slices, 2));
}

void GrpcTransport::ReadDone(RawStream& stream, bool ok) {
  std::optional<LearnerMessage> message;
  const size_t bytes = stream.incoming_.Length();
  if (ok) {
    grpc::Slice slice;
    const auto whole = Whole(stream.incoming_, slice);
    StatusOr<LearnerFrame> frame = whole.ok() ? stream.parse_(*whole) : whole.status();
    if (!frame.ok()) {
      Fail(absl::UnavailableError(Cat(address_, ": the learner sent garbage: ", frame.status().message())));
    } else if (auto* known = std::get_if<LearnerMessage>(&*frame)) {
      message = std::move(*known);
    }
  }
  stream.incoming_.Clear();
  bool read = false, release = false;
  {
    MutexLock lock(mutex_);
    stream.reading_ = false;
    if (message.has_value() && !closed_) {
      inbox_.push_back({&stream, std::move(*message), bytes});
      stream.inbox_bytes_ += bytes;
      changed_.NotifyAll();
    }
    if (!ok) release = std::exchange(stream.held_, false);
    read = stream.ClaimRead();
  }
  if (read) stream.ReadClaimed();
  if (release) stream.RemoveHold();
}

void GrpcTransport::WriteDone(RawStream& stream, bool ok) {
  std::deque<ByteBuffer> spent;  // dropped without the lock
  ByteBuffer* claimed = nullptr;
  {
    MutexLock lock(mutex_);
    stream.writing_ = false;
    if (ok) {
      spent.push_back(std::move(stream.outgoing_.front()));
      stream.outgoing_.pop_front();
      claimed = stream.ClaimWrite();
    } else {
      spent.swap(stream.outgoing_);
    }
  }
  if (claimed != nullptr) stream.WriteClaimed(claimed);
  if (ok && &stream == &weights_) stream.StartWritesDone();  // the request was all there is
}

void GrpcTransport::Done(RawStream& stream, const grpc::Status& status) {
  // Weights that end in order are the end of a learner, of which the other stream knows more.
  if (!status.ok()) {
    Fail(absl::UnavailableError(Cat(address_, ": the connection is lost: ", status.error_message())));
  } else if (&stream == &trajectory_) {
    Fail(absl::UnavailableError(Cat(address_, ": the learner ended the stream")));
  }
  std::deque<ByteBuffer> unsent;
  MutexLock lock(mutex_);
  unsent.swap(stream.outgoing_);
  stream.done_ = true;  // from here on Close may go on, and all of this away
  changed_.NotifyAll();
}

void GrpcTransport::Fail(const Status& why) {
  {
    MutexLock lock(mutex_);
    if (!failed_.ok()) return;
    failed_ = why;
    changed_.NotifyAll();
    if (!trajectory_.started_) return;
  }
  trajectory_.context_->TryCancel();
  weights_.context_->TryCancel();
}

StatusOr<LearnerMessage> GrpcTransport::Receive(milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  Received received;
  bool read = false;
  {
    MutexLock lock(mutex_);
    while (!closed_ && inbox_.empty() && failed_.ok()) {
      const auto left = deadline - std::chrono::steady_clock::now();
      if (left <= left.zero()) return absl::DeadlineExceededError("no message from the learner in time");
      changed_.WaitFor(mutex_, left);
    }
    if (closed_) return absl::CancelledError("the transport is closed");
    if (inbox_.empty()) return failed_;
    received = std::move(inbox_.front());
    inbox_.pop_front();
    received.stream->inbox_bytes_ -= received.bytes;
    read = received.stream->ClaimRead();
  }
  if (read) received.stream->ReadClaimed();
  return std::move(received.message);
}

void GrpcTransport::Close() {
  std::vector<RawStream*> release;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    changed_.NotifyAll();
    for (RawStream* stream : {&trajectory_, &weights_}) {
      if (std::exchange(stream->held_, false)) release.push_back(stream);
    }
  }
  // A stream that this call holds is still there to be cancelled.
  for (RawStream* stream : release) stream->context_->TryCancel();
  for (RawStream* stream : release) stream->RemoveHold();
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<grpc::GenericStub> stub;
  {
    // Calls that were cancelled end by themselves, whatever the peer does.
    MutexLock lock(mutex_);
    for (RawStream* stream : {&trajectory_, &weights_}) {
      while (stream->started_ && !stream->done_) changed_.Wait(mutex_);
    }
    channel = std::move(channel_);
    stub = std::move(stub_);
  }
  if (channel == nullptr) return;
  // With the last of these the connection goes, and with it what was being written.
  for (RawStream* stream : {&trajectory_, &weights_}) stream->context_.reset();
  stub.reset();
  channel.reset();
  static_cast<void>(lent_->WaitForNone(kReleasePatience));
}

}  // namespace

std::unique_ptr<ActorTransport> MakeGrpcTransport(std::shared_ptr<grpc::Channel> channel,
                                                  std::string address) {
  return std::make_unique<GrpcTransport>(std::move(channel), std::move(address));
}

}  // namespace millrace
