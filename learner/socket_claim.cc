#include "learner/socket_claim.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "common/file_system.h"
#include "common/text.h"

namespace millrace {

StatusOr<SocketClaim> SocketClaim::Take(const std::string& path) {
  const std::string name = path + ".lock";
  for (int attempt = 0; attempt < 16; ++attempt) {
    UniqueFd fd(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd) return FileError(errno, "open", name);
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      return absl::AlreadyExistsError(Cat(path, ": another learner serves actors here; choose another path"));
    }
    // Its last owner may have removed it between our open and our lock.
    struct stat ours {
    }, there{};
    if (::fstat(fd.get(), &ours) == 0 && ::stat(name.c_str(), &there) == 0 && ours.st_ino == there.st_ino) {
      return SocketClaim(path, std::move(fd));
    }
  }
  return absl::UnavailableError(Cat(name, ": others take and leave it all the time; choose another path"));
}

StatusOr<UniqueFd> SocketClaim::Listen() {
  struct stat there {};
  if (::lstat(path_.c_str(), &there) == 0) {
    if (!S_ISSOCK(there.st_mode)) {
      return absl::AlreadyExistsError(Cat(path_, ": is no socket; remove it or choose another path"));
    }
    if (ConnectUnix(path_, std::chrono::milliseconds(100)).ok()) {
      return absl::AlreadyExistsError(Cat(path_, ": another program listens here; choose another path"));
    }
    ::unlink(path_.c_str());
  }
  MILL_ASSIGN_OR_RETURN(UniqueFd fd, ListenUnix(path_));
  listened_ = true;
  return fd;
}

void SocketClaim::Release() {
  if (!lock_) return;
  if (listened_) ::unlink(path_.c_str());
  ::unlink((path_ + ".lock").c_str());  // while it is held: see Take
  lock_.Reset();
}

}  // namespace millrace
