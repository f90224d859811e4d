#include "common/checkpoint.h"

#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "common/text.h"

namespace millrace {
namespace {

constexpr std::string_view kPrefix = "update-";
constexpr std::string_view kSuffix = ".safetensors";
constexpr std::string_view kBestName = "best.safetensors";
constexpr std::string_view kFormatKey = "format";
constexpr std::string_view kFormat = "millrace-checkpoint-1";
constexpr std::string_view kUpdateKey = "update";
constexpr std::string_view kChecksumKey = "xxh3_64";

// The checksum's digits stand at a fixed place: behind the eight bytes of length and this beginning of the
// header.
constexpr std::string_view kBeginning = "{\"__metadata__\":{\"xxh3_64\":\"";
constexpr std::string_view kBlank = "0000000000000000";
constexpr size_t kDigitsAt = 8 + kBeginning.size();
constexpr size_t kDigitsEnd = kDigitsAt + kBlank.size();

// XXH3-64 over pieces; a thin owner of the library's state.
class Hasher {
 public:
  Hasher() : state_(XXH3_createState(), XXH3_freeState) {
    MILL_CHECK(state_ != nullptr && XXH3_64bits_reset(state_.get()) == XXH_OK);
  }
  void Add(std::string_view data) {
    MILL_CHECK(XXH3_64bits_update(state_.get(), data.data(), data.size()) == XXH_OK);
  }
  std::string Digits() const { return Cat(absl::Hex(XXH3_64bits_digest(state_.get()), absl::kZeroPad16)); }

 private:
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
};

std::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string UpdateName(uint64_t update) {
  return Cat(kPrefix, absl::Dec(update, absl::kZeroPad9), kSuffix);
}

std::optional<uint64_t> ParseNumber(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// The number in update-<number>.safetensors; nothing for other names.
std::optional<uint64_t> UpdateOf(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  if (name.size() <= kSuffix.size()) return std::nullopt;
  return ParseNumber(name.substr(0, name.size() - kSuffix.size()));
}

struct NumberedFile {
  uint64_t update;
  std::string path;
};

// Newest first; by number, for the names sort only up to nine digits.
StatusOr<std::vector<NumberedFile>> ListNumbered(FileSystem& fs, const std::string& dir) {
  MILL_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs.ListDir(dir));
  std::vector<NumberedFile> files;
  for (const std::string& name : names) {
    if (const auto update = UpdateOf(name)) files.push_back({*update, JoinPath(dir, name)});
  }
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.update > b.update; });
  return files;
}

Status Damaged(const std::string& path, std::string_view reason) {
  return absl::DataLossError(Cat(path, ": ", reason));
}

