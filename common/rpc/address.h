// Addresses of learners: host:port as text, what may be listened on, and whether two processes share a host.
// Station: before every connection. Owner: none, these are functions; any thread. Looking up a name may
// take as long as the resolver takes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/status.h"

namespace millrace {

struct HostPort {
  std::string host;  // without the brackets of IPv6
  uint16_t port = 0;
};

// `host:port`, `[v6]:port`. InvalidArgument otherwise.
StatusOr<HostPort> ParseAddress(std::string_view address);
std::string FormatAddress(const HostPort& address);

// Every address that the name stands for is of this host alone. InvalidArgument when the name is unknown.
StatusOr<bool> IsLoopback(const HostPort& address);

// Whether a server could listen there at this moment; InvalidArgument with the reason when not (in use, not
// of this machine, not allowed). gRPC itself tells no reason.
Status CheckCanListen(const HostPort& address);

// The kernel's boot id: equal for all processes of one host, containers included. Empty where there is none.
std::string HostId();

}  // namespace millrace
