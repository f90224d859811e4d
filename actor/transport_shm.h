// The actor's end of the shared-memory transport: control messages and weights over a Unix socket, segments
// in a ring of slots that the learner made and passed as a descriptor. Station: as ActorTransport.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "actor/transport.h"

namespace millrace {

// Unavailable naming the path when nobody listens there, PermissionDenied when it may not be opened.
StatusOr<std::unique_ptr<ActorTransport>> ConnectSharedMemory(const std::string& socket_path,
                                                              std::chrono::milliseconds deadline);

}  // namespace millrace
