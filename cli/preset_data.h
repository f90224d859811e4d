// The presets as the build embeds them (cmake/embed_presets.cmake writes the definition). Internal to
// cli/presets.cc. Owner: static data; any thread.
#pragma once

#include <string>
#include <vector>

namespace millrace {

struct PresetText {
  std::string name;  // of the file, without .yaml
  std::string text;
};

const std::vector<PresetText>& PresetTexts();

}  // namespace millrace
