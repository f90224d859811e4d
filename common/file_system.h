// FileSystem: the one seam through which files are written and read, so tests inject full disks, failing
// syncs and crashes (common/testing/faulty_file_system.h) instead of hoping for them. Owner: the run (cli)
// makes one PosixFileSystem and lends it to whatever writes the run's folder. Threads: PosixFileSystem holds
// no state and may be shared; a WritableFile belongs to one thread at a time. Every error names the path,
// what the system said, and a remedy where there is one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace millrace {

// An open file. The destructor closes it and drops the error; who cares about the data calls Sync and Close.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  // Writes all of `data` at the end of the file, unbuffered: in one system call unless the system takes less.
  [[nodiscard]] virtual Status Append(std::string_view data) = 0;
  // Cuts the file to `size` bytes; later appends go on there.
  [[nodiscard]] virtual Status Truncate(uint64_t size) = 0;
  // Returns when the data is on the disk.
  [[nodiscard]] virtual Status Sync() = 0;
  [[nodiscard]] virtual Status Close() = 0;
};

// Holds a lock file until destroyed. The file itself stays: removing it would race with the next owner.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

class FileSystem {
 public:
  enum class WriteMode : uint8_t {
    kReplace,  // empties what is there
    kAppend,   // goes on at the end; creates the file where it is missing
  };

  virtual ~FileSystem() = default;
  [[nodiscard]] virtual StatusOr<std::unique_ptr<WritableFile>> OpenForWrite(const std::string& path,
                                                                             WriteMode mode) = 0;
  // Bytes [offset, offset + length), or fewer where the file ends before.
  [[nodiscard]] virtual StatusOr<std::string> Read(const std::string& path, uint64_t offset,
                                                   uint64_t length) = 0;
  // NotFound where there is no such file or folder.
  [[nodiscard]] virtual StatusOr<uint64_t> Size(const std::string& path) = 0;
  [[nodiscard]] virtual Status Rename(const std::string& from, const std::string& to) = 0;
  [[nodiscard]] virtual Status Remove(const std::string& path) = 0;
  // Makes the names in a folder durable: a rename survives a power cut only after this.
  [[nodiscard]] virtual Status SyncDir(const std::string& dir) = 0;
  // Names without "." and "..", sorted.
  [[nodiscard]] virtual StatusOr<std::vector<std::string>> ListDir(const std::string& dir) = 0;
  // Creates the folder and its parents; one that exists is fine.
  [[nodiscard]] virtual Status CreateDirs(const std::string& dir) = 0;
  // An exclusive lock that ends with the process. Aborted where another one holds it, with its process id.
  [[nodiscard]] virtual StatusOr<std::unique_ptr<FileLock>> Lock(const std::string& path) = 0;
};

class PosixFileSystem final : public FileSystem {
 public:
  StatusOr<std::unique_ptr<WritableFile>> OpenForWrite(const std::string& path, WriteMode mode) override;
  StatusOr<std::string> Read(const std::string& path, uint64_t offset, uint64_t length) override;
  StatusOr<uint64_t> Size(const std::string& path) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Status Remove(const std::string& path) override;
  Status SyncDir(const std::string& dir) override;
  StatusOr<std::vector<std::string>> ListDir(const std::string& dir) override;
  Status CreateDirs(const std::string& dir) override;
  StatusOr<std::unique_ptr<FileLock>> Lock(const std::string& path) override;
};

// "cannot <action> <path>: <strerror>; <remedy>", with the status code that fits the errno.
Status FileError(int error, std::string_view action, std::string_view path);

bool FileExists(FileSystem& fs, const std::string& path);
StatusOr<std::string> ReadFile(FileSystem& fs, const std::string& path);
std::string JoinPath(std::string_view dir, std::string_view name);
std::string DirName(std::string_view path);

// What a file being written is called until it is complete.
inline constexpr std::string_view kTempSuffix = ".tmp";

// Replaces `path` by the chunks laid end to end: temp file, sync, rename, folder sync. A crash or an error at
// any moment leaves either the old file or the new one, never a mixture; after an error the temp file is
// gone.
[[nodiscard]] Status WriteFileAtomically(FileSystem& fs, const std::string& path,
                                         std::span<const std::string_view> chunks);
[[nodiscard]] Status WriteFileAtomically(FileSystem& fs, const std::string& path, std::string_view data);

}  // namespace millrace
