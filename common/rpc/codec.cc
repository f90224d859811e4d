// Messages to generated types and back, and the walk over a segment's frame, which no generated parser sees:
// its payload stays where it is.
#include "common/rpc/codec.h"

#include <google/protobuf/stubs/logging.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "common/rpc/weights_codec.h"
#include "common/rpc/wire.h"
#include "common/text.h"
#include "millrace/v1/trajectory.pb.h"

namespace millrace {
namespace {

constexpr size_t kMaxNameBytes = 256;   // an actor's name, which becomes a label and a table's cell
constexpr size_t kMaxTextBytes = 4096;  // a sentence for people
constexpr uint32_t kMaxRingSlots = uint32_t{1} << 20;
constexpr uint64_t kMaxRingStride = uint64_t{1} << 40;
constexpr int32_t kLastStatusCode = 16;  // UNAUTHENTICATED

// Our errors name what is malformed. Protobuf's own lines on stderr would let strangers write there.
[[maybe_unused]] google::protobuf::LogHandler* const kProtobufsLog = google::protobuf::SetLogHandler(nullptr);

template <typename... Ts>
Status Refuse(const Ts&... parts) {
  return absl::InvalidArgumentError(Cat(parts...));
}

// No check covers the framing of a segment, so what is wrong with it may be damage.
template <typename... Ts>
Status Misframed(const Ts&... parts) {
  return absl::DataLossError(Cat(parts...));
}

// What a peer says to people is shown on terminals and in logs: no control characters, no end of the world.
std::string ForPeople(std::string text) {
  if (text.size() > kMaxTextBytes) {
    size_t end = kMaxTextBytes;
    while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) --end;  // not within a character
    text.resize(end);
  }
  for (char& c : text) {
    if (static_cast<uint8_t>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  return text;
}

// Of our own making, but perhaps with bytes of a file's or a host's name: what is not ASCII would be refused
// by the peer's parser where it is not UTF-8.
std::string Ascii(std::string text) {
  for (char& c : text) {
    if (static_cast<uint8_t>(c) >= 0x80) c = '?';
  }
  return ForPeople(std::move(text));
}

// ---- the actor's messages ----

void Put(const Hello& from, v1::ActorMessage& to) {
  v1::Hello& hello = *to.mutable_hello();
  hello.set_protocol_min(from.protocol_min);
  hello.set_protocol_max(from.protocol_max);
  hello.set_program_version(from.program_version);
  hello.set_actor(from.actor);
  hello.set_incarnation(from.incarnation);
  hello.set_host(Ascii(from.host));
  hello.set_pid(from.pid);
  hello.set_threads(from.threads);
  hello.set_kernel_bits(from.kernel_bits);
  hello.set_transport_note(Ascii(from.transport_note));
}

StatusOr<ActorMessage> Get(v1::Hello& from) {
  if (from.actor().empty()) return Refuse("hello.actor: missing");
  if (from.actor().size() > kMaxNameBytes) {
    return Refuse("hello.actor: ", from.actor().size(), " bytes, at most ", kMaxNameBytes, " are allowed");
  }
  for (const char c : from.actor()) {
    if (static_cast<uint8_t>(c) < 0x20 || c == 0x7F) return Refuse("hello.actor: has a control character");
  }
  if (from.protocol_min() > from.protocol_max()) {
    return Refuse("hello.protocol_min: ", from.protocol_min(), " is above protocol_max, ",
                  from.protocol_max());
  }
  Hello hello;
  hello.protocol_min = from.protocol_min();
  hello.protocol_max = from.protocol_max();
  hello.program_version = ForPeople(std::move(*from.mutable_program_version()));
  hello.actor = std::move(*from.mutable_actor());
  hello.incarnation = from.incarnation();
  hello.host = ForPeople(std::move(*from.mutable_host()));
  hello.pid = from.pid();
  hello.threads = from.threads();
  hello.kernel_bits = from.kernel_bits();
  hello.transport_note = ForPeople(std::move(*from.mutable_transport_note()));
  return hello;
}

void Put(const Ready& from, v1::ActorMessage& to) {
  to.mutable_ready()->set_layout_hash(from.layout_hash);
  to.mutable_ready()->set_layout(from.layout);
}

StatusOr<ActorMessage> Get(v1::Ready& from) {
  return Ready{from.layout_hash(), std::move(*from.mutable_layout())};
}

void Put(const Heartbeat& from, v1::ActorMessage& to) {
  v1::Heartbeat& beat = *to.mutable_heartbeat();
  beat.set_steps(from.stats.steps);
  beat.set_segments(from.stats.segments);
  beat.set_policy_version(from.stats.policy_version);
  beat.set_unacknowledged(from.stats.unacknowledged);
  beat.set_env_seconds(from.stats.env_seconds);
  beat.set_inference_seconds(from.stats.inference_seconds);
  beat.set_wait_weights_seconds(from.stats.wait_weights_seconds);
  beat.set_wait_credit_seconds(from.stats.wait_credit_seconds);
  beat.set_send_seconds(from.stats.send_seconds);
  if (from.received.has_value()) beat.set_received(*from.received);
}

StatusOr<ActorMessage> Get(v1::Heartbeat& from) {
  const std::pair<const char*, double> times[] = {{"env_seconds", from.env_seconds()},
                                                  {"inference_seconds", from.inference_seconds()},
                                                  {"wait_weights_seconds", from.wait_weights_seconds()},
                                                  {"wait_credit_seconds", from.wait_credit_seconds()},
                                                  {"send_seconds", from.send_seconds()}};
  for (const auto& time : times) {
    if (!std::isfinite(time.second) || time.second < 0) {
      return Refuse("heartbeat.", time.first, ": ", time.second, " is no time");
    }
  }
  Heartbeat beat;
  beat.stats = {
      from.steps(),       from.segments(),          from.policy_version(),       from.unacknowledged(),
      from.env_seconds(), from.inference_seconds(), from.wait_weights_seconds(), from.wait_credit_seconds(),
      from.send_seconds()};
  if (from.has_received()) beat.received = from.received();
  return beat;
}

void Put(const Goodbye& from, v1::ActorMessage& to) {
  to.mutable_goodbye()->set_reason(Ascii(from.reason));
}

StatusOr<ActorMessage> Get(v1::Goodbye& from) {
  return Goodbye{ForPeople(std::move(*from.mutable_reason()))};
}

// ---- the learner's messages ----

void Put(const Welcome& from, v1::LearnerMessage& to) {
  v1::Welcome& welcome = *to.mutable_welcome();
  welcome.set_protocol(from.protocol);
  welcome.set_program_version(from.program_version);
  welcome.set_run_id(from.run_id);
  welcome.set_learner_incarnation(from.learner_incarnation);
  welcome.set_config(from.config);
  welcome.set_lease_ms(from.lease_ms);
  welcome.set_heartbeat_ms(from.heartbeat_ms);
  welcome.set_layout_hash(from.layout_hash);
  welcome.set_layout(from.layout);
}

StatusOr<LearnerFrame> Get(v1::Welcome& from) {
  if (from.lease_ms() == 0) return Refuse("welcome.lease_ms: must be above 0");
  if (from.heartbeat_ms() == 0) return Refuse("welcome.heartbeat_ms: must be above 0");
  Welcome welcome;
  welcome.protocol = from.protocol();
  welcome.program_version = ForPeople(std::move(*from.mutable_program_version()));
  welcome.run_id = std::move(*from.mutable_run_id());
  welcome.learner_incarnation = from.learner_incarnation();
  welcome.config = std::move(*from.mutable_config());
  welcome.lease_ms = from.lease_ms();
  welcome.heartbeat_ms = from.heartbeat_ms();
  welcome.layout_hash = from.layout_hash();
  welcome.layout = std::move(*from.mutable_layout());
  return LearnerMessage(std::move(welcome));
}

void Put(const Lease& from, v1::LearnerMessage& to) {
  v1::Lease& lease = *to.mutable_lease();
  for (const uint32_t group : from.drop) lease.add_drop(group);
  for (const LeasedGroup& group : from.add) {
    v1::LeasedGroup& added = *lease.add_add();
    added.set_group(group.group);
    added.set_lease(group.lease);
    added.set_first_row(group.first_row);
    added.set_rows(group.rows);
    added.set_next_step(group.next_step);
    added.set_state(group.state);
  }
}

StatusOr<LearnerFrame> Get(v1::Lease& from) {
  Lease lease;
  lease.drop.assign(from.drop().begin(), from.drop().end());
  lease.add.reserve(static_cast<size_t>(from.add_size()));
  for (v1::LeasedGroup& group : *from.mutable_add()) {
    if (group.rows() == 0 || group.rows() > std::numeric_limits<uint32_t>::max() - group.first_row()) {
      return Refuse("lease.add.rows: group ", group.group(), " has ", group.rows(), " rows from row ",
                    group.first_row());
    }
    lease.add.push_back({group.group(), group.lease(), group.first_row(), group.rows(), group.next_step(),
                         std::move(*group.mutable_state())});
  }
  return LearnerMessage(std::move(lease));
}

void Put(const Grant& from, v1::LearnerMessage& to) {
  v1::Grant& grant = *to.mutable_grant();
  grant.set_exact(from.exact);
  grant.set_policy_version(from.policy_version);
  grant.set_bytes(from.bytes);
  grant.set_acknowledged(from.acknowledged);
  for (const GroupGrant& group : from.groups) {
    v1::GroupGrant& added = *grant.add_groups();
    added.set_group(group.group);
    added.set_lease(group.lease);
    added.set_slot(group.slot);
  }
}

StatusOr<LearnerFrame> Get(v1::Grant& from) {
  Grant grant;
  grant.exact = from.exact();
  grant.policy_version = from.policy_version();
  grant.bytes = from.bytes();
  grant.acknowledged = from.acknowledged();
  grant.groups.reserve(static_cast<size_t>(from.groups_size()));
  for (const v1::GroupGrant& group : from.groups()) {
    if (group.slot() < -1) return Refuse("grant.groups.slot: ", group.slot(), " is no slot");
    grant.groups.push_back({group.group(), group.lease(), group.slot()});
  }
  return LearnerMessage(std::move(grant));
}

void Put(const Ack& from, v1::LearnerMessage& to) {
  to.mutable_ack()->set_sequence(from.sequence);
}

StatusOr<LearnerFrame> Get(v1::Ack& from) {
  return LearnerMessage(Ack{from.sequence()});
}

void Put(const WeightsChunk& from, v1::LearnerMessage& to) {
  v1::WeightsChunk& chunk = *to.mutable_weights();
  chunk.set_version(from.version);
  chunk.set_total_bytes(from.total_bytes);
  chunk.set_offset(from.offset);
  chunk.set_checksum(from.checksum);
  chunk.set_data(from.data);
}

StatusOr<LearnerFrame> Get(v1::WeightsChunk& from) {
  MILL_ASSIGN_OR_RETURN(WeightsChunk chunk, FromProto(from));
  return LearnerMessage(std::move(chunk));
}

void Put(const Drain& from, v1::LearnerMessage& to) {
  to.mutable_drain()->set_reason(Ascii(from.reason));
}

StatusOr<LearnerFrame> Get(v1::Drain& from) {
  return LearnerMessage(Drain{ForPeople(std::move(*from.mutable_reason()))});
}

void Put(const Bye& from, v1::LearnerMessage& to) {
  to.mutable_bye()->set_code(from.code);
  to.mutable_bye()->set_reason(Ascii(from.reason));
}

StatusOr<LearnerFrame> Get(v1::Bye& from) {
  if (from.code() < 0 || from.code() > kLastStatusCode) {
    return Refuse("bye.code: ", from.code(), " is no status code");
  }
  return LearnerMessage(Bye{from.code(), ForPeople(std::move(*from.mutable_reason()))});
}

StatusOr<LearnerFrame> Get(v1::Ring& from) {
  if (from.slots() == 0 || from.slots() > kMaxRingSlots) {
    return Refuse("ring.slots: ", from.slots(), " is not within 1 to ", kMaxRingSlots);
  }
  if (from.stride() == 0 || from.stride() > kMaxRingStride) {
    return Refuse("ring.stride: ", from.stride(), " is not within 1 to ", kMaxRingStride);
  }
  return RingOffer{from.slots(), from.stride()};
}

// ---- the wire format, as far as a segment needs it ----

constexpr uint32_t kSegmentField = v1::ActorMessage::kSegmentFieldNumber;
constexpr uint32_t kHeaderField = v1::Segment::kHeaderFieldNumber;
constexpr uint32_t kPayloadField = v1::Segment::kPayloadFieldNumber;

// Walks fields within the first bytes of a message.
class Walker {
 public:
  struct Field {
    uint32_t number = 0, wire_type = 0;
    uint64_t length = 0;  // of what follows, where it is length-delimited
  };

  explicit Walker(std::string_view bytes) : bytes_(bytes) {}

  size_t at() const { return at_; }
  std::string_view Take(size_t length) {
    const std::string_view taken = bytes_.substr(at_, length);
    at_ += length;
    return taken;
  }
  bool Has(uint64_t length) const { return length <= bytes_.size() - at_; }

  // A tag, and a length where the wire type has one.
  bool Next(Field& field) {
    uint64_t tag = 0;
    if (!Varint(tag) || tag > std::numeric_limits<uint32_t>::max()) return false;
    field = {static_cast<uint32_t>(tag) >> 3, static_cast<uint32_t>(tag) & 7, 0};
    return field.number != 0 && (field.wire_type != kLengthDelimited || Varint(field.length));
  }

  // Passes over the value of a field that is not known here.
  bool Skip(const Field& field) {
    uint64_t length = field.length;
    switch (field.wire_type) {
      case 0:
        return Varint(length);
      case 1:
        length = 8;
        break;
      case kLengthDelimited:
        break;
      case 5:
        length = 4;
        break;
      default:
        return false;  // groups are not of proto3
    }
    if (!Has(length)) return false;
    at_ += length;
    return true;
  }

 private:
  bool Varint(uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == bytes_.size()) return false;
      const auto byte = static_cast<uint8_t>(bytes_[at_++]);
      if (shift == 63 && byte > 1) return false;
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  std::string_view bytes_;
  size_t at_ = 0;
};

// The field `check` of a message or a segment's header, its last: XXH3-64 of the bytes before it. TCP's own
// checksum lets one damaged packet in 65,536 pass, and a grant with another number could stall an actor for
// ever.
constexpr char kCheckTag = 15 << 3 | 1;  // fixed64

Status VerifyCheck(std::string_view bytes, std::string_view what) {
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION  // or the fuzzer would see nothing behind it
  static_cast<void>(bytes), static_cast<void>(what);
#else
  constexpr size_t kCheckBytes = 1 + sizeof(uint64_t);
  uint64_t check = 0;
  const size_t covered = bytes.size() - std::min(bytes.size(), kCheckBytes);
  const bool there = bytes.size() >= kCheckBytes && bytes[covered] == kCheckTag;
  for (size_t i = 0; there && i < sizeof check; ++i) {
    check |= uint64_t{static_cast<uint8_t>(bytes[covered + 1 + i])} << (8 * i);
  }
  if (!there || check != XXH3_64bits(bytes.data(), covered)) {
    return absl::DataLossError(Cat(what, ": was damaged on its way, its check does not match"));
  }
#endif
  return absl::OkStatus();
}

StatusOr<SegmentHeader> ParseHeader(std::string_view bytes) {
  MILL_RETURN_IF_ERROR(VerifyCheck(bytes, "segment.header"));
  v1::SegmentHeader from;
  if (!from.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Refuse("segment.header: malformed");
  }
  if (from.slot() < -1) return Refuse("segment.header.slot: ", from.slot(), " is no slot");
  SegmentHeader header;
  header.sequence = from.sequence();
  header.group = from.group();
  header.lease = from.lease();
  header.first_step = from.first_step();
  header.policy_version = from.policy_version();
  header.checksum = from.checksum();
  header.bytes = from.bytes();
  header.slot = from.slot();
  header.fault = ForPeople(std::move(*from.mutable_fault()));
  return header;
}

// `walker` stands before the segment's fields, which end the message at `total`.
StatusOr<SegmentFrame> ParseSegment(Walker walker, size_t total) {
  SegmentFrame frame;
  bool has_header = false;
  while (walker.at() != total) {
    Walker::Field field;
    if (!walker.Next(field)) return Misframed("segment: malformed, or its payload begins too late");
    const bool bytes_field = field.wire_type == kLengthDelimited;
    if (field.number == kHeaderField && bytes_field) {
      if (has_header) return Misframed("segment.header: there are two");
      if (field.length > kMaxControlBytes || !walker.Has(field.length)) {
        return Misframed("segment.header: ", field.length, " bytes do not fit");
      }
      MILL_ASSIGN_OR_RETURN(frame.header, ParseHeader(walker.Take(field.length)));
      has_header = true;
    } else if (field.number == kPayloadField && bytes_field) {
      if (!has_header) return Misframed("segment.payload: comes before the header");
      if (frame.header.slot >= 0)
        return Misframed("segment.payload: is there although the header names a slot");
      if (field.length != total - walker.at()) {
        return Misframed("segment.payload: says ", field.length, " bytes, the message has ",
                         total - walker.at());
      }
      if (field.length != frame.header.bytes) {
        return Misframed("segment.header.bytes: ", frame.header.bytes, ", the payload has ", field.length);
      }
      frame.payload_offset = walker.at();
      return frame;
    } else if (!walker.Skip(field)) {
      return Misframed("segment: field ", field.number, " is malformed or too long");
    }
  }
  if (!has_header) return Misframed("segment.header: missing");
  if (frame.header.slot < 0) return Misframed("segment.payload: missing");
  frame.payload_offset = total;
  return frame;
}

template <typename Proto, typename Frame>
StatusOr<Frame> Widen(StatusOr<Proto> value) {
  if (!value.ok()) return std::move(value).status();
  return Frame(*std::move(value));
}

StatusOr<ActorFrame> ParseControl(std::string_view bytes) {
  MILL_RETURN_IF_ERROR(VerifyCheck(bytes, "message"));
  v1::ActorMessage message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Refuse("message: malformed");
  }
  using Case = v1::ActorMessage::MessageCase;
  switch (message.message_case()) {
    case Case::kHello:
      return Widen<ActorMessage, ActorFrame>(Get(*message.mutable_hello()));
    case Case::kReady:
      return Widen<ActorMessage, ActorFrame>(Get(*message.mutable_ready()));
    case Case::kHeartbeat:
      return Widen<ActorMessage, ActorFrame>(Get(*message.mutable_heartbeat()));
    case Case::kGoodbye:
      return Widen<ActorMessage, ActorFrame>(Get(*message.mutable_goodbye()));
    case Case::kSegment:
      return Refuse("segment: must be alone in its message");
    case Case::MESSAGE_NOT_SET:
      break;
  }
  return UnknownMessage{};
}

template <typename Message, typename Variant>
std::string EncodeVariant(const Variant& from) {
  Message to;
  std::visit([&to](const auto& message) { Put(message, to); }, from);
  std::string bytes = to.SerializeAsString();
  AppendCheck(bytes);
  return bytes;
}

}  // namespace

void AppendCheck(std::string& bytes) {
  const uint64_t check = XXH3_64bits(bytes.data(), bytes.size());
  bytes.push_back(kCheckTag);
  for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<char>(check >> shift));
}

