// What a configuration must satisfy: the (rule) of each field, read from the schema, and the rules between
// fields.
#include "common/config/validate.h"

#include <algorithm>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config/config.h"
#include "common/config/scalar.h"
#include "common/config/schema.h"
#include "common/nearest.h"

namespace millrace {
namespace config_internal {
namespace {

Status CheckNumber(const FieldDescriptor& field, const std::string& path, const std::string& shown,
                   double value, const Origins& origins) {
  const Range range(field);
  if (range.Contains(value) && value - value == 0) return absl::OkStatus();
  return origins.Error(path, absl::StrCat(shown, " is out of range; ", range.Text(value)));
}

// The number in a singular field, as a double and as text; false for other types.
bool NumberOf(const Message& message, const FieldDescriptor& field, double* value, std::string* shown) {
  const Reflection& r = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32:
      *value = r.GetUInt32(message, &field);
      break;
    case FieldDescriptor::CPPTYPE_INT32:
      *value = r.GetInt32(message, &field);
      break;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      *value = r.GetDouble(message, &field);
      break;
    case FieldDescriptor::CPPTYPE_UINT64:
      *value = static_cast<double>(r.GetUInt64(message, &field));
      *shown = absl::StrCat(r.GetUInt64(message, &field));
      return true;
    default:
      return false;
  }
  *shown = FormatNumber(*value);
  return true;
}

Status CheckRules(const Message& message, absl::string_view prefix, const Origins& origins) {
  const Descriptor& section = *message.GetDescriptor();
  const Reflection& reflection = *message.GetReflection();
  for (int i = 0; i < section.field_count(); ++i) {
    const FieldDescriptor& field = *section.field(i);
    const std::string path = JoinPath(prefix, field.name());
    if (IsSection(field)) {
      MILL_RETURN_IF_ERROR(CheckRules(reflection.GetMessage(message, &field), path, origins));
    } else if (field.is_repeated() && !field.is_map()) {
      for (int k = 0; k < reflection.FieldSize(message, &field); ++k) {
        const uint32_t value = reflection.GetRepeatedUInt32(message, &field, k);
        MILL_RETURN_IF_ERROR(
            CheckNumber(field, path, absl::StrCat("element ", k + 1, ", ", value, ","), value, origins));
      }
    } else if (double value = 0; !field.is_repeated()) {
      std::string shown;
      if (!NumberOf(message, field, &value, &shown)) continue;
      MILL_RETURN_IF_ERROR(CheckNumber(field, path, shown, value, origins));
    }
  }
  return absl::OkStatus();
}

// Broken YAML can make a key of half a file: a message stays one line that can be read.
std::string OneLine(absl::string_view text) {
  constexpr size_t kLongest = 160;
  std::string line(text.substr(0, kLongest));
  for (char& c : line) c = absl::ascii_iscntrl(static_cast<unsigned char>(c)) ? ' ' : c;
  if (line.size() == text.size()) return line;
  while (!line.empty() && (static_cast<unsigned char>(line.back()) & 0x80) != 0) line.pop_back();
  return line + "...";
}

Status CheckRun(const RunOptions& o, const Origins& origins) {
  const std::vector<std::string> algorithms = {"ppo", "sac"};
  if (std::find(algorithms.begin(), algorithms.end(), o.algorithm) == algorithms.end()) {
    return origins.Error("algorithm", absl::StrCat("unknown algorithm ", Quoted(o.algorithm),
                                                   "; known: ", absl::StrJoin(algorithms, ", "),
                                                   DidYouMean(o.algorithm, algorithms)));
  }
  // The name becomes part of a path.
  for (char c : o.run.name) {
    if (c == '/' || absl::ascii_iscntrl(c)) {
      return origins.Error("run.name", absl::StrCat(Quoted(o.run.name),
                                                    " cannot name a folder; leave out "
                                                    "slashes and control characters (run.dir takes a path)"));
    }
  }
  if (o.run.name == "." || o.run.name == "..") {
    return origins.Error("run.name",
                         absl::StrCat(Quoted(o.run.name), " cannot name a folder; choose another"));
  }
  // Only where the target was asked for and the window never mentioned: `run.stop_window: 0` turns a preset's
  // off.
  if (origins.Given("run.stop_at_return") && !origins.Given("run.stop_window") && o.run.stop_window == 0) {
    return origins.Error("run.stop_at_return",
                         "has no effect alone; set run.stop_window to the number of episodes to average");
  }
  return absl::OkStatus();
}

Status CheckEnv(const RunOptions& o, const Origins& origins) {
  if (o.env.id.empty()) {
    return origins.Error("env.id", "is missing; name an environment (`millrace envs` lists them)");
  }
  if (o.env.group_rows > o.env.rows) {
    return origins.Error("env.group_rows",
                         absl::StrCat(o.env.group_rows, " is more than env.rows, ", o.env.rows,
                                      "; lower env.group_rows (0 chooses it) or raise env.rows"));
  }
  return absl::OkStatus();
}

Status CheckPolicy(const RunOptions& o, const Origins& origins) {
  constexpr size_t kMostLayers = 16;
  const size_t layers = o.policy.hidden.size();
  if (layers == 0 || layers > kMostLayers) {
    return origins.Error("policy.hidden", absl::StrCat("has ", layers, " layers; give 1 to ", kMostLayers,
                                                       " sizes, for example [64, 64]"));
  }
  return absl::OkStatus();
}

Status CheckPpo(const RunOptions& o, const Origins& origins) {
  const uint64_t batch = uint64_t{o.env.rows} * o.ppo.horizon;
  constexpr uint64_t kMostSamples = std::numeric_limits<int32_t>::max();
  if (batch > kMostSamples) {
    return origins.Error("ppo.horizon",
                         absl::StrCat("the batch, env.rows ", o.env.rows, " x ppo.horizon ", o.ppo.horizon,
                                      " = ", batch, " samples, is too large; at most ", kMostSamples));
  }
  if (o.ppo.minibatch_size > batch) {
    const char* whose = origins.Given("ppo.minibatch_size") ? "" : " (the default)";
    return origins.Error(
        "ppo.minibatch_size",
        absl::StrCat(o.ppo.minibatch_size, whose, " is larger than the batch, env.rows ", o.env.rows,
                     " x ppo.horizon ", o.ppo.horizon, " = ", batch, " samples; lower it to ", batch,
                     " or less, or raise env.rows or ppo.horizon"));
  }
  return absl::OkStatus();
}

Status CheckLearner(const RunOptions& o, const Origins& origins) {
  if (o.learner.c_bar > o.learner.rho_bar) {
    const char* whose = origins.Given("learner.c_bar") ? "" : " (the default)";
    return origins.Error(
        "learner.c_bar",
        absl::StrCat(FormatNumber(o.learner.c_bar), whose, " is more than learner.rho_bar, ",
                     FormatNumber(o.learner.rho_bar), "; lower learner.c_bar or raise learner.rho_bar"));
  }
  return absl::OkStatus();
}

}  // namespace

Status ConfigError(absl::string_view place, absl::string_view key, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(OneLine(place), place.empty() ? "" : ": ", OneLine(key), key.empty() ? "" : ": ", what));
}

Status ValidateWithOrigins(const RunOptions& options, const Origins& origins) {
  MILL_RETURN_IF_ERROR(CheckRules(ToProto(options), "", origins));
  MILL_RETURN_IF_ERROR(CheckRun(options, origins));
  MILL_RETURN_IF_ERROR(CheckEnv(options, origins));
  MILL_RETURN_IF_ERROR(CheckPolicy(options, origins));
  if (!IsSac(options)) MILL_RETURN_IF_ERROR(CheckPpo(options, origins));
  MILL_RETURN_IF_ERROR(CheckAlgorithm(options, origins));
  return CheckLearner(options, origins);
}

}  // namespace config_internal

Status Validate(const RunOptions& options) {
  return config_internal::ValidateWithOrigins(options, config_internal::Origins(""));
}

}  // namespace millrace
