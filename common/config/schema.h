// The schema of the configuration as a tree of keys: what protobuf's descriptors say, in the words of YAML.
// Internal to common/config (protobuf types show here); descriptors are immutable and live for ever; any
// thread.
#pragma once

#include <limits>
#include <optional>
#include <string>

#include <vector>

#include "absl/numeric/int128.h"
#include "absl/strings/string_view.h"
#include "common/options.h"
#include "common/status.h"
#include "millrace/v1/config.pb.h"

namespace millrace::config_internal {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Between plain values and the message; both walk fields.h.
v1::RunConfig ToProto(const RunOptions& options);
RunOptions FromProto(const v1::RunConfig& config);  // absent fields keep their defaults

// ACTIVATION_TANH -> `tanh`, and back (null when unknown).
std::string YamlName(const EnumValueDescriptor& value);
const EnumValueDescriptor* FindYamlName(const EnumDescriptor& type, absl::string_view name);
// "expected one of none, tanh, ..., got "x"; did you mean tanh?"
Status UnknownEnumName(const EnumDescriptor& type, absl::string_view name);

inline bool IsSection(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !field.is_map();
}

// "", "run" -> "run"; "run", "seed" -> "run.seed".
std::string JoinPath(absl::string_view prefix, absl::string_view key);

// "unknown key; did you mean ppo.clip_range?" for a key that `section`, whose path is `prefix`, does not
// have.
std::string UnknownKey(const Descriptor& section, absl::string_view prefix, absl::string_view key);

// The values that a numeric field takes: its (rule) within what its type can hold.
class Range {
 public:
  explicit Range(const FieldDescriptor& field);
  bool Contains(double value) const;
  // Exact, for integers beyond 2^53.
  bool TypeHolds(const absl::int128& value) const { return value >= type_min_ && value <= type_max_; }
  // "must be at least 1": the bounds that the schema states, and the type's where `value` breaks it.
  std::string Text(double value) const;

 private:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double low_ = -kInfinity, high_ = kInfinity;
  bool low_open_ = false, high_open_ = false;
  absl::int128 type_min_ = 0, type_max_ = 0;  // integers only
  bool integer_ = false;
};

}  // namespace millrace::config_internal
