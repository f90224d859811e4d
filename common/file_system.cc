#include "common/file_system.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "common/text.h"

namespace millrace {
namespace {

// Closes what it holds; errors of close matter only after writing, and there Close() looks at them.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  bool open() const { return fd_ >= 0; }
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

FileDescriptor OpenRetrying(const std::string& path, int flags, mode_t mode = 0) {
  int fd;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  return FileDescriptor(fd);
}

std::string_view Remedy(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "; free space or choose another folder with --run";
    case EACCES:
    case EPERM:
    case EROFS:
      return "; choose a folder that you may write with --run";
    case EMFILE:
    case ENFILE:
      return "; raise the limit of open files (ulimit -n)";
    default:
      return "";
  }
}

Status WriteAll(int fd, std::string_view data, std::string_view path) {
  while (!data.empty()) {
    const ssize_t n = ::write(fd, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError(errno, "write", path);
    // A regular file takes at least a byte or says why not; zero would loop for ever.
    if (n == 0) return FileError(EIO, "write", path);
    data.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

class PosixFile final : public WritableFile {
 public:
  PosixFile(std::string path, FileDescriptor fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  Status Append(std::string_view data) override { return WriteAll(fd_.get(), data, path_); }

  Status Truncate(uint64_t size) override {
    int rc;
    do {
      rc = ::ftruncate(fd_.get(), static_cast<off_t>(size));
    } while (rc < 0 && errno == EINTR);
    return rc == 0 ? absl::OkStatus() : FileError(errno, "shorten", path_);
  }

  Status Sync() override {
    // Not tried again after an error: the kernel may have dropped the pages, and a second call would say all
    // is well.
    return ::fsync(fd_.get()) == 0 ? absl::OkStatus() : FileError(errno, "sync", path_);
  }

  Status Close() override {
    if (!fd_.open()) return absl::OkStatus();
    // Linux frees the descriptor even when interrupted.
    const bool ok = ::close(fd_.Release()) == 0 || errno == EINTR;
    return ok ? absl::OkStatus() : FileError(errno, "close", path_);
  }

 private:
  const std::string path_;
  FileDescriptor fd_;
};

class PosixLock final : public FileLock {
 public:
  explicit PosixLock(FileDescriptor fd) : fd_(std::move(fd)) {}

 private:
  FileDescriptor fd_;  // flock's lock ends when it is closed, also by a kill
};

}  // namespace

Status FileError(int error, std::string_view action, std::string_view path) {
  absl::StatusCode code = absl::ErrnoToStatusCode(error);
  if (error == EROFS) code = absl::StatusCode::kPermissionDenied;
  return Status(code, Cat("cannot ", action, " ", path, ": ", std::strerror(error), Remedy(error)));
}

StatusOr<std::unique_ptr<WritableFile>> PosixFileSystem::OpenForWrite(const std::string& path,
                                                                      WriteMode mode) {
  // O_APPEND also after a truncation: the next write goes to the new end.
  const int flags = O_WRONLY | O_CREAT | O_APPEND | (mode == WriteMode::kReplace ? O_TRUNC : 0);
  FileDescriptor fd = OpenRetrying(path, flags, 0666);
  if (!fd.open()) return FileError(errno, "open", path);
  return std::make_unique<PosixFile>(path, std::move(fd));
}

StatusOr<std::string> PosixFileSystem::Read(const std::string& path, uint64_t offset, uint64_t length) {
  FileDescriptor fd = OpenRetrying(path, O_RDONLY);
  if (!fd.open()) return FileError(errno, "open", path);
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return FileError(errno, "read", path);
  if (S_ISDIR(info.st_mode)) return FileError(EISDIR, "read", path);
  // Never more memory than the file can fill, whatever the caller asked for.
  const uint64_t size = static_cast<uint64_t>(info.st_size);
  std::string data(offset >= size ? 0 : std::min(length, size - offset), '\0');
  size_t done = 0;
  while (done < data.size()) {
    const ssize_t n =
        ::pread(fd.get(), data.data() + done, data.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError(errno, "read", path);
    if (n == 0) break;  // someone shortened it meanwhile
    done += static_cast<size_t>(n);
  }
  data.resize(done);
  return data;
}

StatusOr<uint64_t> PosixFileSystem::Size(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return FileError(errno, "find", path);
  return static_cast<uint64_t>(info.st_size);
}

Status PosixFileSystem::Rename(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) return FileError(errno, Cat("rename ", from, " to"), to);
  return absl::OkStatus();
}

Status PosixFileSystem::Remove(const std::string& path) {
  return ::unlink(path.c_str()) == 0 ? absl::OkStatus() : FileError(errno, "remove", path);
}

Status PosixFileSystem::SyncDir(const std::string& dir) {
  FileDescriptor fd = OpenRetrying(dir, O_RDONLY | O_DIRECTORY);
  if (!fd.open()) return FileError(errno, "open", dir);
  // Some network file systems have no sync for folders and say EINVAL; the rename is all that they offer.
  if (::fsync(fd.get()) != 0 && errno != EINVAL) return FileError(errno, "sync", dir);
  return absl::OkStatus();
}

StatusOr<std::vector<std::string>> PosixFileSystem::ListDir(const std::string& dir) {
  std::error_code error;
  std::vector<std::string> names;
  std::filesystem::directory_iterator it(dir, error);
  for (; !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error) return FileError(error.value(), "list", dir);
  std::sort(names.begin(), names.end());
  return names;
}

Status PosixFileSystem::CreateDirs(const std::string& dir) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  return error ? FileError(error.value(), "create folder", dir) : absl::OkStatus();
}

StatusOr<std::unique_ptr<FileLock>> PosixFileSystem::Lock(const std::string& path) {
  FileDescriptor fd = OpenRetrying(path, O_RDWR | O_CREAT, 0666);
  if (!fd.open()) return FileError(errno, "open", path);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return FileError(errno, "lock", path);
    char owner[32] = {};
    const ssize_t n = ::pread(fd.get(), owner, sizeof(owner) - 1, 0);
    std::string_view pid(owner, n > 0 ? static_cast<size_t>(n) : 0);
    if (pid.ends_with('\n')) pid.remove_suffix(1);
    return absl::AbortedError(
        Cat("cannot lock ", path, ": another process holds it", pid.empty() ? "" : ", process ", pid));
  }
  // Only a help for the reader of the message above: the lock holds without it, so a full disk is no error
  // here.
  if (::ftruncate(fd.get(), 0) == 0) WriteAll(fd.get(), Cat(::getpid(), "\n"), path).IgnoreError();
  return std::make_unique<PosixLock>(std::move(fd));
}

bool FileExists(FileSystem& fs, const std::string& path) {
  return fs.Size(path).ok();
}

StatusOr<std::string> ReadFile(FileSystem& fs, const std::string& path) {
  return fs.Read(path, 0, UINT64_MAX);
}

std::string JoinPath(std::string_view dir, std::string_view name) {
  if (dir.empty() || dir.back() == '/') return Cat(dir, name);
  return Cat(dir, "/", name);
}

std::string DirName(std::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(slash == 0 ? "/" : path.substr(0, slash));
}

Status WriteFileAtomically(FileSystem& fs, const std::string& path,
                           std::span<const std::string_view> chunks) {
  const std::string temp = Cat(path, kTempSuffix);
  const auto write_temp = [&]() -> Status {
    MILL_ASSIGN_OR_RETURN(auto file, fs.OpenForWrite(temp, FileSystem::WriteMode::kReplace));
    for (std::string_view chunk : chunks) MILL_RETURN_IF_ERROR(file->Append(chunk));
    MILL_RETURN_IF_ERROR(file->Sync());
    MILL_RETURN_IF_ERROR(file->Close());
    return fs.Rename(temp, path);
  };
  if (Status status = write_temp(); !status.ok()) {
    fs.Remove(temp).IgnoreError();  // the first error is the one to report
    return status;
  }
  return fs.SyncDir(DirName(path));
}

Status WriteFileAtomically(FileSystem& fs, const std::string& path, std::string_view data) {
  return WriteFileAtomically(fs, path, std::span<const std::string_view>(&data, 1));
}

}  // namespace millrace
