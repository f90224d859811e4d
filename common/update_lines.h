// UpdateLines: a file of JSON objects, one a line, each of which begins with the update that it belongs to;
// what metrics.jsonl and segments.jsonl are. A reader of the live file sees whole lines, and a resumed run
// takes the lines back that came after the update it goes on from. Owner: the writer of such a file. Threads:
// one. Station: behind the update.
#pragma once

#include <charconv>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "common/file_system.h"
#include "common/status.h"

namespace millrace {

class UpdateLines {
 public:
  // How every line begins; the number and a comma follow.
  static constexpr std::string_view kBeginning = "{\"update\":";
  // A line may have so many bytes, its newline included.
  static constexpr size_t kMaxLine = 4096;

  // Goes on in the file at `path`, created where it is missing. Lines of updates after `last_update`, the
  // update that the run resumes from (0 for a new run), are cut off, and so is a torn last line and all that
  // follows one. `fs` is used in Open only.
  static StatusOr<UpdateLines> Open(FileSystem& fs, const std::string& path, uint64_t last_update);

  // Writes whole lines in one call. A disk that fills up is an error, and the part that went in is taken
  // back.
  Status Append(std::string_view lines);

 private:
  UpdateLines(std::unique_ptr<WritableFile> file, uint64_t size) : file_(std::move(file)), size_(size) {}

  std::unique_ptr<WritableFile> file_;
  uint64_t size_;
};

// Text into a span that is known to be large enough.
class TextCursor {
 public:
  explicit TextCursor(std::span<char> buffer) : buffer_(buffer) {}

  void Put(std::string_view text) {
    MILL_CHECK(text.size() <= buffer_.size() - used_);
    std::memcpy(buffer_.data() + used_, text.data(), text.size());
    used_ += text.size();
  }
  // As short as reads back to the same bits.
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

}  // namespace millrace
