#include "common/rpc/channel_grpc.h"

#include "common/messages.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <utility>

#include "common/text.h"

namespace millrace {

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address) {
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(static_cast<int>(kMaxFromLearnerBytes));
  args.SetMaxSendMessageSize(-1);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(kKeepaliveTime.count()));
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, static_cast<int>(kKeepaliveTimeout.count()));
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  args.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kMaxFrameBytes);
  args.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kWindowBytes);
  args.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);     // they would hold on to what was sent
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // a learner is reached directly
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), args);
}

grpc::Status ToGrpc(const Status& status) {
  // It travels as a header, all of which have 8 KiB together, with up to three bytes for one.
  constexpr size_t kMaxMessageBytes = 2000;
  const std::string message(status.message().substr(0, kMaxMessageBytes));
  return {static_cast<grpc::StatusCode>(status.code()), message};
}

Status ExplainFailure(const grpc::Status& status, const std::string& address) {
  const std::string& message = status.error_message();
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
      if (message.find("Connection refused") != std::string::npos) {
        return absl::UnavailableError(Cat(address, ": nobody listens there (connection refused)"));
      }
      return absl::UnavailableError(Cat(address, ": no connection: ", message));
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return absl::DeadlineExceededError(Cat(address, ": no answer in time"));
    case grpc::StatusCode::UNIMPLEMENTED:
      return absl::FailedPreconditionError(
          Cat(address, ": a gRPC server answers there, but it is no Millrace learner"));
    default:
      return Status(static_cast<absl::StatusCode>(status.error_code()), Cat(address, ": ", message));
  }
}

std::string PeerName(std::string peer) {
  const size_t colon = peer.find(':');
  if (colon != std::string::npos && peer.compare(0, 2, "ip") == 0) peer.erase(0, colon + 1);
  for (const auto& code : {std::pair("%5B", "["), std::pair("%5D", "]")}) {
    const size_t at = peer.find(code.first);
    if (at != std::string::npos) peer.replace(at, 3, code.second);
  }
  return peer;
}

}  // namespace millrace
