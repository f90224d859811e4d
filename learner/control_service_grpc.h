// The Control service. Station: beside status_service. Owner: the gRPC server.
//
// A call waits for the learner's thread, so this service is of gRPC's blocking kind: a call has one of gRPC's
// threads to itself, and none of those that carry the data.
#pragma once

#include <memory>

#include "learner/control_target.h"

namespace grpc {
class Service;
}

namespace millrace {

// `target` outlives the server.
std::unique_ptr<grpc::Service> MakeControlServiceGrpc(ControlTarget& target);

}  // namespace millrace
