#include "tests/faults/raw_client.h"

#include <arpa/inet.h>
#include <grpcpp/channel.h>
#include <grpcpp/support/byte_buffer.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "common/rpc/channel_grpc.h"
#include "common/rpc/codec.h"
#include "millrace/v1/trajectory.grpc.pb.h"
#include "tests/faults/process.h"

namespace millrace {

std::string RawEnd::reason() const {
  return bye ? bye->reason : status.error_message();
}

RawStream::RawStream(const std::string& address) : stub_(MakeChannel(address)) {
  context_.set_deadline(std::chrono::system_clock::now() + kPatient);
  stream_ = stub_.PrepareCall(&context_, "/millrace.v1.Trajectory/Stream", &queue_);
  stream_->StartCall(nullptr);
  EXPECT_TRUE(Next());
}

RawStream::~RawStream() {
  context_.TryCancel();
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

// One operation is underway at a time, and the call's deadline ends each.
bool RawStream::Next() {
  void* tag = nullptr;
  bool ok = false;
  return queue_.Next(&tag, &ok) && ok;
}

bool RawStream::Send(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  stream_->Write(grpc::ByteBuffer(&slice, 1), nullptr);
  return Next();
}

std::optional<LearnerMessage> RawStream::Receive() {
  grpc::ByteBuffer buffer;
  stream_->Read(&buffer, nullptr);
  grpc::Slice slice;
  if (!Next() || !buffer.DumpToSingleSlice(&slice).ok()) return std::nullopt;
  auto frame = ParseLearnerFrame({reinterpret_cast<const char*>(slice.begin()), slice.size()});
  EXPECT_TRUE(frame.ok()) << frame.status();
  if (!frame.ok() || !std::holds_alternative<LearnerMessage>(*frame)) return std::nullopt;
  return std::get<LearnerMessage>(std::move(*frame));
}

RawEnd RawStream::Finish() {
  RawEnd end;
  stream_->WritesDone(nullptr);
  Next();
  end.bye = Await<Bye>();
  while (Receive()) {
  }
  stream_->Finish(&end.status, nullptr);
  end.closed = Next() && end.status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED;
  return end;
}

RawSocket::RawSocket(const std::string& path) {
  auto fd = ConnectUnix(path, kPatient);
  EXPECT_TRUE(fd.ok()) << fd.status();
  if (fd.ok()) fd_ = *std::move(fd);
}

RawSocket RawSocket::Tcp(uint16_t port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  return RawSocket(std::move(fd));
}

bool RawSocket::SendBytes(const std::string& bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const auto ready = WaitFor(fd_.get(), POLLOUT, std::chrono::steady_clock::now() + kPatient);
    if (!ready.ok() || !*ready) return false;
    const ssize_t n =
        ::send(fd_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN) return false;
    if (n > 0) sent += static_cast<size_t>(n);
  }
  return true;
}

bool RawSocket::SendFrame(const std::string& message) {
  std::string frame;
  for (int byte = 0; byte < 4; ++byte) frame.push_back(static_cast<char>(message.size() >> 8 * byte & 0xff));
  return SendBytes(frame + message);
}

RawEnd RawSocket::Finish() {
  RawEnd end;
  ::shutdown(fd_.get(), SHUT_WR);
  FrameReader reader({size_t{8} << 20, size_t{8} << 20, true});
  const auto until = std::chrono::steady_clock::now() + kPatient;
  while (true) {
    while (true) {
      const auto frame = reader.Next();
      if (!frame.ok() || !*frame) break;
      auto parsed = ParseLearnerFrame((*frame)->bytes);
      reader.Pop();
      if (!parsed.ok()) continue;
      auto* message = std::get_if<LearnerMessage>(&*parsed);
      if (message == nullptr) continue;
      if (auto* bye = std::get_if<Bye>(message)) end.bye = std::move(*bye);
    }
    const auto ready = WaitFor(fd_.get(), POLLIN, until);
    if (!ready.ok() || !*ready) return end;
    if (!reader.Fill(fd_.get()).ok()) break;
  }
  end.closed = true;
  return end;
}

std::string UnixSocketOf(const std::string& address) {
  const auto stub = v1::Trajectory::NewStub(MakeChannel(address));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatient);
  v1::JoinRequest request;
  request.set_protocol_min(kOldestProtocol);
  request.set_protocol_max(kProtocol);
  v1::JoinReply reply;
  const grpc::Status status = stub->Join(&context, request, &reply);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return reply.unix_socket();
}

}  // namespace millrace
