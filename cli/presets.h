// Presets: configurations that come with the program, one for each task, from cli/presets/NAME.yaml.
// Owner: static data; any thread. Station: before all of them; `millrace train` and `millrace presets` ask
// here.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/options.h"
#include "common/status.h"

namespace millrace {

struct Preset {
  std::string name;
  std::string summary;  // the file's first comment line
  std::string text;     // YAML
};

std::vector<Preset> Presets();  // by name

// InvalidArgument with the nearest name and the list when there is no such preset.
StatusOr<Preset> FindPreset(const std::string& name);

// `arg` is a preset's name or else a YAML file's path; the overrides are LoadConfig's. A file that gives no
// run.name is named after itself. Errors: InvalidArgument, also for a file that cannot be read.
StatusOr<RunOptions> LoadPresetOrFile(const std::string& arg, std::span<const std::string> overrides);

}  // namespace millrace
