#include "learner/socket_claim.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <set>

#include "common/file_system.h"
#include "common/text.h"

namespace millrace {
namespace {

// Made so recently that its maker may be about to lock it: to take it now would be to take it from somebody.
bool IsYoung(const std::string& lock) {
  constexpr std::chrono::seconds kYoung{60};
  std::error_code missing;
  const auto made = std::filesystem::last_write_time(lock, missing);
  return !missing && std::filesystem::file_time_type::clock::now() - made < kYoung;
}

}  // namespace

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

int SocketClaim::SweepAbandoned(const std::string& folder, const std::string& prefix) {
  std::set<std::string> paths;
  std::error_code unreadable;
  for (const auto& entry : std::filesystem::directory_iterator(folder, unreadable)) {
    std::string name = entry.path().filename().string();
    if (name.ends_with(".lock")) name.resize(name.size() - 5);
    if (name.starts_with(prefix) && name.ends_with(".sock")) paths.insert(JoinPath(folder, name));
  }
  int swept = 0;
  for (const std::string& path : paths) {
    if (IsYoung(path + ".lock")) continue;
    StatusOr<SocketClaim> claim = Take(path);
    struct stat there {};
    if (!claim.ok() || ::lstat(path.c_str(), &there) != 0) continue;  // a lock alone goes with the claim
    claim->listened_ = S_ISSOCK(there.st_mode) && there.st_uid == ::geteuid();
    swept += claim->listened_ ? 1 : 0;
  }
  return swept;
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
