// YAML text and --set overrides into the schema's message, by reflection: no key is named here.
#include <yaml-cpp/yaml.h>

#include <map>
#include <span>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/config/config.h"
#include "common/config/scalar.h"
#include "common/config/schema.h"
#include "common/config/validate.h"

namespace millrace {
namespace config_internal {
namespace {

// What a piece of YAML is, for messages.
std::string Describe(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Sequence:
      return "a list";
    case YAML::NodeType::Map:
      return "a map";
    case YAML::NodeType::Scalar:
      return Quoted(node.Scalar());
    default:
      return "nothing";
  }
}

std::string TypeName(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return "a number";
    case FieldDescriptor::CPPTYPE_STRING:
      return "a text";
    case FieldDescriptor::CPPTYPE_ENUM:
      return "a name";
    default:
      return "a whole number";
  }
}

// The text being read: a file, whose places have lines, or one --set, which is its own place.
struct Source {
  std::string name;
  bool has_lines;
  std::vector<std::string> lines;

  std::string At(const YAML::Mark& mark) const {
    if (!has_lines || mark.is_null()) return name;
    return absl::StrCat(name, ":", mark.line + 1);
  }

  // YAML reads the word Null as no value, but it is also the name of an environment. (`null`, `~` and an
  // empty value stay what they are.)
  bool IsWordNull(const YAML::Node& node) const {
    const YAML::Mark mark = node.Mark();
    if (!node.IsNull() || mark.is_null() || static_cast<size_t>(mark.line) >= lines.size()) return false;
    const std::string& line = lines[static_cast<size_t>(mark.line)];
    return static_cast<size_t>(mark.column) < line.size() &&
           line.compare(static_cast<size_t>(mark.column), 4, "Null") == 0;
  }
};

// YAML's characters only: yaml-cpp stops silently at some control characters, and protobuf wants UTF-8.
Status CheckCharacters(absl::string_view text, const Source& source) {
  int line = 1;
  for (size_t i = 0; i < text.size();) {
    const unsigned char c = text[i];
    line += c == '\n';
    size_t length = 0;
    if (c < 0x80) length = absl::ascii_iscntrl(c) && c != '\n' && c != '\r' && c != '\t' ? 0 : 1;
    if (c >= 0xC2 && c <= 0xDF) length = 2;
    if (c >= 0xE0 && c <= 0xEF) length = 3;
    if (c >= 0xF0 && c <= 0xF4) length = 4;
    bool good = length > 0 && i + length <= text.size();
    for (size_t k = 1; good && k < length; ++k) good = (text[i + k] & 0xC0) == 0x80;
    if (good && length > 2) {  // overlong forms, surrogates, beyond U+10FFFF
      const unsigned char next = text[i + 1];
      good = !(c == 0xE0 && next < 0xA0) && !(c == 0xED && next > 0x9F) && !(c == 0xF0 && next < 0x90) &&
             !(c == 0xF4 && next > 0x8F);
    }
    if (!good) {
      const std::string place = source.has_lines ? absl::StrCat(source.name, ":", line) : source.name;
      return ConfigError(place, "", "a character that YAML does not allow; save it as UTF-8 text");
    }
    i += length;
  }
  return absl::OkStatus();
}

// One YAML document; a null node for an empty text.
StatusOr<YAML::Node> ParseYaml(const std::string& text, const Source& source) {
  MILL_RETURN_IF_ERROR(CheckCharacters(text, source));
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.empty()) return YAML::Node();
    if (documents.size() > 1) {
      return ConfigError(source.At(documents[1].Mark()), "", "a second YAML document; keep one");
    }
    return documents[0];
  } catch (const YAML::Exception& e) {
    const size_t line = e.mark.is_null() ? 0 : static_cast<size_t>(e.mark.line);
    // The parser often stops in the line after the tab.
    bool tab = false;
    for (size_t i = line == 0 ? 0 : line - 1; i <= line && i < source.lines.size(); ++i) {
      const std::string& content = source.lines[i];
      const std::string indent = content.substr(0, content.find_first_not_of(" \t"));
      tab |= indent.find('\t') != std::string::npos;
    }
    return ConfigError(source.At(e.mark), "",
                       absl::StrCat("not valid YAML: ", e.msg, tab ? "; indent with spaces, not tabs" : ""));
  }
}

