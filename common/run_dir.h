// The folder of one run: made, locked against a second process, and its small files written whole.
//   config.yaml  metrics.jsonl  summary.json  checkpoints/  events.out.tfevents.*  lock
// Owner: the command that trains (cli). Threads: one. Station: around the loop.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>

#include "common/file_system.h"
#include "common/status.h"

namespace millrace {

// runs/<name>-<seed>-<YYYYmmdd-HHMMSS>, with -2, -3 ... behind it where that is taken.
std::string DefaultRunDir(FileSystem& fs, std::string_view name, uint64_t seed, const std::tm& local_time);

class RunDir {
 public:
  // A new run in `path`, which must be missing or empty. Errors name the path and what to do instead:
  // InvalidArgument for a file in its way, AlreadyExists for a run or other files in it, PermissionDenied,
  // Aborted where another process has it.
  static StatusOr<RunDir> Create(FileSystem& fs, std::string path);
  // The run that is in `path` goes on. NotFound where there is none (a run has a config.yaml); Aborted as
  // above.
  static StatusOr<RunDir> Resume(FileSystem& fs, std::string path);

  const std::string& path() const { return path_; }
  std::string config_path() const { return JoinPath(path_, "config.yaml"); }
  std::string metrics_path() const { return JoinPath(path_, "metrics.jsonl"); }
  std::string summary_path() const { return JoinPath(path_, "summary.json"); }
  std::string checkpoints_dir() const { return JoinPath(path_, "checkpoints"); }

  // Both replace the file as a whole.
  Status WriteConfig(std::string_view yaml) { return WriteFileAtomically(*fs_, config_path(), yaml); }
  Status WriteSummary(std::string_view json) { return WriteFileAtomically(*fs_, summary_path(), json); }

 private:
  RunDir(FileSystem& fs, std::string path, std::unique_ptr<FileLock> lock)
      : fs_(&fs), path_(std::move(path)), lock_(std::move(lock)) {}

  FileSystem* fs_;
  std::string path_;
  std::unique_ptr<FileLock> lock_;  // held as long as the run
};

}  // namespace millrace
