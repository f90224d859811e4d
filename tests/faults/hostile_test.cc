// Clients that mean no good, by gRPC and by the Unix socket, against a learner that trains with an honest
// actor meanwhile: each is told off in words, and the run's bits are those of a run that never met them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/rpc/codec.h"
#include "common/segment.h"
#include "common/text.h"
#include "tests/faults/light_actor.h"
#include "tests/faults/raw_client.h"
#include "tests/faults/run_under_test.h"

namespace millrace {
namespace {

using testing::HasSubstr;

constexpr uint64_t kStepsPerUpdate = 256;

class Hostile : public testing::Test {
 protected:
  void SetUp() override {
    settings_ = SmallLedger();
    settings_.push_back("env.step_wait_us=300");
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    learner_ = std::make_unique<Learner>(FreshDir(Cat("hostile-", name)), settings_);
    honest_ = StartActor(learner_->address(), "honest");
    learner_->WaitForUpdates(2);
  }
  void TearDown() override {
    learner_->WaitForUpdates(3);
    for (const ActorStatus& actor : learner_->Status().actors) {
      EXPECT_EQ(actor.restarts, 0u) << actor.name;
    }
    EXPECT_EQ(honest_->output().find("trying again"), std::string::npos) << honest_->output();
    learner_->Stop();
    ExpectBitsOfTrain(learner_->run_dir(), settings_, kStepsPerUpdate);
  }

  static std::string HelloBytes() { return Encode(ActorMessage(HelloOf("hostile"))); }
  // Said in words and with a code.
  static void ExpectRefused(const RawEnd& end, const std::string& what) {
    EXPECT_TRUE(end.closed) << what;
    EXPECT_FALSE(end.reason().empty()) << what;
    EXPECT_TRUE(!end.bye || end.bye->code != 0) << what;
  }

