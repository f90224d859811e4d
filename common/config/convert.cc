// Plain options to protobuf and back, and the form inside checkpoints.
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/type_resolver.h>
#include <google/protobuf/util/type_resolver_util.h>

#include <memory>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/config/config.h"
#include "common/config/fields.h"
#include "common/config/schema.h"

namespace millrace {
namespace config_internal {
namespace {

// Enums cross by number, so both sides' numbers are one contract.
static_assert(static_cast<int>(Activation::kNone) == v1::ACTIVATION_NONE);
static_assert(static_cast<int>(Activation::kTanh) == v1::ACTIVATION_TANH);
static_assert(static_cast<int>(Activation::kRelu) == v1::ACTIVATION_RELU);
static_assert(static_cast<int>(Activation::kGelu) == v1::ACTIVATION_GELU);
static_assert(static_cast<int>(Activation::kSilu) == v1::ACTIVATION_SILU);
static_assert(static_cast<int>(AdvantageNorm::kMinibatch) == v1::ADVANTAGE_NORM_MINIBATCH);
static_assert(static_cast<int>(AdvantageNorm::kBatch) == v1::ADVANTAGE_NORM_BATCH);
static_assert(static_cast<int>(AdvantageNorm::kOff) == v1::ADVANTAGE_NORM_OFF);
static_assert(static_cast<int>(Schedule::kConstant) == v1::SCHEDULE_CONSTANT);
static_assert(static_cast<int>(Schedule::kLinear) == v1::SCHEDULE_LINEAR);
static_assert(static_cast<int>(Schedule::kCosine) == v1::SCHEDULE_COSINE);
static_assert(static_cast<int>(OnNonfinite::kStop) == v1::ON_NONFINITE_STOP);
static_assert(static_cast<int>(OnNonfinite::kSkip) == v1::ON_NONFINITE_SKIP);
static_assert(static_cast<int>(RunMode::kSync) == v1::RUN_MODE_SYNC);
static_assert(static_cast<int>(RunMode::kAsync) == v1::RUN_MODE_ASYNC);
static_assert(static_cast<int>(TransportChoice::kAuto) == v1::TRANSPORT_CHOICE_AUTO);
static_assert(static_cast<int>(TransportChoice::kShm) == v1::TRANSPORT_CHOICE_SHM);
static_assert(static_cast<int>(TransportChoice::kGrpc) == v1::TRANSPORT_CHOICE_GRPC);
static_assert(static_cast<int>(OnLost::kReassign) == v1::ON_LOST_REASSIGN);
static_assert(static_cast<int>(OnLost::kWait) == v1::ON_LOST_WAIT);
static_assert(static_cast<int>(Correction::kVtrace) == v1::CORRECTION_VTRACE);
static_assert(static_cast<int>(Correction::kRatio) == v1::CORRECTION_RATIO);

// The two fields of a map's entry, as descriptors see them.
const FieldDescriptor* EntryField(const FieldDescriptor* map, int number) {
  return map->message_type()->FindFieldByNumber(number);
}

const FieldDescriptor* FieldOf(const Message& message, const std::string& name) {
  const FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(name);
  MILL_CHECK(field != nullptr);  // fields.h names what the schema lacks
  return field;
}

class Writer {
 public:
  explicit Writer(v1::RunConfig* root) : root_(root) {}

  template <class T>
  void operator()(const char* path, const T& value) {
    Message* message = root_;
    const std::vector<std::string> keys = absl::StrSplit(path, '.');
    for (size_t i = 0; i + 1 < keys.size(); ++i) {
      message = message->GetReflection()->MutableMessage(message, FieldOf(*message, keys[i]));
    }
    Put(message, message->GetReflection(), FieldOf(*message, keys.back()), value);
  }

 private:
  using R = const Reflection*;
  using F = const FieldDescriptor*;
  static void Put(Message* m, R r, F f, const std::string& v) { r->SetString(m, f, v); }
  static void Put(Message* m, R r, F f, bool v) { r->SetBool(m, f, v); }
  static void Put(Message* m, R r, F f, uint32_t v) { r->SetUInt32(m, f, v); }
  static void Put(Message* m, R r, F f, uint64_t v) { r->SetUInt64(m, f, v); }
  static void Put(Message* m, R r, F f, int32_t v) { r->SetInt32(m, f, v); }
  static void Put(Message* m, R r, F f, double v) { r->SetDouble(m, f, v); }
  static void Put(Message* m, R r, F f, const std::vector<uint32_t>& values) {
    for (uint32_t v : values) r->AddUInt32(m, f, v);
  }
  static void Put(Message* m, R r, F f, const std::map<std::string, std::string>& entries) {
    for (const auto& entry : entries) {
      Message* e = r->AddMessage(m, f);
      e->GetReflection()->SetString(e, EntryField(f, 1), entry.first);
      e->GetReflection()->SetString(e, EntryField(f, 2), entry.second);
    }
  }
  template <class E, std::enable_if_t<std::is_enum_v<E>, int> = 0>
  static void Put(Message* m, R r, F f, E v) {
    r->SetEnumValue(m, f, static_cast<int>(v));
  }

