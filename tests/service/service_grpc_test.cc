// Both ends of the gRPC transport, and what people ask the server.
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <future>
#include <thread>

#include "common/rpc/client_grpc.h"
#include "tests/service/service_fixture.h"

namespace millrace {
namespace {

using testing::HasSubstr;

TEST(ServiceGrpc, SegmentsArriveAsTheyWereAndTheirMemoryComesBack) {
  Learner learner;
  learner.service->Publish(MakeWeights(0, 100));
  Actor actor(learner);
  actor.Connect();
  ASSERT_TRUE(actor.Until([&] { return actor.grants.size() >= 4 && actor.weights_whole; })) << actor.lost;
  EXPECT_EQ(actor.welcome.run_id, "run-1");

  std::vector<std::vector<std::byte>> sent;
  std::atomic<int> released = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    SegmentHeader header = actor.Header(actor.grants[i]);
    sent.push_back(actor.Payload(learner.layout(header.group), header, 1000 * i));
    ASSERT_TRUE(actor.transport->SendSegment(header, sent.back().data(), [&] { ++released; }).ok());
  }
  const auto batch = learner.service->Take();
  ASSERT_TRUE(batch.ok()) << batch.status();
  ASSERT_EQ(batch->segments.size(), 4u);
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(std::memcmp(batch->segments[i].base(), sent[i].data(), sent[i].size()), 0) << i;
  }
  EXPECT_TRUE(actor.Until([&] { return actor.acknowledged == 4; })) << actor.lost;
  actor.transport->Close();
  EXPECT_EQ(released, 4);
  learner.service->Release();
}

TEST(ServiceGrpc, ADamagedSegmentEndsTheStreamAndNeverArrives) {
  Learner learner;
  learner.service->Publish(MakeWeights(0, 100));
  Actor actor(learner);
  actor.Connect();
  ASSERT_TRUE(actor.Until([&] { return !actor.grants.empty(); })) << actor.lost;
  SegmentHeader header = actor.Header(actor.grants[0]);
  auto payload = actor.Payload(learner.layout(header.group), header, 0);
  payload[5000] ^= std::byte{1};
  std::atomic<bool> released = false;
  ASSERT_TRUE(actor.transport->SendSegment(header, payload.data(), [&] { released = true; }).ok());
  ASSERT_TRUE(actor.Until([&] { return actor.bye.has_value(); })) << actor.lost;
  EXPECT_EQ(actor.bye->code, static_cast<int32_t>(absl::StatusCode::kDataLoss));
  EXPECT_FALSE(actor.Until([] { return false; }));
  EXPECT_TRUE(absl::IsUnavailable(actor.lost)) << actor.lost;
  EXPECT_EQ(learner.Count("checksum_errors"), 1u);
  actor.transport->Close();
  EXPECT_TRUE(released);
}

