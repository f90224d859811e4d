#include "common/tensorboard.h"

#include <unistd.h>

#include <bit>
#include <climits>
#include <cmath>
#include <string_view>
#include <utility>

#include "common/crc32c.h"
#include "common/text.h"

namespace millrace {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers go into the file as they lie in memory");

template <typename T>
void PutRaw(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Protobuf's wire format: https://protobuf.dev/programming-guides/encoding
enum class Wire : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void PutVarint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}
void PutKey(std::string& out, int field, Wire wire) {
  PutVarint(out, static_cast<uint64_t>(field) << 3 | static_cast<uint8_t>(wire));
}
void PutBytes(std::string& out, int field, std::string_view bytes) {
  PutKey(out, field, Wire::kBytes);
  PutVarint(out, bytes.size());
  out.append(bytes);
}

void BeginEvent(std::string& event, double wall_seconds, uint64_t step) {
  event.clear();
  PutKey(event, 1, Wire::kFixed64);
  PutRaw(event, wall_seconds);
  PutKey(event, 2, Wire::kVarint);
  PutVarint(event, step);
}

size_t VarintSize(uint64_t value) {
  return value == 0 ? 1 : (static_cast<size_t>(std::bit_width(value)) + 6) / 7;
}

// One Summary.Value whose tag is group/name, or name alone.
void PutValue(std::string& summary, std::string_view group, std::string_view name, float value) {
  const size_t tag_size = group.size() + (group.empty() ? 0 : 1) + name.size();
  PutKey(summary, 1, Wire::kBytes);
  PutVarint(summary, 1 + VarintSize(tag_size) + tag_size + 1 + sizeof(value));
  PutKey(summary, 1, Wire::kBytes);
  PutVarint(summary, tag_size);
  summary.append(group);
  if (!group.empty()) summary.push_back('/');
  summary.append(name);
  PutKey(summary, 2, Wire::kFixed32);
  PutRaw(summary, value);
}

std::string HostName() {
  char name[HOST_NAME_MAX + 1] = {};
  if (::gethostname(name, HOST_NAME_MAX) != 0 || name[0] == '\0') return "localhost";
  return name;
}

}  // namespace

TensorBoardWriter::TensorBoardWriter(std::string path, std::unique_ptr<WritableFile> file)
    : path_(std::move(path)), file_(std::move(file)) {
  // A row's event takes about 1 KB.
  for (std::string* buffer : {&event_, &record_, &summary_}) buffer->reserve(4096);
}

StatusOr<TensorBoardWriter> TensorBoardWriter::Open(FileSystem& fs, const std::string& dir,
                                                    double wall_seconds, uint64_t last_step) {
  const std::string base = JoinPath(
      dir, Cat("events.out.tfevents.", static_cast<int64_t>(wall_seconds), ".", HostName(), ".millrace"));
  // TensorBoard reads files in the order of their names, so a second one of the same second goes behind the
  // first.
  std::string path = base;
  for (int i = 1; FileExists(fs, path); ++i) path = Cat(base, ".", i);
  MILL_ASSIGN_OR_RETURN(auto file, fs.OpenForWrite(path, FileSystem::WriteMode::kReplace));
  TensorBoardWriter writer(std::move(path), std::move(file));

  BeginEvent(writer.event_, wall_seconds, 0);
  PutBytes(writer.event_, 3, "brain.Event:2");
  MILL_RETURN_IF_ERROR(writer.WriteRecord());
  if (last_step > 0) {
    // It drops points at its own step too, and the one at last_step shall stay.
    BeginEvent(writer.event_, wall_seconds, last_step + 1);
    PutBytes(writer.event_, 7, std::string_view("\x08\x01", 2));  // SessionLog { status: START }
    MILL_RETURN_IF_ERROR(writer.WriteRecord());
  }
  return writer;
}

Status TensorBoardWriter::Append(const MetricsRow& row, double wall_seconds) {
  summary_.clear();
  for (const MetricsField& field : kMetricsFields) {
    const double value = field.Value(row);
    if (field.In(row) && !field.group.empty() && std::isfinite(value)) {
      PutValue(summary_, field.group, field.name, static_cast<float>(value));
    }
  }
  BeginEvent(event_, wall_seconds, row.steps);
  PutBytes(event_, 5, summary_);
  return WriteRecord();
}

Status TensorBoardWriter::AppendScalar(std::string_view tag, uint64_t step, double value,
                                       double wall_seconds) {
  summary_.clear();
  PutValue(summary_, "", tag, static_cast<float>(value));
  BeginEvent(event_, wall_seconds, step);
  PutBytes(event_, 5, summary_);
  return WriteRecord();
}

Status TensorBoardWriter::WriteRecord() {
  record_.clear();
  PutRaw(record_, static_cast<uint64_t>(event_.size()));
  PutRaw(record_, MaskCrc32c(Crc32c(record_)));
  record_.append(event_);
  PutRaw(record_, MaskCrc32c(Crc32c(event_)));
  if (Status status = file_->Append(record_); !status.ok()) {
    file_->Truncate(size_).IgnoreError();  // the first error is the one to report
    return status;
  }
  size_ += record_.size();
  return absl::OkStatus();
}

}  // namespace millrace
