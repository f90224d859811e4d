// A client that means no good, at the level of raw messages; an honest actor beside it must not notice.
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <random>

#include "common/rpc/codec.h"
#include "tests/service/service_fixture.h"

namespace millrace {
namespace {

using testing::HasSubstr;

// One Trajectory.Stream of bytes, step by step.
class RawClient {
 public:
  explicit RawClient(const std::string& address) : stub_(MakeChannel(address)) {
    context_.set_deadline(std::chrono::system_clock::now() + kWait);
    stream_ = stub_.PrepareCall(&context_, "/millrace.v1.Trajectory/Stream", &queue_);
    stream_->StartCall(nullptr);
    Next();
  }
  ~RawClient() {
    context_.TryCancel();
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  bool Write(const std::string& bytes) {
    const grpc::Slice slice(bytes);
    stream_->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    return Next();
  }
  // The Bye that the learner ended the stream with, past what came before.
  std::optional<Bye> ReadBye() {
    for (;;) {
      grpc::ByteBuffer buffer;
      stream_->Read(&buffer, nullptr);
      grpc::Slice slice;
      if (!Next() || !buffer.DumpToSingleSlice(&slice).ok()) return std::nullopt;
      auto frame = ParseLearnerFrame({reinterpret_cast<const char*>(slice.begin()), slice.size()});
      if (!frame.ok()) return std::nullopt;
      if (auto* message = std::get_if<LearnerMessage>(&*frame)) {
        if (auto* bye = std::get_if<Bye>(message)) return *bye;
      }
    }
  }
  grpc::Status Finish() {
    grpc::Status status;
    stream_->Finish(&status, nullptr);
    Next();
    return status;
  }

 private:
  bool Next() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
};

class HostileGrpc : public testing::Test {
 protected:
  void SetUp() override {
    learner_.service->Publish(MakeWeights(0, 100));
    honest_.Connect("honest");
    ASSERT_TRUE(honest_.Until([&] { return honest_.grants.size() >= 4; })) << honest_.lost;
  }
  void TearDown() override {
    for (uint32_t i = 0; i < 4; ++i) {
      SegmentHeader header = honest_.Header(honest_.grants[i]);
      payloads_.push_back(honest_.Payload(learner_.layout(header.group), header, i));
      ASSERT_TRUE(honest_.transport->SendSegment(header, payloads_.back().data(), [] {}).ok());
    }
    EXPECT_TRUE(honest_.Until([&] { return honest_.acknowledged == 4; })) << honest_.lost;
    honest_.transport->Close();
  }
  std::string HelloBytes() const { return Encode(ActorMessage(Actor::MakeHello("hostile"))); }

  void ExpectBye(RawClient& client, absl::StatusCode code, const char* words) {
    const auto bye = client.ReadBye();
    ASSERT_TRUE(bye.has_value());
    EXPECT_EQ(bye->code, static_cast<int32_t>(code));
    EXPECT_THAT(bye->reason, HasSubstr(words));
    EXPECT_EQ(static_cast<int32_t>(client.Finish().error_code()), bye->code);
  }

  Learner learner_;
  Actor honest_{learner_};
  std::vector<std::vector<std::byte>> payloads_;
};

TEST_F(HostileGrpc, RandomBytes) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    RawClient client(learner_.server->address());
    std::string bytes(1 + random() % 2000, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    bytes[0] = round % 2 == 0 ? '\x2A' : '\x0A';  // a segment's tag, a hello's
    ASSERT_TRUE(client.Write(bytes));
    ExpectBye(client, absl::StatusCode::kDataLoss, ":");
  }
}

TEST_F(HostileGrpc, AMessageThatIsTooLong) {
  RawClient client(learner_.server->address());
  client.Write(HelloBytes());
  client.Write(std::string(learner_.layout(0).bytes() + 2 * kMaxControlBytes, 'x'));
  EXPECT_FALSE(client.ReadBye().has_value());
  EXPECT_EQ(client.Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(HostileGrpc, NoHello) {
  RawClient heartbeat(learner_.server->address());
  heartbeat.Write(Encode(ActorMessage(Heartbeat{})));
  ExpectBye(heartbeat, absl::StatusCode::kFailedPrecondition, "first message must be Hello");
  RawClient segment(learner_.server->address());
  SegmentHeader header;
  header.bytes = 10;
  segment.Write(EncodeSegmentPrefix(header) + "0123456789");
  ExpectBye(segment, absl::StatusCode::kFailedPrecondition, "first message must be Hello");
}

TEST_F(HostileGrpc, SegmentsThatNobodyGranted) {
  const auto send = [&](SegmentHeader header, bool ready, absl::StatusCode code, const char* words) {
    RawClient client(learner_.server->address());
    client.Write(HelloBytes());
    if (ready) {
      client.Write(Encode(ActorMessage(Ready{learner_.layout(0).Hash(), ""})));
    }
    client.Write(EncodeSegmentPrefix(header) + std::string(header.slot < 0 ? header.bytes : 0, 'x'));
    ExpectBye(client, code, words);
  };
  SegmentHeader header;
  header.sequence = 1;
  header.bytes = 10;
  send(header, false, absl::StatusCode::kInvalidArgument, "before Ready");
  send(header, true, absl::StatusCode::kInvalidArgument, "SegmentHeader.bytes");
  header.group = 1'000'000;
  send(header, true, absl::StatusCode::kInvalidArgument, "no group 1000000");
  header.slot = 3;
  send(header, true, absl::StatusCode::kInvalidArgument, "no shared ring");
  header.slot = -1;
  header.sequence = 1ull << 63;
  header.group = 0;
  send(header, true, absl::StatusCode::kInvalidArgument, "");
}

TEST_F(HostileGrpc, LayoutsOfAnotherWorld) {
  RawClient client(learner_.server->address());
  client.Write(HelloBytes());
  client.Write(Encode(ActorMessage(Ready{1, std::string(100'000, '9')})));
  ExpectBye(client, absl::StatusCode::kFailedPrecondition, "other segments than the learner's");
}

TEST_F(HostileGrpc, HelloTwice) {
  RawClient client(learner_.server->address());
  client.Write(HelloBytes());
  client.Write(HelloBytes());
  ExpectBye(client, absl::StatusCode::kFailedPrecondition, "Hello");
}

}  // namespace
}  // namespace millrace