// Writes YAML into the message and notes where each value came from.
class Reader {
 public:
  Reader(const Source& source, Origins* origins) : source_(source), origins_(origins) {}

  Status ReadSection(const YAML::Node& node, Message* message, const std::string& path,
                     const YAML::Mark& mark) {
    if (node.IsNull()) return Error(mark, path, "has no value; give its keys below it or remove it");
    if (!node.IsMap()) {
      return Error(mark, path, absl::StrCat("expected a map of keys and values, got ", Describe(node)));
    }
    MILL_RETURN_IF_ERROR(CheckKeys(node, path));
    for (const auto& entry : node) {
      const std::string& key = entry.first.Scalar();
      const FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(key);
      if (field == nullptr) {
        return Error(entry.first.Mark(), JoinPath(path, key),
                     UnknownKey(*message->GetDescriptor(), path, key));
      }
      MILL_RETURN_IF_ERROR(ReadField(entry.second, message, *field, JoinPath(path, key), entry.first.Mark()));
    }
    return absl::OkStatus();
  }

  Status ReadField(const YAML::Node& node, Message* message, const FieldDescriptor& field,
                   const std::string& path, const YAML::Mark& mark) {
    if (IsSection(field)) {
      return ReadSection(node, message->GetReflection()->MutableMessage(message, &field), path, mark);
    }
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING && source_.IsWordNull(node)) {
      return ReadField(YAML::Node("Null"), message, field, path, mark);
    }
    if (node.IsNull()) return Error(mark, path, "has no value; give one or remove the key");
    origins_->Set(path, source_.At(mark));
    if (field.is_map()) return ReadParams(node, message, field, path, mark);
    if (field.is_repeated()) return ReadList(node, message, field, path, mark);
    if (!node.IsScalar()) {
      return Error(mark, path, absl::StrCat("expected ", TypeName(field), ", got ", Describe(node)));
    }
    return ReadScalar(node.Scalar(), message, field, path, mark);
  }

  // One entry of a map field, over what is there.
  Status ReadParam(const std::string& key, const YAML::Node& node, Message* message,
                   const FieldDescriptor& field, const std::string& path, const YAML::Mark& mark) {
    if (key.empty()) return Error(mark, path, "a name is empty; name the setting");
    const bool null = source_.IsWordNull(node);
    if (!node.IsScalar() && !null) {
      return Error(mark, path, absl::StrCat("expected a single value, got ", Describe(node)));
    }
    origins_->Set(path, source_.At(mark));
    const FieldDescriptor* name = field.message_type()->FindFieldByNumber(1);
    const FieldDescriptor* value = field.message_type()->FindFieldByNumber(2);
    const Reflection& r = *message->GetReflection();
    Message* entry = nullptr;
    for (int i = 0; i < r.FieldSize(*message, &field) && entry == nullptr; ++i) {
      Message* old = r.MutableRepeatedMessage(message, &field, i);
      if (old->GetReflection()->GetString(*old, name) == key) entry = old;
    }
    if (entry == nullptr) entry = r.AddMessage(message, &field);
    entry->GetReflection()->SetString(entry, name, key);
    entry->GetReflection()->SetString(entry, value, null ? "Null" : node.Scalar());
    return absl::OkStatus();
  }

 private:
  Status Error(const YAML::Mark& mark, const std::string& path, absl::string_view what) const {
    return ConfigError(source_.At(mark), path, what);
  }

  // Keys are scalars and each is there once (yaml-cpp keeps both of two equal ones).
  Status CheckKeys(const YAML::Node& node, const std::string& path) const {
    std::map<std::string, int> lines;
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) return Error(entry.first.Mark(), path, "a key must be a plain word");
      const std::string& key = entry.first.Scalar();
      const auto inserted = lines.emplace(key, entry.first.Mark().line + 1);
      if (inserted.second) continue;
      const std::string first =
          source_.has_lines ? absl::StrCat(", first in line ", inserted.first->second) : "";
      return Error(entry.first.Mark(), JoinPath(path, key),
                   absl::StrCat("given twice", first, "; remove one"));
    }
    return absl::OkStatus();
  }

  Status ReadParams(const YAML::Node& node, Message* message, const FieldDescriptor& field,
                    const std::string& path, const YAML::Mark& mark) {
    if (!node.IsMap()) {
      return Error(mark, path, absl::StrCat("expected a map of names and values, got ", Describe(node)));
    }
    MILL_RETURN_IF_ERROR(CheckKeys(node, path));
    for (const auto& entry : node) {
      const std::string& key = entry.first.Scalar();
      MILL_RETURN_IF_ERROR(
          ReadParam(key, entry.second, message, field, JoinPath(path, key), entry.first.Mark()));
    }
    return absl::OkStatus();
  }

  // Lists are of whole numbers (policy.hidden); a list replaces the one before it. An empty one cannot be
  // told from an absent one in protobuf, so it is refused where it would not mean the same.
  Status ReadList(const YAML::Node& node, Message* message, const FieldDescriptor& field,
                  const std::string& path, const YAML::Mark& mark) {
    MILL_CHECK(field.cpp_type() == FieldDescriptor::CPPTYPE_UINT32);
    const bool may_be_empty = field.options().GetExtension(v1::rule).empty();
    if (!node.IsSequence() || (node.size() == 0 && !may_be_empty)) {
      return Error(mark, path,
                   absl::StrCat("expected a list of whole numbers like [64, 64], got ",
                                node.IsSequence() ? "an empty one" : Describe(node)));
    }
    message->GetReflection()->ClearField(message, &field);
    for (size_t i = 0; i < node.size(); ++i) {
      const YAML::Node& element = node[i];
      const std::string which = absl::StrCat("element ", i + 1, ": ");
      if (!element.IsScalar()) {
        return Error(element.Mark(), path,
                     absl::StrCat(which, "expected a whole number, got ", Describe(element)));
      }
      absl::int128 value = 0;
      const Status status = ParseInto(element.Scalar(), field, &value);
      if (!status.ok()) return Error(element.Mark(), path, absl::StrCat(which, status.message()));
      message->GetReflection()->AddUInt32(message, &field, static_cast<uint32_t>(value));
    }
    return absl::OkStatus();
  }

  // A whole number that the field's type can hold; whether the schema allows it is Validate's question.
  static Status ParseInto(const std::string& text, const FieldDescriptor& field, absl::int128* value) {
    MILL_ASSIGN_OR_RETURN(*value, ParseWhole(text));
    const Range range(field);
    if (range.TypeHolds(*value)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(text, " is out of range; ", range.Text(static_cast<double>(*value))));
  }

  Status ReadScalar(const std::string& text, Message* message, const FieldDescriptor& field,
                    const std::string& path, const YAML::Mark& mark) {
    const Status status = SetScalar(text, message, field);
    return status.ok() ? status : Error(mark, path, status.message());
  }

  static Status SetScalar(const std::string& text, Message* message, const FieldDescriptor& field) {
    const Reflection& r = *message->GetReflection();
    absl::int128 whole = 0;
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_STRING:
        r.SetString(message, &field, text);
        return absl::OkStatus();
      case FieldDescriptor::CPPTYPE_BOOL: {
        MILL_ASSIGN_OR_RETURN(const bool value, ParseBool(text));
        r.SetBool(message, &field, value);
        return absl::OkStatus();
      }
      case FieldDescriptor::CPPTYPE_DOUBLE: {
        MILL_ASSIGN_OR_RETURN(const double value, ParseReal(text));
        r.SetDouble(message, &field, value);
        return absl::OkStatus();
      }
      case FieldDescriptor::CPPTYPE_ENUM: {
        const EnumValueDescriptor* value = FindYamlName(*field.enum_type(), text);
        if (value == nullptr) return UnknownEnumName(*field.enum_type(), text);
        r.SetEnum(message, &field, value);
        return absl::OkStatus();
      }
      default:
        break;
    }
    MILL_RETURN_IF_ERROR(ParseInto(text, field, &whole));
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_UINT32:
        r.SetUInt32(message, &field, static_cast<uint32_t>(whole));
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        r.SetUInt64(message, &field, static_cast<uint64_t>(whole));
        break;
      case FieldDescriptor::CPPTYPE_INT32:
        r.SetInt32(message, &field, static_cast<int32_t>(whole));
        break;
      default:
        MILL_CHECK(false);  // a type that the schema does not use yet
    }
    return absl::OkStatus();
  }

  const Source& source_;
  Origins* origins_;
};

