// Checkpoints: all that a run needs to go on, as safetensors files that appear whole or not at all.
// Owner: the run's loop owns the CheckpointStore of its folder; readers (eval, warm start) use the free
// functions, which change nothing. Threads: one at a time. Station: beside the loop, after an update.
//
//   checkpoints/update-000000123.safetensors   one a Save
//   checkpoints/best.safetensors               the best by the run's own judgement
//   checkpoints/*.tmp                          being written; a leftover of a crash, removed at the next Open
//
// The metadata begins with "xxh3_64": sixteen hexadecimal digits, XXH3-64 of the whole file with these digits
// as zeros. So every bit of the file is covered, and the file stays plain safetensors for Python.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/file_system.h"
#include "common/safetensors.h"
#include "common/status.h"

namespace millrace {

struct CheckpointData {
  std::vector<NamedTensor> tensors;  // views; read during Save only
  std::map<std::string, std::string>
      metadata;  // the caller's own; keys "xxh3_64", "format" and "update" are taken
};

struct Checkpoint {
  std::string path;
  uint64_t update = 0;
  SafetensorsContent content;               // views into *file; metadata without the store's own keys
  std::unique_ptr<const std::string> file;  // behind a pointer, so that moving a Checkpoint moves no bytes
};

// A file that LoadLatest passed over, and why.
struct SkippedCheckpoint {
  std::string path;
  std::string reason;
};

// DataLoss where the file is damaged, NotFound where there is none, with the path in the message.
StatusOr<Checkpoint> LoadCheckpoint(FileSystem& fs, const std::string& path);
// The newest valid update-*.safetensors of the folder; damaged newer ones are added to `skipped`. NotFound
// where no valid one is left.
StatusOr<Checkpoint> LoadLatestCheckpoint(FileSystem& fs, const std::string& dir,
                                          std::vector<SkippedCheckpoint>* skipped);
std::string BestCheckpointPath(const std::string& dir);

class CheckpointStore {
 public:
  // Creates the folder and removes leftovers of writes that were cut short. `fs` must outlive the store.
  static StatusOr<CheckpointStore> Open(FileSystem& fs, std::string dir);

  // Writes the state after `update` updates and returns the file's path. After an error all earlier
  // checkpoints stand as before. On success files of later updates go: they are damaged, or of a course that
  // this run has left, and would be loaded in place of this one.
  StatusOr<std::string> Save(uint64_t update, const CheckpointData& data);
  // Replaces best.safetensors in the same way.
  StatusOr<std::string> SaveBest(uint64_t update, const CheckpointData& data);
  // Removes all numbered files but the `count` newest (at least one); never the best.
  Status Keep(uint32_t count);

  const std::string& dir() const { return dir_; }

 private:
  CheckpointStore(FileSystem& fs, std::string dir) : fs_(&fs), dir_(std::move(dir)) {}
  Status Write(const std::string& path, uint64_t update, const CheckpointData& data);

  FileSystem* fs_;
  std::string dir_;
};

}  // namespace millrace
