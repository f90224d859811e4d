#include "actor/envs/params.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/nearest.h"

namespace millrace {
namespace {

bool ParseInt(const std::string& text, int64_t least, int64_t most, int64_t* value) {
  return absl::SimpleAtoi(text, value) && *value >= least && *value <= most;
}

}  // namespace

ParamReader::ParamReader(std::string id, const EnvParams& params) : id_(std::move(id)), params_(params) {}

const std::string* ParamReader::Find(const std::string& key) {
  known_.push_back(key);
  const auto found = params_.find(key);
  return found == params_.end() ? nullptr : &found->second;
}

void ParamReader::Fail(const std::string& key, const std::string& message) {
  if (!first_error_.ok()) return;
  first_error_ = absl::InvalidArgumentError(absl::StrCat("env.params.", key, ": ", message));
}

int64_t ParamReader::Int(const std::string& key, int64_t fallback, int64_t least, int64_t most) {
  const std::string* text = Find(key);
  if (text == nullptr) return fallback;
  int64_t value = 0;
  if (ParseInt(*text, least, most, &value)) return value;
  Fail(key, absl::StrCat("must be a whole number from ", least, " to ", most, ", not '", *text, "'"));
  return fallback;
}

bool ParamReader::Bool(const std::string& key, bool fallback) {
  const std::string* text = Find(key);
  if (text == nullptr) return fallback;
  bool value = false;
  if (absl::SimpleAtob(*text, &value)) return value;
  Fail(key, absl::StrCat("must be true or false, not '", *text, "'"));
  return fallback;
}

std::vector<int> ParamReader::Ints(const std::string& key, const std::vector<int>& fallback, int64_t least,
                                   int64_t most) {
  const std::string* text = Find(key);
  if (text == nullptr) return fallback;
  std::vector<int> values;
  for (const auto part : absl::StrSplit(*text, absl::ByAnyChar("x,"))) {
    int64_t value = 0;
    if (!ParseInt(std::string(part), least, most, &value)) {
      Fail(key, absl::StrCat("must be whole numbers from ", least, " to ", most,
                             " with x between them, as in 84x84, not '", *text, "'"));
      return fallback;
    }
    values.push_back(static_cast<int>(value));
  }
  return values;
}

Status ParamReader::status() const {
  if (!first_error_.ok()) return first_error_;
  for (const auto& param : params_) {
    if (std::find(known_.begin(), known_.end(), param.first) != known_.end()) continue;
    const std::string all = known_.empty() ? absl::StrCat("; ", id_, " has no settings")
                                           : absl::StrCat("; ", id_, " has ", absl::StrJoin(known_, ", "));
    const std::string near = DidYouMean(param.first, known_, "env.params.");
    return absl::InvalidArgumentError(
        absl::StrCat("env.params.", param.first, ": unknown key", near.empty() ? all : near));
  }
  return absl::OkStatus();
}

}  // namespace millrace