TEST(ServiceGrpc, AnotherProtocolIsRefusedWithTheSideThatIsOld) {
  Learner learner;
  Actor actor(learner);
  Hello hello = Actor::MakeHello("new");
  hello.protocol_min = hello.protocol_max = 99;
  ASSERT_TRUE(actor.transport->Send(hello).ok());
  ASSERT_TRUE(actor.Until([&] { return actor.bye.has_value(); })) << actor.lost;
  EXPECT_EQ(actor.bye->code, static_cast<int32_t>(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(actor.bye->reason, HasSubstr("the learner is too old"));
}

TEST(ServiceGrpc, LargeWeightsTravelInChunks) {
  Learner learner;
  const WeightsPtr weights = MakeWeights(3, (size_t{64} << 20) + 12345);
  learner.service->Publish(weights);
  Actor actor(learner);
  actor.Connect();
  ASSERT_TRUE(actor.Until([&] { return actor.weights_whole; })) << actor.lost;
  ASSERT_EQ(actor.weights.size(), weights->bytes.size());
  EXPECT_EQ(actor.weights_checksum, weights->checksum);
  EXPECT_EQ(XXH3_64bits(actor.weights.data(), actor.weights.size()), weights->checksum);
}

TEST(ServiceGrpc, ASlowReaderPassesOverVersionsAndGetsTheLast) {
  Learner learner;
  Actor actor(learner);
  actor.Connect();
  ASSERT_TRUE(actor.Until([&] { return !actor.groups.empty(); })) << actor.lost;
  constexpr uint64_t kLast = 100;  // 400 MiB, of which the windows hold a small part
  for (uint64_t version = 1; version <= kLast; ++version) {
    learner.service->Publish(MakeWeights(version, size_t{4} << 20));
  }
  ASSERT_TRUE(actor.Until([&] { return actor.weights_whole && actor.versions.back() == kLast; }))
      << actor.lost;
  EXPECT_LT(actor.versions.size(), kLast / 2);
  EXPECT_TRUE(std::is_sorted(actor.versions.begin(), actor.versions.end()));
}

TEST(ServiceGrpc, AServerThatEndsSaysSo) {
  Learner learner;
  Actor actor(learner);
  actor.Connect();
  ASSERT_TRUE(actor.Until([&] { return !actor.groups.empty(); })) << actor.lost;
  learner.server->Shutdown(std::chrono::milliseconds(5000));
  ASSERT_TRUE(actor.Until([&] { return actor.bye.has_value(); })) << actor.lost;
  EXPECT_EQ(actor.bye->code, static_cast<int32_t>(absl::StatusCode::kUnavailable));
  EXPECT_FALSE(actor.Until([] { return false; }));
  EXPECT_TRUE(absl::IsUnavailable(actor.lost)) << actor.lost;
  std::atomic<bool> released = false;
  std::byte memory[8] = {};
  SegmentHeader header;
  header.bytes = sizeof memory;
  EXPECT_TRUE(absl::IsUnavailable(actor.transport->SendSegment(header, memory, [&] { released = true; })));
  EXPECT_TRUE(released);
}

TEST(ServiceGrpc, CloseMakesReceiveReturn) {
  Learner learner;
  Actor actor(learner);
  actor.Connect();
  auto received = std::async(std::launch::async, [&] {
    for (;;) {
      auto message = actor.transport->Receive(kWait);
      if (!message.ok()) return message.status();
    }
  });
  actor.transport->Close();
  EXPECT_TRUE(absl::IsCancelled(received.get()));
  EXPECT_TRUE(absl::IsCancelled(actor.transport->Send(Goodbye{})));
}

TEST(ServiceGrpc, AGoodbyeEndsInOrder) {
  Learner learner;
  Actor actor(learner);
  actor.Connect();
  ASSERT_TRUE(actor.Until([&] { return !actor.groups.empty(); })) << actor.lost;
  ASSERT_TRUE(actor.transport->Send(Goodbye{"done"}).ok());
  ASSERT_TRUE(actor.Until([&] { return actor.bye.has_value(); })) << actor.lost;
  EXPECT_EQ(actor.bye->code, 0);
}

// ---- the server's addresses ----

TEST(ServiceGrpc, ASecondServerOnThePortIsRefused) {
  Learner learner;
  ServerOptions options;
  options.listen = learner.server->address();
  options.max_segment_bytes = 1000;
  const auto second = GrpcServer::Start(options, *learner.service, learner.target);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(options.listen + " is in use"));
}

TEST(ServiceGrpc, OtherMachinesAreLetInOnlyWhenAskedFor) {
  Learner learner;
  ServerOptions options;
  options.listen = "0.0.0.0:0";
  options.max_segment_bytes = 1000;
  const auto refused = GrpcServer::Start(options, *learner.service, learner.target);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("--insecure"));
  options.insecure = true;
  EXPECT_TRUE(GrpcServer::Start(options, *learner.service, learner.target).ok());
}

// ---- health ----

struct Answer {
  grpc::Status status;
  int health = 0;  // 1: SERVING, 2: NOT_SERVING
};

// grpc.health.v1, whose messages are a string and an enum, by hand: Debian has no generated code of it.
Answer Check(const std::string& address, const std::string& service) {
  grpc::GenericStub stub(MakeChannel(address));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kWait);
  const std::string name =
      service.empty() ? "" : "\x0A" + std::string(1, static_cast<char>(service.size())) + service;
  const grpc::Slice slice(name);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer reply;
  std::promise<grpc::Status> done;
  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", grpc::StubOptions(), &request, &reply,
                 [&](const grpc::Status& status) { done.set_value(status); });
  Answer answer{done.get_future().get(), 0};
  grpc::Slice bytes;
  if (answer.status.ok() && reply.DumpToSingleSlice(&bytes).ok() && bytes.size() == 2) {
    answer.health = bytes.begin()[1];
  }
  return answer;
}

TEST(ServiceGrpc, HealthHasAStateForEachService) {
  Learner learner("", "127.0.0.1:0");
  for (const std::string& address : {learner.server->address(), learner.server->health_address()}) {
    for (const char* service :
         {"", "millrace.v1.Trajectory", "millrace.v1.Weights", "millrace.v1.Status", "millrace.v1.Control"}) {
      EXPECT_EQ(Check(address, service).health, 1) << address << " " << service;
    }
    EXPECT_EQ(Check(address, "millrace.v1.Nothing").status.error_code(), grpc::StatusCode::NOT_FOUND);
  }
  learner.server->SetServing("Trajectory", false);
  EXPECT_EQ(Check(learner.server->address(), "millrace.v1.Trajectory").health, 2);
  EXPECT_EQ(Check(learner.server->health_address(), "millrace.v1.Trajectory").health, 2);
  EXPECT_EQ(Check(learner.server->address(), "millrace.v1.Status").health, 1);
  learner.server->SetServing("", false);
  EXPECT_EQ(Check(learner.server->health_address(), "").health, 2);
  EXPECT_EQ(Check(learner.server->health_address(), "millrace.v1.Status").health, 2);
}

