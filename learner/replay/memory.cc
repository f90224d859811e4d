#include "learner/replay/memory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/file_system.h"
#include "common/resource_usage.h"
#include "common/text.h"

namespace millrace {
namespace {

// What a file begins with; the slots follow at kHeadBytes.
constexpr uint64_t kHeadBytes = 4096;
constexpr char kMagic[8] = {'M', 'I', 'L', 'L', 'R', 'P', 'L', '\0'};
constexpr uint32_t kVersion = 1;
struct FileHead {
  char magic[8] = {};
  uint32_t version = 0, layout_bytes = 0;
  uint64_t file_bytes = 0;
  uint64_t check = 0;  // XXH3-64 of the head with this as 0
  char layout[kHeadBytes - 32] = {};
};
static_assert(sizeof(FileHead) == kHeadBytes);

uint64_t CheckOf(FileHead head) {
  head.check = 0;
  return XXH3_64bits(&head, sizeof(head));
}

FileHead HeadOf(const std::string& layout, uint64_t file_bytes) {
  FileHead head;
  std::memcpy(head.magic, kMagic, sizeof(kMagic));
  head.version = kVersion;
  head.layout_bytes = static_cast<uint32_t>(std::min(layout.size(), sizeof(head.layout)));
  head.file_bytes = file_bytes;
  std::memcpy(head.layout, layout.data(), head.layout_bytes);
  head.check = CheckOf(head);
  return head;
}

Status Unusable(int error, const char* action, const std::string& path) {
  return Status(
      FileError(error, action, path).code(),
      Cat("replay.file ", path, ": cannot ", action, " it: ", std::strerror(error), "; name another path"));
}

Status NoRoom(const std::string& path, uint64_t bytes, const std::string& why) {
  return absl::ResourceExhaustedError(Cat("replay.file ", path, " takes ", bytes, " bytes of the disk: ", why,
                                          "; lower replay.capacity, or name a path on another disk"));
}

// Takes the blocks and writes the head; a file that the disk has no room for is empty again.
Status CreateFile(int fd, const std::string& path, const FileHead& head) {
  // Asked first: some file systems fill up all that is left before they refuse.
  struct statvfs disk {};
  if (::fstatvfs(fd, &disk) == 0) {
    const uint64_t free_bytes = uint64_t{disk.f_bavail} * disk.f_frsize;
    if (head.file_bytes > free_bytes) return NoRoom(path, head.file_bytes, Cat(free_bytes, " are free"));
  }
  const int error = ::posix_fallocate(fd, 0, static_cast<off_t>(head.file_bytes));
  if (error != 0) {
    const bool emptied = ::ftruncate(fd, 0) == 0;
    return NoRoom(path, head.file_bytes,
                  Cat(std::strerror(error), emptied ? "" : "; remove what there is of it"));
  }
  if (::pwrite(fd, &head, sizeof(head), 0) != static_cast<ssize_t>(sizeof(head))) {
    return Unusable(errno, "write", path);
  }
  return absl::OkStatus();
}

// That a file which is there already is this replay's.
Status CheckFile(int fd, const std::string& path, uint64_t size, const FileHead& want) {
  FileHead head;
  const ssize_t got = ::pread(fd, &head, sizeof(head), 0);
  if (got < 0) return Unusable(errno, "read", path);
  const std::string where = Cat("replay.file ", path, ": ");
  if (got < static_cast<ssize_t>(sizeof(kMagic)) || std::memcmp(head.magic, kMagic, sizeof(kMagic)) != 0) {
    return absl::InvalidArgumentError(Cat(where, "is no replay file; name another path, or remove it"));
  }
  if (got >= 12 && head.version > kVersion) {
    return absl::FailedPreconditionError(Cat(where, "is of version ", head.version, ", this program reads ",
                                             kVersion, "; use a newer one, or remove the file"));
  }
  if (got < static_cast<ssize_t>(sizeof(head))) {
    return absl::DataLossError(Cat(where, "is cut short: ", size, " bytes; remove it"));
  }
  if (head.check != CheckOf(head)) return absl::DataLossError(Cat(where, "its head is damaged; remove it"));
  const auto text = [](const FileHead& h) { return std::string(h.layout, h.layout_bytes); };
  if (text(head) != text(want) || head.file_bytes != want.file_bytes) {
    return absl::InvalidArgumentError(Cat(where, "is laid out for `", text(head), "`, this run needs `",
                                          text(want), "`; name another path, or remove it"));
  }
  if (size < head.file_bytes) {
    return absl::DataLossError(
        Cat(where, "is cut short: ", size, " of ", head.file_bytes, " bytes; remove it"));
  }
  return absl::OkStatus();
}

}  // namespace

ReplayMemory& ReplayMemory::operator=(ReplayMemory&& other) noexcept {
  std::swap(slots_, other.slots_);
  std::swap(side_, other.side_);
  std::swap(mapped_, other.mapped_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  std::swap(file_, other.file_);
  std::swap(file_bytes_, other.file_bytes_);
  std::swap(file_lock_, other.file_lock_);
  std::swap(made_, other.made_);
  return *this;
}

ReplayMemory::~ReplayMemory() {
  if (mapped_ != nullptr) ::munmap(mapped_, mapped_bytes_);
  if (file_ != nullptr) ::munmap(file_, file_bytes_);
  if (!made_.empty()) ::unlink(made_.c_str());  // while its lock is held
  if (file_lock_ >= 0) ::close(file_lock_);
}

StatusOr<ReplayMemory> ReplayMemory::Make(uint64_t slots, uint64_t side, uint64_t available) {
  const uint64_t aligned = (slots + 63) / 64 * 64;
  const uint64_t bytes = aligned + side;
  constexpr const char* kRemedy = "lower replay.capacity, or set replay.file";
  MILL_RETURN_IF_ERROR(CheckMemory("the replay takes", bytes, available, kRemedy));
  ReplayMemory memory;
  void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    return absl::ResourceExhaustedError(Cat("the replay takes ", bytes, " bytes: ", std::strerror(errno),
                                            "; lower replay.capacity, or set replay.file"));
  }
  memory.mapped_ = static_cast<std::byte*>(mapped);
  memory.mapped_bytes_ = bytes;
  ::madvise(mapped, bytes, MADV_HUGEPAGE);  // only faster where it is refused
  std::memset(mapped, 0, bytes);
  memory.slots_ = memory.mapped_;
  memory.side_ = memory.mapped_ + aligned;
  return memory;
}

StatusOr<ReplayMemory> ReplayMemory::MapFile(const std::string& path, const std::string& layout,
                                             uint64_t slots, uint64_t side, uint64_t available) {
  MILL_ASSIGN_OR_RETURN(ReplayMemory memory, Make(0, side, available));
  const FileHead head = HeadOf(layout, kHeadBytes + slots);
  constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC;
  int fd = ::open(path.c_str(), kFlags | O_EXCL, 0644);
  const bool made = fd >= 0;
  if (fd < 0 && errno == EEXIST) fd = ::open(path.c_str(), kFlags, 0644);
  if (fd < 0) return Unusable(errno, "open", path);
  memory.file_lock_ = fd;
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    return absl::AbortedError(Cat("replay.file ", path, " is in use by another run; name another path"));
  }
  if (made) memory.made_ = path;
  struct stat info {};
  if (::fstat(fd, &info) != 0) return Unusable(errno, "look at", path);
  const auto size = static_cast<uint64_t>(info.st_size);
  MILL_RETURN_IF_ERROR(size == 0 ? CreateFile(fd, path, head) : CheckFile(fd, path, size, head));
  void* mapped = ::mmap(nullptr, head.file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) return Unusable(errno, "map", path);
  memory.file_ = static_cast<std::byte*>(mapped);
  memory.file_bytes_ = head.file_bytes;
  memory.slots_ = memory.file_ + kHeadBytes;
  return memory;
}

}  // namespace millrace