  Settings settings_;
  std::unique_ptr<Learner> learner_;
  std::unique_ptr<Process> honest_;
};

struct Attack {
  std::string name, bytes;
};

std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}

// Messages that no actor sends; the first of a connection, and after a Hello.
std::vector<Attack> Attacks() {
  std::vector<Attack> attacks;
  std::mt19937 random(5);
  for (int i = 0; i < (LongForm() ? 2000 : 30); ++i) {
    std::string bytes(1 + random() % 3000, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    bytes[0] = "\x0a\x12\x1a\x22\x2a"[i % 5];  // a known message's tag
    attacks.push_back({Cat("random frame ", i), std::move(bytes)});
  }
  const auto segment = [&](const char* name, uint64_t bytes, uint32_t group, int32_t slot) {
    SegmentHeader header;
    header.sequence = 1;
    header.group = group;
    header.bytes = bytes;
    header.slot = slot;
    attacks.push_back({name, EncodeSegmentPrefix(header) + "0123456789"});
  };
  segment("a segment out of nowhere", 10, 0, -1);
  segment("a segment of 2^64 - 1 bytes", std::numeric_limits<uint64_t>::max(), 0, -1);
  segment("a segment of -2^63 bytes", uint64_t{1} << 63, 0, -1);
  segment("a group that is not", 10, std::numeric_limits<uint32_t>::max(), -1);
  for (const int32_t slot : {0, 1'000'000, -2, std::numeric_limits<int32_t>::min()}) {
    segment("a slot that was not granted", 10, 0, slot);
  }
  // Hello with a list of a million entries where there is none.
  std::string list;
  for (int i = 0; i < 1'000'000; ++i) list += "\x78\x01";
  attacks.push_back({"a million entries", Cat("\x0a", Varint(list.size()), list)});
  const std::string name = Cat("\x22", Varint(1 << 20), std::string(1 << 20, 'n'));
  attacks.push_back({"a name of 1 MB", Cat("\x0a", Varint(name.size()), name)});
  return attacks;
}

TEST_F(Hostile, EveryAttackByGrpcIsRefusedInWords) {
  for (const bool greeted : {false, true}) {
    for (const Attack& attack : Attacks()) {
      RawStream stream(learner_->address());
      if (greeted) {
        ASSERT_TRUE(stream.Send(HelloBytes()));
        ASSERT_TRUE(stream.Await<Welcome>());
      }
      stream.Send(attack.bytes);
      ExpectRefused(stream.Finish(), attack.name);
    }
  }
  RawStream large(learner_->address());
  large.Send(std::string(size_t{80} << 20, 'x'));
  EXPECT_EQ(large.Finish().status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(Hostile, EveryAttackByUnixSocketIsRefusedInWords) {
  const std::string path = UnixSocketOf(learner_->address());
  ASSERT_FALSE(path.empty());
  for (const bool greeted : {false, true}) {
    for (const Attack& attack : Attacks()) {
      RawSocket socket(path);
      if (greeted) {
        ASSERT_TRUE(socket.SendFrame(HelloBytes()));
      }
      socket.SendFrame(attack.bytes);
      ExpectRefused(socket.Finish(), attack.name);
    }
  }
  RawSocket endless(path);
  endless.SendBytes("\xff\xff\xff\xff" + std::string(2 << 20, 'x'));  // a frame of 4 GiB
  ExpectRefused(endless.Finish(), "a frame of 4 GiB");
}

TEST_F(Hostile, SilentConnectionsAndHalfFramesCostNothing) {
  const std::string path = UnixSocketOf(learner_->address());
  const uint16_t port = learner_->port();
  std::vector<std::unique_ptr<RawSocket>> sockets;
  std::vector<std::unique_ptr<RawStream>> streams;
  for (int i = 0; i < 100; ++i) {
    sockets.push_back(std::make_unique<RawSocket>(path));
    if (i % 2 == 0) sockets.back()->SendBytes(std::string("\x00\x10\x00\x00half", 8));
  }
  for (int i = 0; i < 50; ++i) streams.push_back(std::make_unique<RawStream>(learner_->address()));
  std::vector<RawSocket> plain;
  for (int i = 0; i < 100; ++i) {
    plain.push_back(RawSocket::Tcp(port));
    if (i % 2 == 0) plain.back().SendBytes(std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0", 26));
  }
  learner_->WaitForUpdates(10);
  EXPECT_EQ(learner_->Status().actors.size(), 1u);
}

// One that does all that an actor does, is given rows, and then sends what no environment makes.
class Impostor {
 public:
  explicit Impostor(const std::string& address) : stream_(address) {}

  bool Join(const std::string& hello) {
    if (!stream_.Send(hello)) return false;
    const auto welcome = stream_.Await<Welcome>();
    if (!welcome) return false;
    auto layout = LayoutOf(*welcome);
    EXPECT_TRUE(layout.ok()) << layout.status();
    if (!layout.ok()) return false;
    layout_ = *std::move(layout);
    if (!stream_.Send(Encode(ActorMessage(Ready{welcome->layout_hash, welcome->layout})))) return false;
    while (auto message = stream_.Receive()) {
      if (auto* lease = std::get_if<Lease>(&*message)) {
        for (const LeasedGroup& group : lease->add) leases_.push_back(group);
      }
      if (auto* grant = std::get_if<Grant>(&*message)) {
        version_ = grant->policy_version;
        return true;
      }
    }
    return false;
  }
  // A segment of the first group, valid but for what `spoil` does to it.
  template <typename Spoil>
  RawEnd Send(Spoil&& spoil) {
    std::vector<std::byte> memory = PlainSegment(layout_, version_);
    SegmentHeader header;
    header.sequence = 1;
    header.group = leases_[0].group;
    header.lease = leases_[0].lease;
    header.first_step = leases_[0].next_step;
    header.policy_version = version_;
    header.bytes = memory.size();
    spoil(header, SegmentView(&layout_, memory.data()));
    const std::string payload(reinterpret_cast<const char*>(memory.data()), memory.size());
    if (header.checksum == 0) header.checksum = XXH3_64bits(payload.data(), payload.size());
    stream_.Send(EncodeSegmentPrefix(header) + payload);
    return stream_.Finish();
  }

 private:
  RawStream stream_;
  SegmentLayout layout_;
  std::vector<LeasedGroup> leases_;
  uint64_t version_ = 0;
};

TEST_F(Hostile, WhatNoEnvironmentMakesIsNotTrainedOn) {
  using Spoil = std::function<void(SegmentHeader&, const SegmentView&)>;
  const std::vector<std::pair<const char*, Spoil>> spoils = {
      {"damaged on its way", [](SegmentHeader& h, const SegmentView&) { h.checksum = 1; }},
      {"reward",
       [](SegmentHeader&, const SegmentView& v) { v.reward()[3] = std::numeric_limits<float>::quiet_NaN(); }},
      {"action", [](SegmentHeader&, const SegmentView& v) { static_cast<int32_t*>(v.action())[5] = -7; }},
      {"terminated", [](SegmentHeader&, const SegmentView& v) { v.terminated()[1] = 9; }},
      {"final_count", [](SegmentHeader&, const SegmentView& v) { v.final_count() = 1 << 30; }},
      {"episode_count", [](SegmentHeader&, const SegmentView& v) { v.episode_count() = -1; }},
      {"policy_version", [](SegmentHeader&, const SegmentView& v) { v.policy_version()[4] = 1 << 30; }},
      {"bytes", [](SegmentHeader& h, const SegmentView&) { h.bytes -= 1; }},
  };
  for (const auto& [word, spoil] : spoils) {
    Impostor impostor(learner_->address());
    ASSERT_TRUE(impostor.Join(HelloBytes())) << word;
    const RawEnd end = impostor.Send(spoil);
    ExpectRefused(end, word);
    EXPECT_THAT(end.reason(), HasSubstr(word));
  }
  EXPECT_GE(learner_->Counter("bad_segments"), 1u);
  EXPECT_GE(learner_->Counter("checksum_errors"), 1u);
}

TEST_F(Hostile, ASequenceFromThePastIsCountedAndOneFromTheFutureRefused) {
  RawStream stream(learner_->address());
  ASSERT_TRUE(stream.Send(HelloBytes()));
  const auto welcome = stream.Await<Welcome>();
  ASSERT_TRUE(welcome);
  ASSERT_TRUE(stream.Send(Encode(ActorMessage(Ready{welcome->layout_hash, welcome->layout}))));
  ASSERT_TRUE(stream.Await<Lease>());
  // By a lease that it does not have: passed over, acknowledged, counted.
  const auto layout = LayoutOf(*welcome);
  ASSERT_TRUE(layout.ok()) << layout.status();
  SegmentHeader header;
  header.sequence = 5;
  header.lease = uint64_t{1} << 40;
  header.bytes = layout->bytes();
  const std::string payload(layout->bytes(), 'x');
  const auto acknowledged = [&](uint64_t sequence) {
    const auto ack = stream.Await<Ack>();
    return ack && ack->sequence == sequence;
  };
  ASSERT_TRUE(stream.Send(EncodeSegmentPrefix(header) + payload));
  EXPECT_TRUE(acknowledged(5));
  header.sequence = 3;
  ASSERT_TRUE(stream.Send(EncodeSegmentPrefix(header) + payload));
  EXPECT_TRUE(acknowledged(5));
  EXPECT_GE(learner_->Counter("duplicates"), 1u);
  EXPECT_GE(learner_->Counter("dropped_lease"), 1u);
  header.sequence = 9;
  stream.Send(EncodeSegmentPrefix(header) + payload);
  const RawEnd end = stream.Finish();
  ExpectRefused(end, "a sequence from the future");
  EXPECT_THAT(end.reason(), HasSubstr("sequence"));
}

}  // namespace
}  // namespace millrace