TEST(ServiceGrpc, TheHealthPortHasNothingElse) {
  Learner learner("", "127.0.0.1:0");
  auto client = LearnerClient::Make(learner.server->health_address());
  ASSERT_TRUE(client.ok()) << client.status();
  const auto status = (*client)->GetStatus(kWait);
  EXPECT_EQ(status.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.status().message()), HasSubstr("no Millrace learner"));
}

// ---- people ----

TEST(ServiceGrpc, StatusAndControlAnswer) {
  Learner learner;
  const auto made = LearnerClient::Make(learner.server->address());
  ASSERT_TRUE(made.ok()) << made.status();
  LearnerClient& client = **made;
  const auto status = client.GetStatus(kWait);
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->run_id, "run-1");
  EXPECT_EQ(status->state, "training");

  EXPECT_EQ(client.Pause(kWait).value(), "paused");
  EXPECT_EQ(client.Resume(kWait).value(), "training");
  EXPECT_EQ(client.Drain(kWait).value(), "draining");
  EXPECT_EQ(client.Stop(kWait).value(), "done");
  EXPECT_TRUE(client.Set({"ppo.learning_rate=0.1"}, kWait).ok());
  const auto refused = client.Set({"env.id=x"}, kWait);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("env.id: can't change"));
  const auto saved = client.SaveCheckpoint(kWait);
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(saved->path, "checkpoints/7");
  EXPECT_EQ(saved->update, 7u);
  const std::string notes = learner.target.notes();
  EXPECT_THAT(notes, testing::StartsWith("127.0.0.1:"));
  for (const char* what :
       {"asked for: pause\n", "asked for: resume\n", "asked for: drain\n", "asked for: stop\n",
        "asked for: set ppo.learning_rate=0.1\n", "asked for: checkpoint\n",
        "asked for: set env.id=x (refused: env.id: can't change"}) {
    EXPECT_THAT(notes, HasSubstr(what));
  }
}

// Calls that wait hold threads of the server; those that don't must always find one.
TEST(ServiceGrpc, WhoWaitsForACheckpointHoldsUpNobodyElse) {
  Learner learner;
  learner.target.Hold(true);
  constexpr int kCalls = 24;
  std::atomic<int> saved{0}, refused{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < kCalls; ++i) {
    callers.emplace_back([&] {
      const auto client = LearnerClient::Make(learner.server->address());
      const auto done = (*client)->SaveCheckpoint(kWait);
      if (done.ok()) ++saved;
      if (absl::IsResourceExhausted(done.status())) ++refused;
    });
  }
  while (learner.target.saving() + refused < kCalls) std::this_thread::yield();
  const auto client = LearnerClient::Make(learner.server->address());
  EXPECT_EQ((*client)->Pause(kWait).value_or("no answer"), "paused");
  learner.target.Hold(false);
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(saved, 8);
  EXPECT_EQ(refused, kCalls - 8);
}

TEST(ServiceGrpc, AWatchTellsAgainAndAgain) {
  Learner learner;
  const auto client = LearnerClient::Make(learner.server->address());
  ASSERT_TRUE(client.ok()) << client.status();
  std::vector<uint64_t> steps;
  const Status watched = (*client)->WatchStatus(std::chrono::milliseconds(100), [&](const RunStatus& status) {
    steps.push_back(status.steps);
    return steps.size() < 3;
  });
  EXPECT_TRUE(watched.ok()) << watched;
  EXPECT_EQ(steps.size(), 3u);
  EXPECT_TRUE(std::is_sorted(steps.begin(), steps.end()));

  // One that lasts until the learner ends.
  std::promise<void> first;
  bool told = false;
  auto ended = std::async(std::launch::async, [&] {
    return (*client)->WatchStatus(std::chrono::milliseconds(60'000), [&](const RunStatus&) {
      if (!std::exchange(told, true)) first.set_value();
      return true;
    });
  });
  first.get_future().wait();
  learner.server->Shutdown(std::chrono::milliseconds(5000));
  EXPECT_TRUE(ended.get().ok());
}

TEST(ServiceGrpc, NobodyThereIsSaidSo) {
  std::string address;
  {
    Learner learner;
    address = learner.server->address();
  }
  const auto client = LearnerClient::Make(address);
  ASSERT_TRUE(client.ok()) << client.status();
  const auto status = (*client)->GetStatus(kWait);
  EXPECT_TRUE(absl::IsUnavailable(status.status()));
  EXPECT_THAT(std::string(status.status().message()), HasSubstr(address + ": nobody listens there"));
}

}  // namespace
}  // namespace millrace
