// What every gRPC connection of ours has in common: limits, keepalive, the channel's settings, and gRPC's
// statuses as ours. Station: under every gRPC transport. Owner: none, these are functions; any thread.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/support/channel_arguments.h>
#include <grpcpp/support/slice.h>
#include <grpcpp/support/status.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "common/status.h"

namespace millrace {

// A peer that answers no ping for kKeepaliveTimeout is gone; pings go out after so long without data.
inline constexpr std::chrono::milliseconds kKeepaliveTime{10'000}, kKeepaliveTimeout{5'000};
// HTTP/2: large frames and windows, so that a segment travels in few pieces. The windows are fixed: where
// gRPC 1.51 also estimates them itself (its BDP probe), one transfer of 64 MiB in thirty stood still until
// the next keepalive ping.
inline constexpr int kMaxFrameBytes = 1 << 20, kWindowBytes = 4 << 20;

// A channel with a connection of its own, not shared with other channels of the process: it goes with it.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address);

// The same code and message; a long message is cut.
grpc::Status ToGrpc(const Status& status);
// A call to a learner failed: what that means for who asked for `address`.
Status ExplainFailure(const grpc::Status& status, const std::string& address);

// gRPC's name of a peer, `ipv4:127.0.0.1:9` or `ipv6:%5B::1%5D:9`, for people.
std::string PeerName(std::string peer);

// A slice that keeps `owner` until gRPC is done with `bytes`, which belong to it.
template <typename Owner>
grpc::Slice BorrowingSlice(const std::byte* bytes, size_t size, Owner owner) {
  // gRPC takes memory of others as void*, and only reads it.
  void* memory = const_cast<std::byte*>(bytes);
  return grpc::Slice(
      memory, size, [](void* held) { delete static_cast<Owner*>(held); }, new Owner(std::move(owner)));
}

}  // namespace millrace
