// RunOptions as YAML, complete and in the schema's order, such that LoadConfig reads back the same bits.
#include <charconv>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/config/config.h"
#include "common/config/schema.h"

namespace millrace {
namespace config_internal {
namespace {

std::string YamlValue(const Message& message, const FieldDescriptor& field) {
  const Reflection& r = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return YamlText(r.GetString(message, &field));
    case FieldDescriptor::CPPTYPE_BOOL:
      return r.GetBool(message, &field) ? "true" : "false";
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return FormatNumber(r.GetDouble(message, &field));
    case FieldDescriptor::CPPTYPE_ENUM:
      return YamlName(*r.GetEnum(message, &field));
    case FieldDescriptor::CPPTYPE_UINT32:
      return absl::StrCat(r.GetUInt32(message, &field));
    case FieldDescriptor::CPPTYPE_UINT64:
      return absl::StrCat(r.GetUInt64(message, &field));
    case FieldDescriptor::CPPTYPE_INT32:
      return absl::StrCat(r.GetInt32(message, &field));
    default:
      MILL_CHECK(false);  // a type that the schema does not use
  }
}

std::string YamlList(const Message& message, const FieldDescriptor& field) {
  std::vector<uint32_t> values;
  for (int i = 0; i < message.GetReflection()->FieldSize(message, &field); ++i) {
    values.push_back(message.GetReflection()->GetRepeatedUInt32(message, &field, i));
  }
  return absl::StrCat("[", absl::StrJoin(values, ", "), "]");
}

void AppendSection(const Message& message, const std::string& indent, std::string* out) {
  const Descriptor& section = *message.GetDescriptor();
  const Reflection& r = *message.GetReflection();
  for (int i = 0; i < section.field_count(); ++i) {
    const FieldDescriptor& field = *section.field(i);
    absl::StrAppend(out, indent, field.name(), ":");
    if (IsSection(field)) {
      absl::StrAppend(out, "\n");
      AppendSection(r.GetMessage(message, &field), indent + "  ", out);
    } else if (field.is_map()) {
      absl::StrAppend(out, r.FieldSize(message, &field) == 0 ? " {}\n" : "\n");
      for (int k = 0; k < r.FieldSize(message, &field); ++k) {
        const Message& entry = r.GetRepeatedMessage(message, &field, k);
        absl::StrAppend(out, indent, "  ", YamlValue(entry, *field.message_type()->field(0)), ": ",
                        YamlValue(entry, *field.message_type()->field(1)), "\n");
      }
    } else {
      absl::StrAppend(out, " ", field.is_repeated() ? YamlList(message, field) : YamlValue(message, field),
                      "\n");
    }
  }
}

}  // namespace
}  // namespace config_internal

std::string ToYaml(const RunOptions& options) {
  std::string out;
  config_internal::AppendSection(config_internal::ToProto(options), "", &out);
  return out;
}

std::string YamlText(std::string_view text) {
  bool plain =
      !text.empty() && absl::ascii_isalpha(text[0]) && !absl::EqualsIgnoreCase(std::string(text), "null");
  for (char c : text) plain &= absl::ascii_isalnum(c) || absl::StrContains("_./-", c);
  if (plain) return std::string(text);
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      absl::StrAppend(&out, "\\", std::string(1, c));
    } else if (absl::ascii_iscntrl(c)) {
      absl::StrAppendFormat(&out, "\\x%02x", static_cast<unsigned char>(c));
    } else {
      out.push_back(c);
    }
  }
  return out + "\"";
}

std::string FormatNumber(double value) {
  // 0.0003 and 1000000 rather than 3e-04 and 1e+06.
  const double size = std::fabs(value);
  const bool fixed = value == 0 || (size >= 1e-6 && size < 1e15);
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value,
                                 fixed ? std::chars_format::fixed : std::chars_format::scientific);
  return std::string(buffer, end.ptr);
}

}  // namespace millrace
