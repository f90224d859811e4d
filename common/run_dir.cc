#include "common/run_dir.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/text.h"

namespace millrace {
namespace {

constexpr std::string_view kLockName = "lock";
constexpr std::string_view kConfigName = "config.yaml";

StatusOr<std::unique_ptr<FileLock>> LockRun(FileSystem& fs, const std::string& path) {
  auto lock = fs.Lock(JoinPath(path, kLockName));
  if (absl::IsAborted(lock.status())) {
    return absl::AbortedError(Cat(path, " is in use: ", std::string(lock.status().message()),
                                  "; wait for that process or choose another folder with --run"));
  }
  return lock;
}

Status CreateFolder(FileSystem& fs, const std::string& path) {
  const Status status = fs.CreateDirs(path);
  // A file where the folder or one of its parents should be is the user's slip, not the machine's state.
  if (absl::IsFailedPrecondition(status) || absl::IsAlreadyExists(status)) {
    return absl::InvalidArgumentError(Cat(std::string(status.message()),
                                          " (there is a file in its way); choose another folder with --run"));
  }
  return status;
}

Status CheckEmpty(FileSystem& fs, const std::string& path) {
  MILL_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs.ListDir(path));
  if (std::find(names.begin(), names.end(), kConfigName) != names.end()) {
    return absl::AlreadyExistsError(Cat(path, " holds a run already; go on with it by --resume ", path,
                                        " or choose another folder with --run"));
  }
  for (const std::string& name : names) {
    if (name == kLockName || name == Cat(kConfigName, kTempSuffix)) continue;  // of one that was killed early
    return absl::AlreadyExistsError(
        Cat(path, " is not empty (it holds ", name, "); choose another folder with --run"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string DefaultRunDir(FileSystem& fs, std::string_view name, uint64_t seed, const std::tm& local_time) {
  char time[sizeof("YYYYmmdd-HHMMSS")] = {};
  MILL_CHECK(std::strftime(time, sizeof(time), "%Y%m%d-%H%M%S", &local_time) > 0);
  const std::string base = Cat("runs/", name, "-", seed, "-", std::string_view(time));
  std::string path = base;
  for (int i = 2; FileExists(fs, path); ++i) path = Cat(base, "-", i);
  return path;
}

StatusOr<RunDir> RunDir::Create(FileSystem& fs, std::string path) {
  MILL_RETURN_IF_ERROR(CreateFolder(fs, path));
  // Looked at before the lock, so that no lock file appears in a folder of other things, and again behind it,
  // for another process may have begun a run in between.
  MILL_RETURN_IF_ERROR(CheckEmpty(fs, path));
  MILL_ASSIGN_OR_RETURN(auto lock, LockRun(fs, path));
  MILL_RETURN_IF_ERROR(CheckEmpty(fs, path));
  return RunDir(fs, std::move(path), std::move(lock));
}

StatusOr<RunDir> RunDir::Resume(FileSystem& fs, std::string path) {
  if (!FileExists(fs, JoinPath(path, kConfigName))) {
    return absl::NotFoundError(
        Cat("cannot resume ", path, ": there is no run in it (no config.yaml); name the folder of a run"));
  }
  MILL_ASSIGN_OR_RETURN(auto lock, LockRun(fs, path));
  MILL_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs.ListDir(path));
  for (const std::string& name : names) {
    if (name.ends_with(kTempSuffix)) MILL_RETURN_IF_ERROR(fs.Remove(JoinPath(path, name)));
  }
  return RunDir(fs, std::move(path), std::move(lock));
}

}  // namespace millrace