std::string Encode(const ActorMessage& message) {
  return EncodeVariant<v1::ActorMessage>(message);
}
std::string Encode(const LearnerMessage& message) {
  return EncodeVariant<v1::LearnerMessage>(message);
}

std::string Encode(const RingOffer& ring) {
  v1::LearnerMessage message;
  message.mutable_ring()->set_slots(ring.slots);
  message.mutable_ring()->set_stride(ring.stride);
  std::string bytes = message.SerializeAsString();
  AppendCheck(bytes);
  return bytes;
}

std::string EncodeSegmentPrefix(const SegmentHeader& from) {
  v1::SegmentHeader header;
  header.set_sequence(from.sequence);
  header.set_group(from.group);
  header.set_lease(from.lease);
  header.set_first_step(from.first_step);
  header.set_policy_version(from.policy_version);
  header.set_checksum(from.checksum);
  header.set_bytes(from.bytes);
  header.set_slot(from.slot);
  header.set_fault(Ascii(from.fault));
  std::string checked = header.SerializeAsString();
  AppendCheck(checked);
  std::string inner;
  AppendBytesTag(inner, kHeaderField);
  AppendVarint(inner, checked.size());
  inner += checked;
  uint64_t payload = 0;
  if (from.slot < 0) {
    AppendBytesTag(inner, kPayloadField);
    AppendVarint(inner, from.bytes);
    payload = from.bytes;
  }
  std::string prefix;
  prefix.reserve(1 + VarintBytes(inner.size() + payload) + inner.size());
  AppendBytesTag(prefix, kSegmentField);
  AppendVarint(prefix, inner.size() + payload);
  return prefix += inner;
}

