// The schema, the plain options and the list of fields between them are the same, field by field.
#include "common/config/schema.h"

#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/config/config.h"
#include "common/config/fields.h"

namespace millrace::config_internal {
namespace {

// How many members an aggregate has: the most initializers that it takes.
struct Anything {
  template <class T>
  operator T() const;
};
template <class T, class... Args>
constexpr size_t CountMembers() {
  if constexpr (requires { T{Args{}..., Anything{}}; }) {
    return CountMembers<T, Args..., Anything>();
  } else {
    return sizeof...(Args);
  }
}

TEST(Schema, EveryPlainMemberIsInTheSchema) {
  EXPECT_EQ(CountMembers<RunOptions>(), v1::RunConfig::descriptor()->field_count());
  EXPECT_EQ(CountMembers<RunSection>(), v1::RunSection::descriptor()->field_count());
  EXPECT_EQ(CountMembers<EnvSection>(), v1::EnvSection::descriptor()->field_count());
  EXPECT_EQ(CountMembers<PolicySection>(), v1::PolicySection::descriptor()->field_count());
  EXPECT_EQ(CountMembers<PpoSection>(), v1::PpoSection::descriptor()->field_count());
  EXPECT_EQ(CountMembers<SacSection>(), v1::SacSection::descriptor()->field_count());
  EXPECT_EQ(CountMembers<ReplaySection>(), v1::ReplaySection::descriptor()->field_count());
  EXPECT_EQ(CountMembers<EvalSection>(), v1::EvalSection::descriptor()->field_count());
  EXPECT_EQ(CountMembers<CheckpointSection>(), v1::CheckpointSection::descriptor()->field_count());
  EXPECT_EQ(CountMembers<MetricsSection>(), v1::MetricsSection::descriptor()->field_count());
  EXPECT_EQ(CountMembers<ActorsSection>(), v1::ActorsSection::descriptor()->field_count());
  EXPECT_EQ(CountMembers<LearnerSection>(), v1::LearnerSection::descriptor()->field_count());
}

void Paths(const Descriptor& section, const std::string& prefix, std::vector<std::string>* paths) {
  for (int i = 0; i < section.field_count(); ++i) {
    const std::string path = JoinPath(prefix, section.field(i)->name());
    if (IsSection(*section.field(i))) {
      Paths(*section.field(i)->message_type(), path, paths);
    } else {
      paths->push_back(path);
    }
  }
}

TEST(Schema, FieldsAreTheSameInTheSameOrder) {
  std::vector<std::string> schema, list;
  Paths(*v1::RunConfig::descriptor(), "", &schema);
  RunOptions options;
  VisitFields(options, [&](const char* path, auto&) { list.push_back(path); });
  EXPECT_EQ(schema, list);
}

// Makes every field differ from what `message` has, each differently.
void Disturb(Message* message, int* salt) {
  const Reflection& r = *message->GetReflection();
  for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* f = message->GetDescriptor()->field(i);
    const int n = ++*salt;
    if (IsSection(*f)) {
      Disturb(r.MutableMessage(message, f), salt);
    } else if (f->is_map()) {
      for (const char* name : {"a", "b"}) {
        Message* entry = r.AddMessage(message, f);
        entry->GetReflection()->SetString(entry, f->message_type()->field(0), absl::StrCat(name, n));
        entry->GetReflection()->SetString(entry, f->message_type()->field(1), absl::StrCat("value ", name));
      }
    } else if (f->is_repeated()) {
      r.AddUInt32(message, f, static_cast<uint32_t>(n));
    } else {
      switch (f->cpp_type()) {
        case FieldDescriptor::CPPTYPE_STRING:
          r.SetString(message, f, absl::StrCat("text ", n));
          break;
        case FieldDescriptor::CPPTYPE_BOOL:
          r.SetBool(message, f, !r.GetBool(*message, f));
          break;
        case FieldDescriptor::CPPTYPE_UINT32:
          r.SetUInt32(message, f, r.GetUInt32(*message, f) + n);
          break;
        case FieldDescriptor::CPPTYPE_UINT64:
          r.SetUInt64(message, f, r.GetUInt64(*message, f) + n);
          break;
        case FieldDescriptor::CPPTYPE_INT32:
          r.SetInt32(message, f, r.GetInt32(*message, f) + n);
          break;
        case FieldDescriptor::CPPTYPE_DOUBLE:
          r.SetDouble(message, f, r.GetDouble(*message, f) + n * 0.37);
          break;
        case FieldDescriptor::CPPTYPE_ENUM: {
          const int last = f->enum_type()->value_count() - 1;
          const int other = r.GetEnumValue(*message, f) == last ? 0 : last;
          r.SetEnumValue(message, f, other);
          break;
        }
        default:
          FAIL() << f->full_name() << ": a type that this test does not know";
      }
    }
  }
}

TEST(Schema, EveryFieldSurvivesTheRoundTrip) {
  v1::RunConfig config = ToProto(RunOptions());
  const v1::RunConfig defaults = config;
  int salt = 0;
  Disturb(&config, &salt);

  const RunOptions plain = FromProto(config);
  const v1::RunConfig again = ToProto(plain);
  std::string difference;
  google::protobuf::util::MessageDifferencer differ;
  differ.ReportDifferencesToString(&difference);
  differ.set_message_field_comparison(google::protobuf::util::MessageDifferencer::EQUAL);
  EXPECT_TRUE(differ.Compare(config, again)) << difference;
  EXPECT_FALSE(google::protobuf::util::MessageDifferencer::Equals(config, defaults));

  // Each single field, for a field that two others hide would pass above.
  std::vector<std::string> same;
  const RunOptions default_options;
  std::map<std::string, std::string> before, after;
  const auto note = [](std::map<std::string, std::string>* out) {
    return [out](const char* path, const auto& value) {
      RunOptions o;
      VisitFields(o, [&](const char* other, auto& member) {
        if constexpr (std::is_same_v<std::decay_t<decltype(member)>, std::decay_t<decltype(value)>>) {
          if (std::string(path) == other) member = value;
        }
      });
      (*out)[path] = ToYaml(o);
    };
  };
  VisitFields(default_options, note(&before));
  VisitFields(plain, note(&after));
  for (const auto& entry : before) {
    if (after[entry.first] == entry.second) same.push_back(entry.first);
  }
  EXPECT_TRUE(same.empty()) << "unchanged by its conversion: " << same.front();
}

TEST(Schema, EveryEnumValueHasAName) {
  for (const EnumDescriptor* type :
       {v1::Activation_descriptor(), v1::AdvantageNorm_descriptor(), v1::Schedule_descriptor(),
        v1::OnNonfinite_descriptor(), v1::RunMode_descriptor(), v1::TransportChoice_descriptor(),
        v1::OnLost_descriptor(), v1::Correction_descriptor()}) {
    for (int i = 0; i < type->value_count(); ++i) {
      const std::string name = YamlName(*type->value(i));
      EXPECT_FALSE(name.empty());
      EXPECT_FALSE(absl::StrContains(name, "_")) << name;
      EXPECT_EQ(FindYamlName(*type, name), type->value(i));
    }
  }
  EXPECT_EQ(YamlName(*v1::OnNonfinite_descriptor()->value(1)), "skip");
}

// The comment above a field ends with its default; it must be the one of common/options.h.
TEST(Schema, CommentsStateTheDefaults) {
  std::ifstream file(MILLRACE_CONFIG_PROTO);
  ASSERT_TRUE(file.good()) << MILLRACE_CONFIG_PROTO;
  std::map<std::string, std::string> documented;  // "ppo.gamma" -> "0.99"
  std::string line, comment, message;
  std::map<std::string, std::string> section_of;  // "PpoSection" -> "ppo"
  const Descriptor& root = *v1::RunConfig::descriptor();
  for (int i = 0; i < root.field_count(); ++i) {
    if (IsSection(*root.field(i))) section_of[root.field(i)->message_type()->name()] = root.field(i)->name();
  }
  while (std::getline(file, line)) {
    const std::vector<std::string> words = absl::StrSplit(absl::StripAsciiWhitespace(line), ' ');
    if (words[0] == "//") {
      absl::StrAppend(&comment, " ", absl::StripAsciiWhitespace(line).substr(2));
    } else {
      if (words[0] == "message") message = words[1];
      const size_t at = comment.rfind("Default ");
      const size_t equals = line.find(" = ");
      if (at != std::string::npos && equals != std::string::npos) {
        const std::vector<std::string> left = absl::StrSplit(line.substr(0, equals), ' ');
        std::string value = comment.substr(at + 8);
        value = value.substr(0, value.find(value.find(". Read") != std::string::npos ? ". Read" : ": "));
        while (!value.empty() && value.back() == '.') value.pop_back();
        documented[JoinPath(section_of[message], left.back())] = value;
      }
      comment.clear();
    }
  }
  std::vector<std::string> paths;
  Paths(root, "", &paths);
  const std::string yaml = ToYaml(RunOptions());
  std::string section;
  size_t seen = 0;
  for (const auto& yaml_line : absl::StrSplit(yaml, '\n')) {
    const std::vector<std::string> parts = absl::StrSplit(yaml_line, absl::MaxSplits(": ", 1));
    if (parts.size() < 2) {
      section = std::string(absl::StripSuffix(yaml_line, ":"));
      continue;
    }
    const bool top = parts[0][0] != ' ';
    const std::string path = JoinPath(top ? "" : section, std::string(absl::StripAsciiWhitespace(parts[0])));
    const std::string value = documented[path] == "empty" ? "\"\"" : documented[path];
    EXPECT_EQ(value, parts[1]) << path << ": config.proto's comment and common/options.h differ";
    ++seen;
  }
  EXPECT_EQ(seen, paths.size());
}

}  // namespace
}  // namespace millrace::config_internal
