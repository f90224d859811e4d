// SocketClaim: the right to listen at a Unix socket's path, for one process at a time. Station: before
// shm_server. Owner: the server. Threads: one.
//
// A socket's path outlives the process that bound it, and a test by connecting would race with another
// learner that starts. So a lock file lies beside the path; the kernel frees the lock with the process,
// and whoever holds it knows that what is at the path was left behind.
#pragma once

#include <string>

#include "common/rpc/unix_socket.h"
#include "common/status.h"

namespace millrace {

class SocketClaim {
 public:
  // AlreadyExists while another process, or another claim of this one, has the path.
  static StatusOr<SocketClaim> Take(const std::string& path);
  SocketClaim(SocketClaim&&) = default;
  SocketClaim& operator=(SocketClaim&&) = delete;
  ~SocketClaim() { Release(); }

  // Removes the sockets and locks of `folder` whose names begin with `prefix` and end with .sock or
  // .sock.lock, and which nobody has a claim to: their processes were killed. How many sockets; what is
  // younger than a minute or can't be removed stays.
  static int SweepAbandoned(const std::string& folder, const std::string& prefix);

  // Listens at the path, where a stale socket is replaced. AlreadyExists when something else is there, or a
  // program that listens without a claim.
  StatusOr<UniqueFd> Listen();
  // Removes the socket, if it was listened on here, and the lock file.
  void Release();

 private:
  SocketClaim(std::string path, UniqueFd lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  std::string path_;
  UniqueFd lock_;
  bool listened_ = false;
};

}  // namespace millrace
