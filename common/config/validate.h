// Validate with the places that values came from. Internal to common/config; pure functions; any thread.
#pragma once

#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "common/options.h"
#include "common/status.h"

namespace millrace::config_internal {

// "`place: `key: what", the form of every error; `place` and `key` may be empty.
Status ConfigError(absl::string_view place, absl::string_view key, absl::string_view what);

// Where each given value stands: path -> "config.yaml:12" or "--set ppo.epochs=3".
class Origins {
 public:
  explicit Origins(absl::string_view default_place) : default_place_(default_place) {}
  void Set(const std::string& path, absl::string_view place) { places_[path] = std::string(place); }
  bool Given(const std::string& path) const { return places_.count(path) > 0; }
  // The default place (the file) where the value was not given at all.
  const std::string& Place(const std::string& path) const {
    const auto found = places_.find(path);
    return found == places_.end() ? default_place_ : found->second;
  }
  Status Error(const std::string& path, absl::string_view what) const {
    return ConfigError(Place(path), path, what);
  }

 private:
  std::string default_place_;
  std::map<std::string, std::string> places_;
};

// The rules of algorithm sac and its replay, and that no setting was given that the algorithm does not read.
Status CheckAlgorithm(const RunOptions& options, const Origins& origins);

Status ValidateWithOrigins(const RunOptions& options, const Origins& origins);

}  // namespace millrace::config_internal
