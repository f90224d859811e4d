// The actor's end of the shared-memory transport: control messages and weights over a Unix socket, segments
// in a ring of slots that the learner made and passed as a descriptor. Station: as ActorTransport.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "actor/transport.h"

namespace millrace {

// How long a learner may take nothing from the socket while something waits to be written; as long as gRPC's
// keepalive waits in all.
inline constexpr std::chrono::milliseconds kWritePatience{15'000};

// Unavailable naming the path when nobody listens there, PermissionDenied when it may not be opened. A
// learner that takes nothing for `write_patience` while something is to be written is given up: Unavailable
// from then on.
StatusOr<std::unique_ptr<ActorTransport>> ConnectSharedMemory(
    const std::string& socket_path, std::chrono::milliseconds deadline,
    std::chrono::milliseconds write_patience = kWritePatience);

}  // namespace millrace
