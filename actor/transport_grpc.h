// The actor's end over gRPC: Trajectory.Stream for messages and segments, Weights.Watch beside it. A segment
// leaves as slices of the caller's memory. Station: as ActorTransport.
//
// Hello opens the one, Ready the other. Messages of both come out of Receive, each stream's in its own order.
#pragma once

#include <memory>
#include <string>

#include "actor/transport.h"

namespace grpc {
class Channel;
}

namespace millrace {

// `channel` has a connection of its own (MakeChannel); `address` is for messages.
std::unique_ptr<ActorTransport> MakeGrpcTransport(std::shared_ptr<grpc::Channel> channel,
                                                  std::string address);

}  // namespace millrace