Status VerifyChecksum(std::string_view file) {
  if (file.size() < kDigitsEnd || file.substr(8, kBeginning.size()) != kBeginning) {
    return absl::DataLossError("not a Millrace checkpoint, or cut short: no checksum at its place");
  }
  Hasher hasher;
  hasher.Add(file.substr(0, kDigitsAt));
  hasher.Add(kBlank);
  hasher.Add(file.substr(kDigitsEnd));
  if (hasher.Digits() != file.substr(kDigitsAt, kBlank.size())) {
    return absl::DataLossError("damaged: the checksum does not match");
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<Checkpoint> LoadCheckpoint(FileSystem& fs, const std::string& path) {
  MILL_ASSIGN_OR_RETURN(std::string bytes, ReadFile(fs, path));
  Checkpoint checkpoint;
  checkpoint.path = path;
  checkpoint.file = std::make_unique<const std::string>(std::move(bytes));
  const std::string& file = *checkpoint.file;
  if (Status status = VerifyChecksum(file); !status.ok()) return Damaged(path, std::string(status.message()));
  auto content = ReadSafetensors(std::as_bytes(std::span(file.data(), file.size())));
  if (!content.ok()) return Damaged(path, std::string(content.status().message()));
  checkpoint.content = *std::move(content);

  auto& metadata = checkpoint.content.metadata;
  const auto format = metadata.find(std::string(kFormatKey));
  if (format == metadata.end() || format->second != kFormat) {
    return Damaged(path, Cat("not of the format ", kFormat, ", which this program reads"));
  }
  const auto update = metadata.find(std::string(kUpdateKey));
  const auto number = update == metadata.end() ? std::nullopt : ParseNumber(update->second);
  if (!number) return Damaged(path, "no update number");
  checkpoint.update = *number;
  metadata.erase(format);
  metadata.erase(update);
  metadata.erase(std::string(kChecksumKey));
  return checkpoint;
}

StatusOr<Checkpoint> LoadLatestCheckpoint(FileSystem& fs, const std::string& dir,
                                          std::vector<SkippedCheckpoint>* skipped) {
  MILL_ASSIGN_OR_RETURN(const std::vector<NumberedFile> files, ListNumbered(fs, dir));
  for (const NumberedFile& file : files) {
    auto checkpoint = LoadCheckpoint(fs, file.path);
    if (checkpoint.ok()) return checkpoint;
    if (skipped != nullptr) skipped->push_back({file.path, std::string(checkpoint.status().message())});
  }
  return absl::NotFoundError(files.empty() ? Cat(dir, ": no checkpoint there")
                                           : Cat(dir, ": no checkpoint there is valid, of ", files.size()));
}

std::string BestCheckpointPath(const std::string& dir) {
  return JoinPath(dir, kBestName);
}

StatusOr<CheckpointStore> CheckpointStore::Open(FileSystem& fs, std::string dir) {
  MILL_RETURN_IF_ERROR(fs.CreateDirs(dir));
  MILL_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs.ListDir(dir));
  for (const std::string& name : names) {
    if (name.ends_with(kTempSuffix)) MILL_RETURN_IF_ERROR(fs.Remove(JoinPath(dir, name)));
  }
  return CheckpointStore(fs, std::move(dir));
}

Status CheckpointStore::Write(const std::string& path, uint64_t update, const CheckpointData& data) {
  std::vector<std::pair<std::string, std::string>> metadata = {
      {std::string(kChecksumKey), std::string(kBlank)},
      {std::string(kFormatKey), std::string(kFormat)},
      {std::string(kUpdateKey), Cat(update)}};
  for (const auto& [key, value] : data.metadata) {
    MILL_CHECK(key != kChecksumKey && key != kFormatKey && key != kUpdateKey);
    metadata.emplace_back(key, value);
  }
  MILL_ASSIGN_OR_RETURN(SafetensorsHeader header, BuildSafetensorsHeader(data.tensors, metadata));
  MILL_CHECK(std::string_view(header.bytes).substr(8, kBeginning.size()) == kBeginning);

  Hasher hasher;
  std::vector<std::string_view> chunks = {header.bytes};
  for (size_t i : header.order) chunks.push_back(AsText(data.tensors[i].bytes));
  for (std::string_view chunk : chunks) hasher.Add(chunk);
  header.bytes.replace(kDigitsAt, kBlank.size(),
                       hasher.Digits());  // same length: the chunk's view stays good
  return WriteFileAtomically(*fs_, path, chunks);
}

StatusOr<std::string> CheckpointStore::Save(uint64_t update, const CheckpointData& data) {
  const std::string path = JoinPath(dir_, UpdateName(update));
  MILL_RETURN_IF_ERROR(Write(path, update, data));
  MILL_ASSIGN_OR_RETURN(const std::vector<NumberedFile> files, ListNumbered(*fs_, dir_));
  for (const NumberedFile& file : files) {
    if (file.update > update) MILL_RETURN_IF_ERROR(fs_->Remove(file.path));
  }
  return path;
}

StatusOr<std::string> CheckpointStore::SaveBest(uint64_t update, const CheckpointData& data) {
  const std::string path = BestCheckpointPath(dir_);
  MILL_RETURN_IF_ERROR(Write(path, update, data));
  return path;
}

Status CheckpointStore::Keep(uint32_t count) {
  MILL_ASSIGN_OR_RETURN(const std::vector<NumberedFile> files, ListNumbered(*fs_, dir_));
  for (size_t i = std::max(count, 1u); i < files.size(); ++i)
    MILL_RETURN_IF_ERROR(fs_->Remove(files[i].path));
  return absl::OkStatus();
}

}  // namespace millrace
