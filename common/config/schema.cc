#include "common/config/schema.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config/config.h"
#include "common/config/scalar.h"
#include "common/nearest.h"

namespace millrace::config_internal {
namespace {

// OnNonfinite -> "ON_NONFINITE_": the prefix that protobuf's style wants before each value.
std::string EnumPrefix(const EnumDescriptor& type) {
  std::string prefix;
  for (char c : type.name()) {
    if (absl::ascii_isupper(c) && !prefix.empty()) prefix.push_back('_');
    prefix.push_back(absl::ascii_toupper(c));
  }
  return prefix + "_";
}

std::vector<std::string> YamlNames(const EnumDescriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.value_count(); ++i) names.push_back(YamlName(*type.value(i)));
  return names;
}

void AppendPaths(const Descriptor& section, absl::string_view prefix, std::vector<std::string>* paths) {
  for (int i = 0; i < section.field_count(); ++i) {
    const FieldDescriptor& field = *section.field(i);
    const std::string path = JoinPath(prefix, field.name());
    paths->push_back(path);
    if (IsSection(field)) AppendPaths(*field.message_type(), path, paths);
  }
}

// A key in the wrong section is the mistake that no edit distance finds: `epochs` at the top is ppo.epochs,
// and `gamma` one of two.
std::string SameKeyElsewhere(const std::vector<std::string>& paths, absl::string_view key) {
  std::vector<std::string> found;
  for (const std::string& path : paths) {
    if (absl::EndsWith(path, absl::StrCat(".", key))) found.push_back(path);
  }
  return found.size() > 2 ? "" : absl::StrJoin(found, " or ");
}

}  // namespace

std::string YamlName(const EnumValueDescriptor& value) {
  return absl::AsciiStrToLower(value.name().substr(EnumPrefix(*value.type()).size()));
}

const EnumValueDescriptor* FindYamlName(const EnumDescriptor& type, absl::string_view name) {
  for (int i = 0; i < type.value_count(); ++i) {
    if (YamlName(*type.value(i)) == name) return type.value(i);
  }
  return nullptr;
}

Status UnknownEnumName(const EnumDescriptor& type, absl::string_view name) {
  const std::vector<std::string> names = YamlNames(type);
  return absl::InvalidArgumentError(absl::StrCat("expected one of ", absl::StrJoin(names, ", "), "; got ",
                                                 Quoted(name), DidYouMean(std::string(name), names)));
}

std::string JoinPath(absl::string_view prefix, absl::string_view key) {
  return prefix.empty() ? std::string(key) : absl::StrCat(prefix, ".", key);
}

std::string UnknownKey(const Descriptor& section, absl::string_view prefix, absl::string_view key) {
  std::vector<std::string> siblings, keys, everywhere;
  for (int i = 0; i < section.field_count(); ++i) {
    keys.push_back(section.field(i)->name());
    siblings.push_back(JoinPath(prefix, keys.back()));
  }
  AppendPaths(*v1::RunConfig::descriptor(), "", &everywhere);

  if (absl::StrContains(key, ".") &&
      std::find(everywhere.begin(), everywhere.end(), key) != everywhere.end()) {
    return "unknown key; dotted names are for --set, in a file each section is a line of its own and its "
           "keys are "
           "indented below it";
  }
  std::string nearest = SameKeyElsewhere(everywhere, key);
  if (nearest.empty()) nearest = NearestName(std::string(key), keys);
  if (!nearest.empty() && !absl::StrContains(nearest, ".")) nearest = JoinPath(prefix, nearest);
  if (!nearest.empty()) return absl::StrCat("unknown key; did you mean ", nearest, "?");
  return absl::StrCat("unknown key; known here: ", absl::StrJoin(siblings, ", "));
}

Range::Range(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32:
      type_max_ = std::numeric_limits<uint32_t>::max();
      break;
    case FieldDescriptor::CPPTYPE_UINT64:
      type_max_ = std::numeric_limits<uint64_t>::max();
      break;
    case FieldDescriptor::CPPTYPE_INT32:
      type_min_ = std::numeric_limits<int32_t>::min();
      type_max_ = std::numeric_limits<int32_t>::max();
      break;
    default:
      break;
  }
  integer_ = type_max_ != 0;
  const v1::FieldRule& rule = field.options().GetExtension(v1::rule);
  if (integer_) low_ = static_cast<double>(type_min_);
  if (rule.has_min()) low_ = rule.min();
  if (rule.has_max()) high_ = rule.max();
  if (rule.has_above()) low_ = rule.above(), low_open_ = true;
  if (rule.has_below()) high_ = rule.below(), high_open_ = true;
}

bool Range::Contains(double value) const {
  const bool above = low_open_ ? value > low_ : value >= low_;
  const bool below = high_open_ ? value < high_ : value <= high_;
  return above && below;  // false for NaN
}

std::string Range::Text(double value) const {
  std::string low, high;
  if (low_ > -kInfinity) low = FormatNumber(low_);
  if (high_ < kInfinity) {
    high = FormatNumber(high_);
  } else if (integer_ && value > 0) {  // only a value that the type cannot hold gets here
    high = absl::StrCat(static_cast<uint64_t>(type_max_));
  }
  const std::string from = absl::StrCat(low_open_ ? "greater than " : "at least ", low);
  const std::string to = absl::StrCat(high_open_ ? "less than " : "at most ", high);
  if (low.empty() && high.empty()) return "must be a finite number";
  if (high.empty()) return absl::StrCat("must be ", from);
  if (low.empty()) return absl::StrCat("must be ", to);
  if (low_open_ || high_open_) return absl::StrCat("must be ", from, " and ", to);
  return absl::StrCat("must be between ", low, " and ", high);
}

}  // namespace millrace::config_internal