Status ReadFile(const std::string& text, const std::string& file_name, v1::RunConfig* config,
                Origins* origins) {
  const Source source{file_name, true, absl::StrSplit(text, '\n')};
  MILL_ASSIGN_OR_RETURN(const YAML::Node root, ParseYaml(text, source));
  if (root.IsNull()) return absl::OkStatus();  // empty: the overrides may say everything
  if (!root.IsMap()) {
    return ConfigError(
        source.At(root.Mark()), "",
        absl::StrCat("expected sections (`env:`, `ppo:` ...) at the top, got ", Describe(root)));
  }
  return Reader(source, origins).ReadSection(root, config, "", root.Mark());
}

Status ReadOverride(const std::string& text, v1::RunConfig* config, Origins* origins) {
  const size_t equals = text.find('=');
  const std::string value_text = equals == std::string::npos ? "" : text.substr(equals + 1);
  const Source source{absl::StrCat("--set ", text), false, {value_text}};
  if (equals == std::string::npos || equals == 0) {
    return ConfigError(source.name, "", "expected key.path=value, for example ppo.epochs=4");
  }
  MILL_RETURN_IF_ERROR(CheckCharacters(text, Source{"--set", false, {}}));
  MILL_ASSIGN_OR_RETURN(YAML::Node value, ParseYaml(value_text, source));

  Message* message = config;
  std::string path;
  const std::vector<std::string> keys = absl::StrSplit(text.substr(0, equals), '.');
  for (size_t i = 0; i < keys.size(); ++i) {
    const FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(keys[i]);
    const std::string parent = path;
    path = JoinPath(path, keys[i]);
    if (field == nullptr) {
      return ConfigError(source.name, path, UnknownKey(*message->GetDescriptor(), parent, keys[i]));
    }
    const bool last = i + 1 == keys.size();
    const bool text_field =
        field->cpp_type() == FieldDescriptor::CPPTYPE_STRING || (field->is_map() && !last);
    if (value_text.empty() && text_field) value = YAML::Node("");  // `run.dir=` sets an empty text
    Reader reader(source, origins);
    if (last) return reader.ReadField(value, message, *field, path, YAML::Mark::null_mark());
    if (field->is_map()) {
      const std::string name = absl::StrJoin(keys.begin() + static_cast<long>(i) + 1, keys.end(), ".");
      return reader.ReadParam(name, value, message, *field, JoinPath(path, name), YAML::Mark::null_mark());
    }
    if (!IsSection(*field)) {
      return ConfigError(source.name, JoinPath(path, keys[i + 1]),
                         absl::StrCat("unknown key; ", path, " is a value, not a section"));
    }
    message = message->GetReflection()->MutableMessage(message, field);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace config_internal

StatusOr<RunOptions> LoadConfig(std::string_view text, std::string_view file_name,
                                std::span<const std::string> overrides) {
  v1::RunConfig config;
  config_internal::Origins origins((std::string(file_name)));
  MILL_RETURN_IF_ERROR(
      config_internal::ReadFile(std::string(text), std::string(file_name), &config, &origins));
  for (const std::string& override_text : overrides) {
    MILL_RETURN_IF_ERROR(config_internal::ReadOverride(override_text, &config, &origins));
  }
  RunOptions options = config_internal::FromProto(config);
  // Who sets the limiter's own ratio need not take back the default of the other.
  if (options.replay.samples_per_insert > 0 && !origins.Given("sac.updates_per_step")) {
    options.sac.updates_per_step = 0;
  }
  MILL_RETURN_IF_ERROR(config_internal::ValidateWithOrigins(options, origins));
  return options;
}

}  // namespace millrace
