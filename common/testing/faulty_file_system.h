// FaultyFileSystem: a FileSystem for tests that passes everything on to another one until a planned fault
// strikes. Owner: the test. Threads: one.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/file_system.h"

namespace millrace {

class FaultyFileSystem final : public FileSystem {
 public:
  static constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

  struct Faults {
    uint64_t disk_bytes =
        kNever;  // bytes that still fit; the write that passes them is torn and fails (ENOSPC)
    uint64_t operations =
        kNever;  // changing calls until "the process is killed": all later ones do nothing and fail
    bool sync_fails = false;      // EIO
    bool sync_dir_fails = false;  // EIO
    bool rename_fails = false;    // EIO
    bool torn_rename =
        false;             // the new name appears, but half of the data is lost (a disk that lied on fsync)
    int create_error = 0;  // errno of CreateDirs, OpenForWrite and Lock
  };

  explicit FaultyFileSystem(FileSystem& base) : base_(base) {}

  Faults faults;
  uint64_t operations_done = 0;  // changing calls so far
  uint64_t bytes_written = 0;

  StatusOr<std::unique_ptr<WritableFile>> OpenForWrite(const std::string& path, WriteMode mode) override {
    MILL_RETURN_IF_ERROR(Count("open", path));
    if (faults.create_error != 0) return FileError(faults.create_error, "open", path);
    MILL_ASSIGN_OR_RETURN(auto file, base_.OpenForWrite(path, mode));
    return std::make_unique<File>(*this, path, std::move(file));
  }
  StatusOr<std::string> Read(const std::string& path, uint64_t offset, uint64_t length) override {
    return base_.Read(path, offset, length);
  }
  StatusOr<uint64_t> Size(const std::string& path) override { return base_.Size(path); }
  Status Rename(const std::string& from, const std::string& to) override {
    MILL_RETURN_IF_ERROR(Count("rename", to));
    if (faults.rename_fails) return FileError(EIO, "rename", to);
    if (faults.torn_rename) {
      MILL_ASSIGN_OR_RETURN(const uint64_t size, base_.Size(from));
      MILL_ASSIGN_OR_RETURN(auto file, base_.OpenForWrite(from, WriteMode::kAppend));
      MILL_RETURN_IF_ERROR(file->Truncate(size / 2));
    }
    return base_.Rename(from, to);
  }
  Status Remove(const std::string& path) override {
    MILL_RETURN_IF_ERROR(Count("remove", path));
    return base_.Remove(path);
  }
  Status SyncDir(const std::string& dir) override {
    MILL_RETURN_IF_ERROR(Count("sync", dir));
    return faults.sync_dir_fails ? FileError(EIO, "sync", dir) : base_.SyncDir(dir);
  }
  StatusOr<std::vector<std::string>> ListDir(const std::string& dir) override { return base_.ListDir(dir); }
  Status CreateDirs(const std::string& dir) override {
    MILL_RETURN_IF_ERROR(Count("create folder", dir));
    return faults.create_error != 0 ? FileError(faults.create_error, "create folder", dir)
                                    : base_.CreateDirs(dir);
  }
  StatusOr<std::unique_ptr<FileLock>> Lock(const std::string& path) override {
    MILL_RETURN_IF_ERROR(Count("lock", path));
    if (faults.create_error != 0) return FileError(faults.create_error, "lock", path);
    return base_.Lock(path);
  }

 private:
  class File final : public WritableFile {
   public:
    File(FaultyFileSystem& fs, std::string path, std::unique_ptr<WritableFile> file)
        : fs_(fs), path_(std::move(path)), file_(std::move(file)) {}
    Status Append(std::string_view data) override {
      MILL_RETURN_IF_ERROR(fs_.Count("write", path_));
      const uint64_t room = fs_.faults.disk_bytes;
      const uint64_t n = std::min<uint64_t>(room, data.size());
      if (room != kNever) fs_.faults.disk_bytes -= n;
      fs_.bytes_written += n;
      MILL_RETURN_IF_ERROR(file_->Append(data.substr(0, n)));
      return n < data.size() ? FileError(ENOSPC, "write", path_) : absl::OkStatus();
    }
    Status Truncate(uint64_t size) override {
      MILL_RETURN_IF_ERROR(fs_.Count("shorten", path_));
      return file_->Truncate(size);
    }
    Status Sync() override {
      MILL_RETURN_IF_ERROR(fs_.Count("sync", path_));
      return fs_.faults.sync_fails ? FileError(EIO, "sync", path_) : file_->Sync();
    }
    Status Close() override { return file_->Close(); }

   private:
    FaultyFileSystem& fs_;
    const std::string path_;
    std::unique_ptr<WritableFile> file_;
  };

  Status Count(std::string_view action, const std::string& path) {
    if (operations_done >= faults.operations) return FileError(EINTR, action, path);
    ++operations_done;
    return absl::OkStatus();
  }

  FileSystem& base_;
};

}  // namespace millrace
