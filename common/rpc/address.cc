#include "common/rpc/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <memory>

#include "common/text.h"

namespace millrace {
namespace {

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

StatusOr<Addresses> Resolve(const HostPort& address) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(address.host.c_str(), Cat(address.port).c_str(), &hints, &list);
  if (error != 0) {
    return absl::InvalidArgumentError(
        Cat(FormatAddress(address), ": the host's name is not known here: ", gai_strerror(error)));
  }
  return Addresses(list);
}

bool OfLoopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    return (ntohl(v4->sin_addr.s_addr) >> 24) == 127;
  }
  if (address->sa_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
  }
  return false;
}

// 0, or why a server can't listen there.
int TryToListen(const addrinfo& address) {
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  const int on = 1;  // as gRPC does: connections of a server that is gone do not count
  int error = 0;
  if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      bind(fd, address.ai_addr, address.ai_addrlen) != 0 || listen(fd, 1) != 0) {
    error = errno;
  }
  close(fd);
  return error;
}

}  // namespace

StatusOr<HostPort> ParseAddress(std::string_view address) {
  const size_t colon = address.rfind(':');
  const auto malformed = [&] {
    return absl::InvalidArgumentError(
        Cat("\"", address, "\" is no address; write host:port, such as 127.0.0.1:7070"));
  };
  if (colon == std::string_view::npos || colon == 0) return malformed();
  HostPort parsed;
  std::string_view host = address.substr(0, colon);
  const std::string_view port = address.substr(colon + 1);
  if (host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return malformed();  // IPv6 without brackets
  }
  if (host.empty() || host.find_first_of(" /[]%\t\n") != std::string_view::npos) return malformed();
  parsed.host = host;
  const auto result = std::from_chars(port.data(), port.data() + port.size(), parsed.port);
  if (result.ec != std::errc() || result.ptr != port.data() + port.size()) return malformed();
  return parsed;
}

std::string FormatAddress(const HostPort& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return v6 ? Cat("[", address.host, "]:", address.port) : Cat(address.host, ":", address.port);
}

StatusOr<bool> IsLoopback(const HostPort& address) {
  MILL_ASSIGN_OR_RETURN(const Addresses list, Resolve(address));
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    if (!OfLoopback(entry->ai_addr)) return false;
  }
  return true;
}

Status CheckCanListen(const HostPort& address) {
  MILL_ASSIGN_OR_RETURN(const Addresses list, Resolve(address));
  int error = 0;
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    const int failed = TryToListen(*entry);
    if (failed == 0) return absl::OkStatus();  // a host may lack one of the two families
    if (error != EADDRINUSE) error = failed;
  }
  const std::string where = FormatAddress(address);
  switch (error) {
    case EADDRINUSE:
      return absl::InvalidArgumentError(
          Cat(where, " is in use by another process; choose another port, or 0"));
    case EADDRNOTAVAIL:
      return absl::InvalidArgumentError(Cat(where, " is no address of this machine"));
    case EACCES:
      return absl::InvalidArgumentError(Cat(where, ": this user may not listen on that port"));
    default:
      return absl::InvalidArgumentError(Cat(where, " can't be listened on: ", std::strerror(error)));
  }
}

std::string HostId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id;
}

}  // namespace millrace
