#include "common/metrics.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <system_error>

namespace millrace {
namespace {

// How every line begins; what Open looks for.
constexpr std::string_view kBeginning = "{\"update\":";

// Text into a span that is known to be large enough.
class Cursor {
 public:
  explicit Cursor(std::span<char> buffer) : buffer_(buffer) {}

  void Put(std::string_view text) {
    MILL_CHECK(text.size() <= buffer_.size() - used_);
    std::memcpy(buffer_.data() + used_, text.data(), text.size());
    used_ += text.size();
  }
  template <typename T>
  void PutNumber(T value) {
    const auto [end, error] = std::to_chars(buffer_.data() + used_, buffer_.data() + buffer_.size(), value);
    MILL_CHECK(error == std::errc());
    used_ = static_cast<size_t>(end - buffer_.data());
  }
  std::string_view text() const { return {buffer_.data(), used_}; }

 private:
  std::span<char> buffer_;
  size_t used_ = 0;
};

// The update of a whole line (without its newline); nothing for what we have not written.
std::optional<uint64_t> UpdateOfLine(std::string_view line) {
  if (!line.starts_with(kBeginning) || !line.ends_with('}')) return std::nullopt;
  line.remove_prefix(kBeginning.size());
  uint64_t update = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), update);
  if (error != std::errc() || end == line.data() + line.size() || *end != ',') return std::nullopt;
  return update;
}

// Bytes at the file's beginning that are whole lines of updates up to `last_update`. Reads in pieces: a long
// run's file need not fit in memory.
StatusOr<uint64_t> KeptBytes(FileSystem& fs, const std::string& path, uint64_t last_update) {
  constexpr uint64_t kPiece = 64 * 1024;
  static_assert(kPiece > kMaxMetricsLine);
  uint64_t kept = 0;
  while (true) {
    MILL_ASSIGN_OR_RETURN(const std::string piece, fs.Read(path, kept, kPiece));
    std::string_view rest = piece;
    // A piece without a newline holds no line of ours, and ends the loop as the torn tail does.
    size_t newline = rest.find('\n');
    if (newline == rest.npos) return kept;
    for (; newline != rest.npos; newline = rest.find('\n')) {
      const std::optional<uint64_t> update = UpdateOfLine(rest.substr(0, newline));
      if (!update || *update > last_update) return kept;
      kept += newline + 1;
      rest.remove_prefix(newline + 1);
    }
  }
}

}  // namespace

std::string_view FormatMetrics(const MetricsRow& row, std::span<char, kMaxMetricsLine> buffer) {
  Cursor out(buffer);
  for (const MetricsField& field : kMetricsFields) {
    out.Put(out.text().empty() ? "{\"" : ",\"");
    out.Put(field.name);
    out.Put("\":");
    if (field.count != nullptr) {
      out.PutNumber(row.*field.count);
    } else if (const double value = row.*field.real; std::isfinite(value)) {
      out.PutNumber(value);
    } else {
      out.Put("null");
    }
  }
  out.Put("}\n");
  return out.text();
}

StatusOr<MetricsWriter> MetricsWriter::Open(FileSystem& fs, const std::string& path, uint64_t last_update) {
  uint64_t kept = 0;
  if (FileExists(fs, path)) {
    MILL_ASSIGN_OR_RETURN(kept, KeptBytes(fs, path, last_update));
  }
  MILL_ASSIGN_OR_RETURN(auto file, fs.OpenForWrite(path, FileSystem::WriteMode::kAppend));
  MILL_RETURN_IF_ERROR(file->Truncate(kept));
  return MetricsWriter(std::move(file), kept);
}

Status MetricsWriter::Append(const MetricsRow& row) {
  const std::string_view line = FormatMetrics(row, *buffer_);
  if (Status status = file_->Append(line); !status.ok()) {
    file_->Truncate(size_).IgnoreError();  // the first error is the one to report
    return status;
  }
  size_ += line.size();
  return absl::OkStatus();
}

}  // namespace millrace
