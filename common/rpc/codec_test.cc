#include "common/rpc/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "common/rpc/weights_codec.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

template <typename T>
T RoundTrip(const T& message) {
  const std::string bytes = Encode(ActorMessage(message));
  auto frame = ParseActorFrame(bytes, bytes.size());
  EXPECT_TRUE(frame.ok()) << frame.status();
  return std::get<T>(std::get<ActorMessage>(*frame));
}

template <typename T>
T RoundTripLearner(const T& message) {
  auto frame = ParseLearnerFrame(Encode(LearnerMessage(message)));
  EXPECT_TRUE(frame.ok()) << frame.status();
  return std::get<T>(std::get<LearnerMessage>(*frame));
}

Status ActorError(const std::string& bytes) {
  return ParseActorFrame(bytes, bytes.size()).status();
}

std::string Checked(std::string bytes) {
  AppendCheck(bytes);
  return bytes;
}

// A message with only a segment, which has this header and this behind it.
std::string SegmentOf(const std::string& header, const std::string& rest) {
  const std::string checked = Checked(header);
  const std::string inner = std::string("\x0A", 1) + static_cast<char>(checked.size()) + checked + rest;
  return std::string("\x2A", 1) + static_cast<char>(inner.size()) + inner;
}

void ExpectRefused(const Status& status, const char* words) {
  EXPECT_TRUE(absl::IsInvalidArgument(status) || absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(words));
}

SegmentHeader SomeHeader() {
  SegmentHeader header;
  header.sequence = 7;
  header.group = 3;
  header.lease = 1'000'000'007;
  header.first_step = 1ull << 40;
  header.policy_version = 12;
  header.checksum = 0xFEDCBA9876543210;
  header.bytes = 300;
  header.fault = "env 3: reward is not finite";
  return header;
}

std::string SomeSegment() {
  return EncodeSegmentPrefix(SomeHeader()) + std::string(300, 'p');
}

TEST(Codec, ActorMessagesComeBackAsTheyWere) {
  Hello hello;
  hello.protocol_min = 1;
  hello.protocol_max = 4;
  hello.program_version = "0.2";
  hello.actor = "host/1";
  hello.incarnation = std::numeric_limits<uint64_t>::max();
  hello.host = "host";
  hello.pid = 77;
  hello.threads = 2;
  hello.kernel_bits = 1ull << 63;
  hello.transport_note = "another host";
  const Hello back = RoundTrip(hello);
  EXPECT_EQ(back.protocol_min, 1u);
  EXPECT_EQ(back.protocol_max, 4u);
  EXPECT_EQ(back.program_version, "0.2");
  EXPECT_EQ(back.actor, "host/1");
  EXPECT_EQ(back.incarnation, hello.incarnation);
  EXPECT_EQ(back.host, "host");
  EXPECT_EQ(back.pid, 77u);
  EXPECT_EQ(back.threads, 2u);
  EXPECT_EQ(back.kernel_bits, hello.kernel_bits);
  EXPECT_EQ(back.transport_note, "another host");

  const Ready ready = RoundTrip(Ready{99, "obs f32[4]\naction i32"});
  EXPECT_EQ(ready.layout_hash, 99u);
  EXPECT_EQ(ready.layout, "obs f32[4]\naction i32");

  const ActorStats stats = RoundTrip(Heartbeat{{1, 2, 3, 4, 5.5, 6.5, 7.5, 8.5, 9.5}}).stats;
  EXPECT_EQ(stats.steps, 1u);
  EXPECT_EQ(stats.segments, 2u);
  EXPECT_EQ(stats.policy_version, 3u);
  EXPECT_EQ(stats.unacknowledged, 4u);
  EXPECT_EQ(stats.env_seconds, 5.5);
  EXPECT_EQ(stats.inference_seconds, 6.5);
  EXPECT_EQ(stats.wait_weights_seconds, 7.5);
  EXPECT_EQ(stats.wait_credit_seconds, 8.5);
  EXPECT_EQ(stats.send_seconds, 9.5);

  EXPECT_EQ(RoundTrip(Goodbye{"drained"}).reason, "drained");
}

