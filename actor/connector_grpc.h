// The connector of an actor process: asks the learner what it serves (Join), takes shared memory where both
// are on one host and it works, gRPC otherwise. Station: before every transport that leaves the process.
#pragma once

#include <memory>
#include <string>

#include "actor/transport.h"
#include "common/options.h"

namespace millrace {

struct ConnectorOptions {
  std::string learner;  // host:port
  TransportChoice transport = TransportChoice::kAuto;
  std::string program_version;
};

// InvalidArgument when the address is malformed.
StatusOr<std::unique_ptr<ActorConnector>> MakeConnector(const ConnectorOptions& options);

}  // namespace millrace
