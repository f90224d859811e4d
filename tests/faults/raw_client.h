// Clients that speak to a learner in bytes of the test's choosing: RawStream by gRPC, RawSocket by the Unix
// socket of shared memory. Owner: the test; one thread each. Station: in the place of an actor's transport.
// Every wait ends after kPatient.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/messages.h"
#include "common/rpc/unix_socket.h"

namespace millrace {

// How the learner ended a connection; both empty: it did not, in time.
struct RawEnd {
  std::optional<Bye> bye;
  grpc::Status status = grpc::Status::OK;  // gRPC only
  bool closed = false;
  // What it said, in either way.
  std::string reason() const;
};

// One Trajectory.Stream.
class RawStream {
 public:
  explicit RawStream(const std::string& address);
  ~RawStream();

  // False when the stream has ended.
  bool Send(const std::string& bytes);
  // The next message; nothing when the stream has ended.
  std::optional<LearnerMessage> Receive();
  // Receives until it is a T, and passes over the rest.
  template <typename T>
  std::optional<T> Await() {
    while (auto message = Receive()) {
      if (auto* wanted = std::get_if<T>(&*message)) return std::move(*wanted);
    }
    return std::nullopt;
  }
  // Sends nothing more, and reads to the end.
  RawEnd Finish();

 private:
  bool Next();

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
};

class RawSocket {
 public:
  explicit RawSocket(const std::string& path);
  // To gRPC's port, as a plain connection of loopback.
  static RawSocket Tcp(uint16_t port);

  // As they are; false when the learner has closed.
  bool SendBytes(const std::string& bytes);
  // As one frame.
  bool SendFrame(const std::string& message);
  // Sends nothing more, and reads to the end.
  RawEnd Finish();

 private:
  explicit RawSocket(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

// Where the learner's Unix socket is; empty: it has none.
std::string UnixSocketOf(const std::string& address);

}  // namespace millrace
