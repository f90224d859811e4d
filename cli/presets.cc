#include "cli/presets.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "cli/preset_data.h"
#include "common/config/config.h"
#include "common/nearest.h"

namespace millrace {
namespace {

std::vector<std::string> PresetNames() {
  std::vector<std::string> names;
  for (const Preset& preset : Presets()) names.push_back(preset.name);
  return names;
}

StatusOr<std::string> ReadText(const std::string& path) {
  constexpr size_t kMostBytes = 1 << 20;  // a configuration has a few kilobytes; this is some other file
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is a folder; name a YAML file or a preset"));
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  if (file) {
    char buffer[4096];
    while (file.read(buffer, sizeof(buffer)) || file.gcount() > 0) {
      text.append(buffer, static_cast<size_t>(file.gcount()));
      if (text.size() > kMostBytes) {
        return absl::InvalidArgumentError(
            absl::StrCat(path, ": is larger than 1 MiB; this is no configuration"));
      }
    }
  }
  if (!file.is_open() || file.bad()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": cannot be read: ", std::strerror(errno), "; check the path"));
  }
  return text;
}

}  // namespace

std::vector<Preset> Presets() {
  std::vector<Preset> presets;
  for (const PresetText& preset : PresetTexts()) {
    const std::string first = preset.text.substr(0, preset.text.find('\n'));
    presets.push_back({preset.name, std::string(absl::StripPrefix(first, "# ")), preset.text});
  }
  // The build lists files, where `a-b.yaml` stands before `a.yaml`.
  std::sort(presets.begin(), presets.end(), [](const Preset& a, const Preset& b) { return a.name < b.name; });
  return presets;
}

StatusOr<Preset> FindPreset(const std::string& name) {
  for (Preset& preset : Presets()) {
    if (preset.name == name) return std::move(preset);
  }
  const std::vector<std::string> names = PresetNames();
  return absl::InvalidArgumentError(absl::StrCat(name, ": no such preset", DidYouMean(name, names),
                                                 " (presets: ", absl::StrJoin(names, ", "), ")"));
}

StatusOr<RunOptions> LoadPresetOrFile(const std::string& arg, std::span<const std::string> overrides) {
  const StatusOr<Preset> preset = FindPreset(arg);
  if (preset.ok()) return LoadConfig(preset->text, absl::StrCat("preset ", arg), overrides);

  std::error_code error;
  const bool is_path = absl::EndsWith(arg, ".yaml") || absl::EndsWith(arg, ".yml") ||
                       absl::StrContains(arg, "/") || std::filesystem::exists(arg, error);
  if (!is_path) {
    const std::vector<std::string> names = PresetNames();
    return absl::InvalidArgumentError(absl::StrCat(arg, ": no such preset or file", DidYouMean(arg, names),
                                                   " (presets: ", absl::StrJoin(names, ", "), ")"));
  }
  MILL_ASSIGN_OR_RETURN(const std::string text, ReadText(arg));
  MILL_ASSIGN_OR_RETURN(RunOptions options, LoadConfig(text, arg, overrides));
  if (options.run.name.empty()) options.run.name = std::filesystem::path(arg).stem().string();
  return options;
}

}  // namespace millrace