  v1::RunConfig* root_;
};

class Reader {
 public:
  explicit Reader(const v1::RunConfig& root) : root_(root) {}

  template <class T>
  void operator()(const char* path, T& value) {
    const Message* message = &root_;
    const std::vector<std::string> keys = absl::StrSplit(path, '.');
    for (size_t i = 0; i + 1 < keys.size(); ++i) {
      message = &message->GetReflection()->GetMessage(*message, FieldOf(*message, keys[i]));
    }
    const FieldDescriptor* field = FieldOf(*message, keys.back());
    const Reflection* reflection = message->GetReflection();
    const bool present = field->is_repeated() ? reflection->FieldSize(*message, field) > 0
                                              : reflection->HasField(*message, field);
    if (present) Take(*message, reflection, field, value);
  }

 private:
  using R = const Reflection*;
  using F = const FieldDescriptor*;
  static void Take(const Message& m, R r, F f, std::string& v) { v = r->GetString(m, f); }
  static void Take(const Message& m, R r, F f, bool& v) { v = r->GetBool(m, f); }
  static void Take(const Message& m, R r, F f, uint32_t& v) { v = r->GetUInt32(m, f); }
  static void Take(const Message& m, R r, F f, uint64_t& v) { v = r->GetUInt64(m, f); }
  static void Take(const Message& m, R r, F f, int32_t& v) { v = r->GetInt32(m, f); }
  static void Take(const Message& m, R r, F f, double& v) { v = r->GetDouble(m, f); }
  static void Take(const Message& m, R r, F f, std::vector<uint32_t>& values) {
    values.clear();
    for (int i = 0; i < r->FieldSize(m, f); ++i) values.push_back(r->GetRepeatedUInt32(m, f, i));
  }
  static void Take(const Message& m, R r, F f, std::map<std::string, std::string>& entries) {
    entries.clear();
    for (int i = 0; i < r->FieldSize(m, f); ++i) {
      const Message& e = r->GetRepeatedMessage(m, f, i);
      entries[e.GetReflection()->GetString(e, EntryField(f, 1))] =
          e.GetReflection()->GetString(e, EntryField(f, 2));
    }
  }
  // proto3's enums are open: a number from a later version is as good as absent.
  template <class E, std::enable_if_t<std::is_enum_v<E>, int> = 0>
  static void Take(const Message& m, R r, F f, E& v) {
    const int number = r->GetEnumValue(m, f);
    if (f->enum_type()->FindValueByNumber(number) != nullptr) v = static_cast<E>(number);
  }

  const v1::RunConfig& root_;
};

}  // namespace

v1::RunConfig ToProto(const RunOptions& options) {
  v1::RunConfig config;
  VisitFields(options, Writer(&config));
  return config;
}

RunOptions FromProto(const v1::RunConfig& config) {
  RunOptions options;
  VisitFields(options, Reader(config));
  return options;
}

}  // namespace config_internal

std::string SerializeConfig(const RunOptions& options) {
  namespace pb = google::protobuf;
  // Through deterministic binary: maps have no order of their own, and a checkpoint's bytes must not vary.
  std::string binary, text;
  {
    pb::io::StringOutputStream stream(&binary);
    pb::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    MILL_CHECK(config_internal::ToProto(options).SerializeToCodedStream(&coded));
  }
  const std::string host = "type.googleapis.com";
  const std::unique_ptr<pb::util::TypeResolver> resolver(
      pb::util::NewTypeResolverForDescriptorPool(host, pb::DescriptorPool::generated_pool()));
  const std::string type = absl::StrCat(host, "/", std::string(v1::RunConfig::descriptor()->full_name()));
  pb::util::JsonPrintOptions json;
  json.preserve_proto_field_names = true;
  MILL_CHECK(pb::util::BinaryToJsonString(resolver.get(), type, binary, &text, json).ok());
  return text;
}

StatusOr<RunOptions> ParseConfig(std::string_view bytes) {
  google::protobuf::util::JsonParseOptions json;
  json.ignore_unknown_fields = true;
  v1::RunConfig config;
  const auto status = google::protobuf::util::JsonStringToMessage(
      google::protobuf::StringPiece(bytes.data(), bytes.size()), &config, json);
  if (!status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "stored configuration: not the JSON that SerializeConfig writes: ", std::string(status.message())));
  }
  RunOptions options = config_internal::FromProto(config);
  MILL_RETURN_IF_ERROR(Validate(options));
  return options;
}

}  // namespace millrace