TEST(Codec, LearnerMessagesComeBackAsTheyWere) {
  const Welcome welcome =
      RoundTripLearner(Welcome{1, "0.2", "run", 5, std::string("\0\xFFzzz", 5), 10'000, 2'500, 8, "layout"});
  EXPECT_EQ(welcome.protocol, 1u);
  EXPECT_EQ(welcome.program_version, "0.2");
  EXPECT_EQ(welcome.run_id, "run");
  EXPECT_EQ(welcome.learner_incarnation, 5u);
  EXPECT_EQ(welcome.config, std::string("\0\xFFzzz", 5));
  EXPECT_EQ(welcome.lease_ms, 10'000u);
  EXPECT_EQ(welcome.heartbeat_ms, 2'500u);
  EXPECT_EQ(welcome.layout_hash, 8u);
  EXPECT_EQ(welcome.layout, "layout");

  const Lease lease = RoundTripLearner(Lease{{4, 5}, {{1, 2, 3, 4, 5, std::string("\x80\0", 2)}}});
  EXPECT_EQ(lease.drop, (std::vector<uint32_t>{4, 5}));
  ASSERT_EQ(lease.add.size(), 1u);
  EXPECT_EQ(lease.add[0].group, 1u);
  EXPECT_EQ(lease.add[0].lease, 2u);
  EXPECT_EQ(lease.add[0].first_row, 3u);
  EXPECT_EQ(lease.add[0].rows, 4u);
  EXPECT_EQ(lease.add[0].next_step, 5u);
  EXPECT_EQ(lease.add[0].state, std::string("\x80\0", 2));

  const Grant grant = RoundTripLearner(Grant{true, 9, 4096, {{1, 2, -1}, {2, 3, 0}}, 77});
  EXPECT_EQ(grant.acknowledged, 77u);
  EXPECT_TRUE(grant.exact);
  EXPECT_EQ(grant.policy_version, 9u);
  EXPECT_EQ(grant.bytes, 4096u);
  ASSERT_EQ(grant.groups.size(), 2u);
  EXPECT_EQ(grant.groups[0].slot, -1);
  EXPECT_EQ(grant.groups[1].group, 2u);
  EXPECT_EQ(grant.groups[1].lease, 3u);
  EXPECT_EQ(grant.groups[1].slot, 0);

  EXPECT_EQ(RoundTripLearner(Ack{1ull << 50}).sequence, 1ull << 50);
  const WeightsChunk chunk = RoundTripLearner(WeightsChunk{3, 10, 5, 77, "ABCDE"});
  EXPECT_EQ(chunk.version, 3u);
  EXPECT_EQ(chunk.total_bytes, 10u);
  EXPECT_EQ(chunk.offset, 5u);
  EXPECT_EQ(chunk.checksum, 77u);
  EXPECT_EQ(chunk.data, "ABCDE");
  EXPECT_EQ(RoundTripLearner(Drain{"stop"}).reason, "stop");
  const Bye bye = RoundTripLearner(Bye{14, "restarting"});
  EXPECT_EQ(bye.code, 14);
  EXPECT_EQ(bye.reason, "restarting");

  auto ring = ParseLearnerFrame(Encode(RingOffer{8, 65536}));
  ASSERT_TRUE(ring.ok()) << ring.status();
  EXPECT_EQ(std::get<RingOffer>(*ring).slots, 8u);
  EXPECT_EQ(std::get<RingOffer>(*ring).stride, 65536u);
}

TEST(Codec, ASegmentIsKnownByItsHead) {
  const SegmentHeader header = SomeHeader();
  const std::string prefix = EncodeSegmentPrefix(header);
  auto frame = ParseActorFrame(prefix, prefix.size() + header.bytes);
  ASSERT_TRUE(frame.ok()) << frame.status();
  const auto& segment = std::get<SegmentFrame>(*frame);
  EXPECT_EQ(segment.payload_offset, prefix.size());
  EXPECT_EQ(segment.header.sequence, header.sequence);
  EXPECT_EQ(segment.header.group, header.group);
  EXPECT_EQ(segment.header.lease, header.lease);
  EXPECT_EQ(segment.header.first_step, header.first_step);
  EXPECT_EQ(segment.header.policy_version, header.policy_version);
  EXPECT_EQ(segment.header.checksum, header.checksum);
  EXPECT_EQ(segment.header.bytes, header.bytes);
  EXPECT_EQ(segment.header.slot, -1);
  EXPECT_EQ(segment.header.fault, header.fault);
}

TEST(Codec, ASegmentInASlotHasNoPayload) {
  SegmentHeader header = SomeHeader();
  header.slot = 0;
  const std::string bytes = EncodeSegmentPrefix(header);
  auto frame = ParseActorFrame(bytes, bytes.size());
  ASSERT_TRUE(frame.ok()) << frame.status();
  EXPECT_EQ(std::get<SegmentFrame>(*frame).header.slot, 0);
  EXPECT_EQ(std::get<SegmentFrame>(*frame).header.bytes, 300u);
  EXPECT_EQ(std::get<SegmentFrame>(*frame).payload_offset, bytes.size());
}

TEST(Codec, UnknownFieldsArePassedOver) {
  const std::string varint = {'\x98', '\x06', '\x2A'};                            // field 99 = 42
  const std::string text = std::string("\x9A\x06\x03", 3) + "abc";                // field 99 = "abc"
  const std::string later = Checked(std::string("\x22\x03\x0A\x01x", 5) + text);  // Goodbye
  auto goodbye = ParseActorFrame(later, later.size());
  ASSERT_TRUE(goodbye.ok()) << goodbye.status();
  EXPECT_TRUE(std::holds_alternative<ActorMessage>(*goodbye));

  const std::string segment = varint + text + SomeSegment();
  auto frame = ParseActorFrame(segment, segment.size());
  ASSERT_TRUE(frame.ok()) << frame.status();
  EXPECT_EQ(std::get<SegmentFrame>(*frame).payload_offset, segment.size() - 300);

  const std::string only = Checked(text);
  auto unknown = ParseActorFrame(only, only.size());
  ASSERT_TRUE(unknown.ok()) << unknown.status();
  EXPECT_TRUE(std::holds_alternative<UnknownMessage>(*unknown));
  auto empty = ParseLearnerFrame(Checked(""));
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_TRUE(std::holds_alternative<UnknownMessage>(*empty));
}

TEST(Codec, LengthsThatDisagreeAreRefused) {
  const std::string good = SomeSegment();
  ASSERT_TRUE(ActorError(good).ok()) << ActorError(good);
  ExpectRefused(ActorError(good + "x"), "segment: says");
  ExpectRefused(ActorError(good.substr(0, good.size() - 1)), "segment: says");
  ExpectRefused(ActorError(good + Encode(ActorMessage(Goodbye{}))), "segment: says");

  SegmentHeader header = SomeHeader();
  const std::string header_says_300 = EncodeSegmentPrefix(header);
  // The payload's own length, the last two bytes of the prefix, is 299 here.
  std::string inner = header_says_300;
  inner[inner.size() - 2] = static_cast<char>(299 % 128 | 0x80);
  ExpectRefused(ParseActorFrame(inner, inner.size() + 300).status(), "segment.payload: says 299");
  // Both lengths of the frame say 299, the header 300.
  header.bytes = 299;
  std::string frame = EncodeSegmentPrefix(header);
  const size_t at = frame.find(std::string("\x38\xAB\x02", 3));  // SegmentHeader.bytes = 299
  ASSERT_NE(at, std::string::npos);
  frame[at + 1] = '\xAC';
  const size_t header_at = frame.find('\x0A') + 2,
               check = frame.size() - 3 - 9;  // the payload's tag and length: 3
  frame = frame.substr(0, header_at) + Checked(frame.substr(header_at, check - header_at)) +
          frame.substr(frame.size() - 3);
  ExpectRefused(ParseActorFrame(frame, frame.size() + 299).status(), "segment.header.bytes: 300");
}

// Each bit of a message and of a segment's frame up to the payload.
TEST(Codec, DamageIsNoticedWhereverItStrikes) {
  Grant grant;
  grant.policy_version = 3;
  grant.groups = {{1, 2, -1}};
  const std::string message = Encode(LearnerMessage(grant));
  for (size_t bit = 0; bit < message.size() * 8; ++bit) {
    std::string damaged = message;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    EXPECT_TRUE(absl::IsDataLoss(ParseLearnerFrame(damaged).status())) << "bit " << bit;
  }
  const std::string segment = SomeSegment();
  for (size_t bit = 0; bit < (segment.size() - 300) * 8; ++bit) {
    std::string damaged = segment;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    EXPECT_TRUE(absl::IsDataLoss(ActorError(damaged))) << "bit " << bit << ": " << ActorError(damaged);
  }
}

TEST(Codec, SegmentsOutOfOrderAreRefused) {
  const std::string payload = std::string("\x12\x02", 2) + "pp";
  ExpectRefused(ActorError(std::string("\x2A\x04", 2) + payload), "before the header");
  ExpectRefused(ActorError(std::string("\x2A\x00", 2)), "segment.header: missing");
  ExpectRefused(ActorError(SegmentOf("\x40\x01", "")), "segment.payload: missing");  // slot -1
  ExpectRefused(ActorError(SegmentOf("", payload)), "is there although");            // slot 0
  ExpectRefused(ActorError(SegmentOf("", std::string("\x0A\x00", 2))), "there are two");
  const std::string after_hello = Checked(Encode(ActorMessage(Goodbye{"x"})) + SomeSegment());
  ExpectRefused(ActorError(after_hello), "must be alone");
}

TEST(Codec, HostileNumbersAreRefused) {
  // A header of 2 MiB, of which the head shows 1 MiB.
  const std::string huge("\x2A\x84\x80\x80\x01\x0A\x80\x80\x80\x01", 10);
  std::string head = huge;
  head.resize(kMaxControlBytes, 'x');
  ExpectRefused(ParseActorFrame(head, 5 + 4 + (2u << 20)).status(), "segment.header:");
  // Lengths of 2^64 - 1, and varints without an end.
  const std::string endless(11, '\xFF');
  ExpectRefused(ActorError("\x2A" + endless), "malformed");
  ExpectRefused(ActorError("\x2A" + std::string(9, '\xFF') + "\x01"), "segment: says");
  ExpectRefused(ActorError(endless), "malformed");
  SegmentHeader header = SomeHeader();
  header.slot = -2;
  const std::string slot = EncodeSegmentPrefix(header);
  ExpectRefused(ParseActorFrame(slot, slot.size() + 300).status(), "segment.header.slot: -2");
  ExpectRefused(ParseActorFrame(std::string(kMaxControlBytes, 'z'), kMaxControlBytes * 8).status(),
                "message:");
}

TEST(Codec, ControlMessagesHaveLimits) {
  Ready ready;
  ready.layout.assign(kMaxControlBytes, 'a');
  ExpectRefused(ActorError(Encode(ActorMessage(ready))), "are allowed without a segment");
  Hello hello;
  ExpectRefused(ActorError(Encode(ActorMessage(hello))), "hello.actor: missing");
  hello.actor.assign(257, 'a');
  ExpectRefused(ActorError(Encode(ActorMessage(hello))), "hello.actor: 257 bytes");
  hello.actor = "a\x1B[2J";
  ExpectRefused(ActorError(Encode(ActorMessage(hello))), "hello.actor: has a control character");
  hello.actor = "a";
  hello.protocol_min = hello.protocol_max + 1;
  ExpectRefused(ActorError(Encode(ActorMessage(hello))), "hello.protocol_min");
  Heartbeat beat;
  beat.stats.env_seconds = std::numeric_limits<double>::quiet_NaN();
  ExpectRefused(ActorError(Encode(ActorMessage(beat))), "heartbeat.env_seconds");
  beat.stats = {};
  beat.stats.send_seconds = -1;
  ExpectRefused(ActorError(Encode(ActorMessage(beat))), "heartbeat.send_seconds: -1");
  EXPECT_EQ(RoundTrip(Goodbye{"a\x1B[2Jb\n"}).reason, "a [2Jb ");
}

TEST(Codec, LearnerMessagesHaveLimits) {
  const auto refused = [](const LearnerMessage& message, const char* words) {
    ExpectRefused(ParseLearnerFrame(Encode(message)).status(), words);
  };
  refused(Welcome{}, "welcome.lease_ms");
  refused(Lease{{}, {{1, 1, 5, 0, 0, ""}}}, "lease.add.rows: group 1 has 0 rows");
  refused(Lease{{}, {{1, 1, 2, std::numeric_limits<uint32_t>::max(), 0, ""}}}, "lease.add.rows");
  refused(Grant{false, 0, 0, {{0, 0, -2}}}, "grant.groups.slot: -2");
  refused(WeightsChunk{1, 4, 3, 0, "ab"}, "weights.offset");
  refused(WeightsChunk{1, 4, std::numeric_limits<uint64_t>::max(), 0, "ab"}, "weights.offset");
  refused(WeightsChunk{1, 1ull << 32, 0, 0, std::string(kWeightsChunkBytes + 1, 'a')}, "weights.data");
  refused(Bye{17, ""}, "bye.code: 17");
  ExpectRefused(ParseLearnerFrame(Encode(RingOffer{0, 64})).status(), "ring.slots");
  ExpectRefused(ParseLearnerFrame(Encode(RingOffer{1, 0})).status(), "ring.stride");
  ExpectRefused(ParseLearnerFrame(Checked("\xFF\xFF")).status(), "malformed");
}

TEST(WeightsCodec, AChunkIsItsPrefixAndItsBytes) {
  WeightsBlob blob;
  blob.version = 5;
  blob.checksum = 1ull << 63;
  blob.bytes.resize(1000);
  const std::string prefix = EncodeWeightsPrefix(blob, 600, 400);
  const auto frame = ParseWeightsFrame(prefix + std::string(400, 'w'));
  ASSERT_TRUE(frame.ok()) << frame.status();
  const auto& chunk = std::get<WeightsChunk>(std::get<LearnerMessage>(*frame));
  EXPECT_EQ(chunk.version, 5u);
  EXPECT_EQ(chunk.total_bytes, 1000u);
  EXPECT_EQ(chunk.offset, 600u);
  EXPECT_EQ(chunk.checksum, 1ull << 63);
  EXPECT_EQ(chunk.data, std::string(400, 'w'));
  ExpectRefused(ParseWeightsFrame(prefix + std::string(399, 'w')).status(), "weights: malformed");
  ExpectRefused(ParseWeightsFrame(EncodeWeightsPrefix(blob, 601, 400) + std::string(400, 'w')).status(),
                "weights.offset");
}

}  // namespace
}  // namespace millrace
