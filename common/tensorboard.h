// Writes the metrics as an event file that TensorBoard reads.
// Owner: the run's loop. Threads: one. Station: behind the update, beside metrics.jsonl.
//
// The file is a row of records, each `u64 length, u32 masked CRC-32C of the length, data, u32 masked CRC-32C
// of data`, little endian (TensorFlow's TFRecord). The data is one protobuf message `Event`, of which five
// fields are enough, written here by hand, for the generated code would bring a library and allocate:
//   Event       { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5;
//                 SessionLog session_log = 7; }
//   Summary     { repeated Value value = 1; }        Value { string tag = 1; float simple_value = 2; }
//   SessionLog  { Status status = 1; }               Status: START = 1
// Field numbers: tensorflow/core/util/event.proto and tensorflow/core/framework/summary.proto.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/file_system.h"
#include "common/metrics.h"
#include "common/status.h"

namespace millrace {

class TensorBoardWriter {
 public:
  // Creates events.out.tfevents.<time>.<host>.millrace in `dir`, never over an existing one. With
  // `last_step`, the steps that a resumed run has behind it, above 0 the file begins with the event by which
  // TensorBoard drops the points of earlier files beyond them. `wall_seconds` is the time since 1970.
  static StatusOr<TensorBoardWriter> Open(FileSystem& fs, const std::string& dir, double wall_seconds,
                                          uint64_t last_step = 0);

  // One event at row.steps with a point for every field that has a group and a finite value.
  Status Append(const MetricsRow& row, double wall_seconds);
  // One point more, for what is not measured at every update, such as eval/return_mean.
  Status AppendScalar(std::string_view tag, uint64_t step, double value, double wall_seconds);

  const std::string& path() const { return path_; }

 private:
  TensorBoardWriter(std::string path, std::unique_ptr<WritableFile> file);
  // Frames event_ and writes it in one call; after an error the file is as before.
  Status WriteRecord();

  std::string path_;
  std::unique_ptr<WritableFile> file_;
  uint64_t size_ = 0;
  std::string event_, record_, summary_;  // kept for their capacity
};

}  // namespace millrace