StatusOr<ActorFrame> ParseActorFrame(std::string_view head, size_t total) {
  MILL_CHECK(head.size() <= total);
  Walker walker(head);
  Walker::Field field;
  while (walker.at() != head.size()) {
    if (!walker.Next(field)) return Misframed("message: malformed");
    if (field.number == kSegmentField && field.wire_type == kLengthDelimited) {
      if (field.length != total - walker.at()) {
        return Misframed("segment: says ", field.length, " bytes, the message has ", total - walker.at());
      }
      return Widen<SegmentFrame, ActorFrame>(ParseSegment(walker, total));
    }
    if (field.number < kSegmentField) break;
    if (!walker.Skip(field)) return Misframed("message: field ", field.number, " is malformed or too long");
  }
  if (head.size() != total || total > kMaxControlBytes) {
    return Misframed("message: ", total, " bytes, at most ", kMaxControlBytes,
                     " are allowed without a segment");
  }
  return ParseControl(head);
}

StatusOr<LearnerFrame> ParseLearnerFrame(std::string_view bytes) {
  MILL_RETURN_IF_ERROR(VerifyCheck(bytes, "message"));
  v1::LearnerMessage message;
  if (bytes.size() > static_cast<size_t>(std::numeric_limits<int>::max()) ||
      !message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Refuse("message: malformed");
  }
  using Case = v1::LearnerMessage::MessageCase;
  switch (message.message_case()) {
    case Case::kWelcome:
      return Get(*message.mutable_welcome());
    case Case::kLease:
      return Get(*message.mutable_lease());
    case Case::kGrant:
      return Get(*message.mutable_grant());
    case Case::kAck:
      return Get(*message.mutable_ack());
    case Case::kWeights:
      return Get(*message.mutable_weights());
    case Case::kDrain:
      return Get(*message.mutable_drain());
    case Case::kBye:
      return Get(*message.mutable_bye());
    case Case::kRing:
      return Get(*message.mutable_ring());
    case Case::MESSAGE_NOT_SET:
      break;
  }
  return UnknownMessage{};
}

}  // namespace millrace
