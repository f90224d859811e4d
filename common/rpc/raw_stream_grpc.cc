#include "common/rpc/raw_stream_grpc.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/mutex.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

// Reads until the stream ends.
class Sink : public grpc::ServerGenericBidiReactor {
 public:
  explicit Sink(std::atomic<uint64_t>& bytes) : bytes_(bytes) { StartRead(&message_); }
  void OnReadDone(bool ok) override {
    if (!ok) {
      Finish(grpc::Status::OK);
      return;
    }
    bytes_ += message_.Length();
    message_.Clear();
    StartRead(&message_);
  }
  void OnDone() override { delete this; }

 private:
  std::atomic<uint64_t>& bytes_;
  grpc::ByteBuffer message_;
};

class SinkService : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new Sink(bytes);
  }
  std::atomic<uint64_t> bytes{0};
};

// Writes the same memory until told to stop.
class Source : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Source(grpc::GenericStub& stub, const std::vector<char>& memory) : memory_(memory) {
    stub.PrepareBidiStreamingCall(&context_, "/millrace.bench/Stream", grpc::StubOptions(), this);
    Next();
    StartCall();
  }
  void OnWriteDone(bool ok) override {
    if (ok && !stop_) {
      Next();
    } else {
      StartWritesDone();
    }
  }
  void OnDone(const grpc::Status&) override {
    MutexLock lock(mutex_);
    done_ = true;
    ended_.NotifyAll();
  }
  void Stop() {
    stop_ = true;
    MutexLock lock(mutex_);
    const auto deadline = Clock::now() + std::chrono::seconds(5);
    while (!done_ && Clock::now() < deadline) ended_.WaitFor(mutex_, std::chrono::seconds(1));
    if (!done_) context_.TryCancel();
    while (!done_) ended_.Wait(mutex_);
  }

 private:
  void Next() {
    const grpc::Slice slice(memory_.data(), memory_.size(), grpc::Slice::STATIC_SLICE);
    message_ = grpc::ByteBuffer(&slice, 1);
    StartWrite(&message_);
  }
  const std::vector<char>& memory_;
  grpc::ClientContext context_;
  grpc::ByteBuffer message_;
  std::atomic<bool> stop_{false};
  Mutex mutex_;
  CondVar ended_;
  bool done_ MILL_GUARDED_BY(mutex_) = false;
};

}  // namespace

StatusOr<double> RawGrpcRate(size_t message_bytes, double seconds) {
  SinkService service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterCallbackGenericService(&service);
  builder.SetMaxReceiveMessageSize(-1);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) return absl::UnavailableError("bench: no port on 127.0.0.1");
  const std::vector<char> memory(message_bytes, 'x');
  double rate = 0;
  {
    grpc::GenericStub stub(
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
    Source source(stub, memory);
    Mutex mutex;
    CondVar never;
    const auto wait = [&](double s) {
      const auto until =
          Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
      MutexLock lock(mutex);
      while (Clock::now() < until) never.WaitFor(mutex, until - Clock::now());
    };
    wait(0.2);
    const uint64_t before = service.bytes;
    const auto began = Clock::now();
    wait(seconds);
    rate = static_cast<double>(service.bytes - before) /
           std::chrono::duration<double>(Clock::now() - began).count();
    source.Stop();
  }
  server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(2));
  server->Wait();
  return rate;
}

}  // namespace millrace
