#include "common/update_lines.h"

#include <optional>

namespace millrace {
namespace {

// The update of a whole line (without its newline); nothing for what we have not written.
std::optional<uint64_t> UpdateOfLine(std::string_view line) {
  if (!line.starts_with(UpdateLines::kBeginning) || !line.ends_with('}')) return std::nullopt;
  line.remove_prefix(UpdateLines::kBeginning.size());
  uint64_t update = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), update);
  if (error != std::errc() || end == line.data() + line.size() || *end != ',') return std::nullopt;
  return update;
}

// Bytes at the file's beginning that are whole lines of updates up to `last_update`. Reads in pieces: a long
// run's file need not fit in memory.
StatusOr<uint64_t> KeptBytes(FileSystem& fs, const std::string& path, uint64_t last_update) {
  constexpr uint64_t kPiece = 64 * 1024;
  static_assert(kPiece > UpdateLines::kMaxLine);
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

StatusOr<UpdateLines> UpdateLines::Open(FileSystem& fs, const std::string& path, uint64_t last_update) {
  uint64_t kept = 0;
  if (FileExists(fs, path)) {
    MILL_ASSIGN_OR_RETURN(kept, KeptBytes(fs, path, last_update));
  }
  MILL_ASSIGN_OR_RETURN(auto file, fs.OpenForWrite(path, FileSystem::WriteMode::kAppend));
  MILL_RETURN_IF_ERROR(file->Truncate(kept));
  return UpdateLines(std::move(file), kept);
}

Status UpdateLines::Append(std::string_view lines) {
  if (Status status = file_->Append(lines); !status.ok()) {
    file_->Truncate(size_).IgnoreError();  // the first error is the one to report
    return status;
  }
  size_ += lines.size();
  return absl::OkStatus();
}

}  // namespace millrace
