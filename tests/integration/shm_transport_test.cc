// The shared-memory transport as a whole: actors at their end, the trajectory service behind the server.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "common/rpc/codec.h"
#include "common/rpc/unix_socket.h"
#include "common/text.h"
#include "learner/socket_claim.h"
#include "tests/integration/shm_fixture.h"

namespace millrace {
namespace {

using testing::HasSubstr;

TEST(ShmTransport, SegmentsAreTrainedOnWhereTheyWereWritten) {
  ShmFixture f([] { return uint64_t{1} << 30; }, 3'000'000);
  ShmActor actor;
  ASSERT_TRUE(actor.Join(f.path, "a").ok());
  for (uint64_t round = 0; round < 4; ++round) {
    if (round > 0) f.Publish(round, 3'000'000);
    ASSERT_TRUE(Eventually([&] { return f.GetStatus().rows_missing == 0; }));
    f.OpenRound();
    const Status played = actor.PlayRound(f.width);
    ASSERT_TRUE(played.ok()) << played;
    EXPECT_EQ(actor.weights.size(), 3'000'000u);
    EXPECT_EQ(actor.weights_checksum, XXH3_64bits(actor.weights.data(), actor.weights.size()));
    const auto batch = f.service->Take();
    ASSERT_TRUE(batch.ok()) << batch.status();
    ASSERT_EQ(batch->segments.size(), 4u);
    for (size_t g = 0; g < 4; ++g) {
      const float mark = *reinterpret_cast<const float*>(batch->segments[g].obs(0, 0));
      EXPECT_EQ(mark, static_cast<float>(100 * g + round * ShmFixture::kSteps));
    }
    f.service->Release();
  }
  const RunStatus status = f.GetStatus();
  ASSERT_EQ(status.actors.size(), 1u);
  EXPECT_EQ(status.actors[0].transport, "shared_memory");
  EXPECT_EQ(status.actors[0].address, Cat("unix:pid ", ::getpid()));
  EXPECT_EQ(status.actors[0].segments, 16u);
  // The last message is booked after it has left, so the actor may have it before.
  EXPECT_TRUE(Eventually([&] { return f.server->OutQueue().depth == 0; }));
  EXPECT_EQ(f.server->ring_error(), "");
}

// A batch outlives the connection that it came by.
TEST(ShmTransport, MemoryStaysWhileItIsTrainedOn) {
  ShmFixture f;
  ShmActor actor;
  ASSERT_TRUE(actor.Join(f.path, "a").ok());
  f.OpenRound();
  ASSERT_TRUE(actor.PlayRound(f.width).ok());
  const auto batch = f.service->Take();
  ASSERT_TRUE(batch.ok());
  actor.transport.reset();
  ASSERT_TRUE(Eventually([&] { return f.CounterOf("connections_lost") == 1; }));
  EXPECT_EQ(*reinterpret_cast<const float*>(batch->segments[3].obs(0, 0)), 300.0f);
  f.service->Release();
}

TEST(ShmTransport, DamagedSegmentsEndTheConnection) {
  ShmFixture f;
  ShmActor actor;
  ASSERT_TRUE(actor.Join(f.path, "a").ok());
  f.OpenRound();
  ASSERT_TRUE(actor.Until([&] { return !actor.grants.empty(); }).ok());
  const SegmentHeader header = actor.Write(actor.grants[0], f.width);
  std::byte* const slot = actor.transport->Slot(header.slot);
  ASSERT_NE(slot, nullptr);
  slot[8] ^= std::byte{1};
  ASSERT_TRUE(actor.transport->SendSegment(header, slot, [] {}).ok());
  const Status end = actor.UntilTheEnd();
  EXPECT_TRUE(absl::IsDataLoss(end)) << end;
  EXPECT_EQ(f.CounterOf("checksum_errors"), 1u);
  EXPECT_TRUE(absl::IsUnavailable(actor.transport->Receive(kPatience).status())) << "after Bye, the end";
}

TEST(ShmTransport, SlotsAreTheRings) {
  // Beyond the ring, far beyond, and of the ring but granted to nobody.
  for (const int32_t slot : {1000, INT32_MAX, 11}) {
    ShmFixture f;
    ShmActor actor;
    ASSERT_TRUE(actor.Join(f.path, "a").ok());
    f.OpenRound();
    ASSERT_TRUE(actor.Until([&] { return !actor.grants.empty(); }).ok());
    EXPECT_EQ(actor.transport->Slot(1000), nullptr);
    EXPECT_EQ(actor.transport->Slot(-1), nullptr);
    EXPECT_NE(actor.transport->Slot(11), nullptr);
    SegmentHeader header = actor.Write(actor.grants[0], f.width);
    header.slot = slot;
    ASSERT_TRUE(actor.transport->SendSegment(header, nullptr, [] {}).ok());
    const Status end = actor.UntilTheEnd();
    EXPECT_TRUE(absl::IsInvalidArgument(end)) << end;
    EXPECT_THAT(std::string(end.message()), HasSubstr(Cat(slot)));
  }
}

// The memory that rings may take is used up: segments go through the socket, and status says so.
TEST(ShmTransport, WithoutMemoryForARing) {
  ShmFixture f([] { return uint64_t{4096}; }, 100, /*observation_width=*/100'000);
  ShmActor actor;
  ASSERT_TRUE(actor.Join(f.path, "a").ok());
  for (uint64_t round = 0; round < 2; ++round) {
    f.Publish(round + 1, 100);
    f.OpenRound();
    ASSERT_TRUE(actor.Until([&] { return actor.grants.size() == 4; }).ok());
    EXPECT_EQ(actor.grants[0].slot, -1);
    ASSERT_TRUE(actor.SendGranted(f.width).ok());
    ASSERT_TRUE(actor.UntilAcknowledged().ok());
    const auto batch = f.service->Take();
    ASSERT_TRUE(batch.ok());
    EXPECT_GT(batch->segments[0].layout().bytes(), size_t{2} << 20) << "longer than a head";
    EXPECT_EQ(*reinterpret_cast<const float*>(batch->segments[3].obs(0, 0)),
              static_cast<float>(300 + round * ShmFixture::kSteps));
    f.service->Release();
  }
  EXPECT_THAT(f.GetStatus().actors[0].transport_note, HasSubstr("no memory for a ring"));
  EXPECT_THAT(f.server->ring_error(), HasSubstr("only 1 MiB of memory are free"));
}

// ---- those who do not keep to the protocol ----

// What the learner's end says: the Bye's status, or Unavailable when the connection just ended.
Status EndOf(int fd) {
  FrameReader reader({kMaxControlBytes, kMaxControlBytes, true});
  while (true) {
    MILL_ASSIGN_OR_RETURN(const auto frame, reader.Next());
    if (!frame) {
      MILL_RETURN_IF_ERROR(WaitFor(fd, POLLIN, std::chrono::steady_clock::now() + kPatience).status());
      MILL_RETURN_IF_ERROR(reader.Fill(fd).status());
      continue;
    }
    MILL_ASSIGN_OR_RETURN(const LearnerFrame parsed, ParseLearnerFrame(frame->bytes));
    const auto* message = std::get_if<LearnerMessage>(&parsed);
    if (message != nullptr && std::holds_alternative<Bye>(*message)) return ShmActor::Unexpected(*message);
    reader.Pop();
  }
}

struct Stranger {
  UniqueFd fd;
  explicit Stranger(const std::string& path) : fd(*ConnectUnix(path, kPatience)) {}
  void Write(const std::string& bytes) const {
    // The learner may have hung up before all of it is out.
    [[maybe_unused]] const ssize_t n = ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  void WriteFrame(std::string message) const {
    FrameWriter writer(std::move(message));
    EXPECT_TRUE(*writer.Step(fd.get()));
  }
  Status End() const { return EndOf(fd.get()); }
};

std::string EncodedHello(const std::string& name) {
  Hello hello;
  hello.actor = name;
  hello.incarnation = 1;
  return Encode(ActorMessage(hello));
}

TEST(ShmTransport, StrangersAreToldWhatIsWrong) {
  ShmFixture f;
  ShmActor actor;
  ASSERT_TRUE(actor.Join(f.path, "good").ok());

  Stranger early(f.path);
  early.WriteFrame(Encode(ActorMessage(Heartbeat{})));
  EXPECT_TRUE(absl::IsFailedPrecondition(early.End()));

  Stranger eager(f.path);
  SegmentHeader header;
  header.sequence = header.bytes = 1;
  eager.WriteFrame(EncodeSegmentPrefix(header) + "x");
  EXPECT_TRUE(absl::IsFailedPrecondition(eager.End()));

  Stranger garbled(f.path);
  garbled.WriteFrame(EncodedHello("b"));
  garbled.WriteFrame(std::string(5000, '\xff'));
  EXPECT_TRUE(absl::IsDataLoss(garbled.End()));

  Stranger loud(f.path);
  loud.Write(std::string("\xff\xff\xff\xff", 4));  // announces 4 GiB
  loud.Write(std::string(100'000, '\0'));
  EXPECT_TRUE(absl::IsInvalidArgument(loud.End()));

  Stranger false_actor(f.path);
  Hello hello;
  hello.actor = "old";
  hello.protocol_min = hello.protocol_max = 99;
  false_actor.WriteFrame(Encode(ActorMessage(hello)));
  const Status refused = false_actor.End();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("too old"));

  {
    Stranger cut(f.path);
    cut.WriteFrame(EncodedHello("cut"));
    cut.Write(std::string("\x10\0\0\0half", 8));
  }
  EXPECT_TRUE(Eventually([&] { return f.CounterOf("connections_lost") >= 2; }));

  f.OpenRound();
  const Status played = actor.PlayRound(f.width);
  EXPECT_TRUE(played.ok()) << "nothing of it disturbed the others: " << played;
}

TEST(ShmTransport, RandomBytes) {
  ShmFixture f;
  std::mt19937 random(1);
  const std::string hello = EncodedHello("fuzz");
  for (int i = 0; i < 60; ++i) {
    Stranger stranger(f.path);
    if (i % 2 == 0) stranger.WriteFrame(hello);
    std::string bytes(random() % 3000, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    if (i % 3 == 0 && bytes.size() >= 4) {  // a plausible length
      bytes[1] = static_cast<char>(random() % 8);
      bytes[2] = bytes[3] = 0;
    }
    stranger.Write(bytes);
    ::shutdown(stranger.fd.get(), SHUT_WR);
    EXPECT_FALSE(stranger.End().ok());
  }
  ShmActor actor;
  ASSERT_TRUE(actor.Join(f.path, "good").ok());
  f.OpenRound();
  EXPECT_TRUE(actor.Until([&] { return !actor.grants.empty(); }).ok());
}

// ---- life and death ----

size_t OpenDescriptors() {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) count += entry.exists();
  return count;
}

size_t MappedRings() {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("memfd:millrace-ring") != line.npos;
  return count;
}

TEST(ShmTransport, AHundredActorsLeaveNothingBehind) {
  const size_t before = OpenDescriptors();
  {
    ShmFixture f;
    std::vector<ShmActor> actors(100);
    for (size_t i = 0; i < actors.size(); ++i) {
      const Status joined = actors[i].Join(f.path, Cat("actor", i));
      ASSERT_TRUE(joined.ok()) << joined;
    }
    ASSERT_TRUE(Eventually([&] { return f.GetStatus().actors.size() == 100; }));
    EXPECT_LE(OpenDescriptors(), before + 3 * 100 + 20)
        << "a socket's two ends, and the learner's descriptor of the ring; none of the actors'";
    for (ShmActor& actor : actors) ASSERT_TRUE(actor.transport->Send(Goodbye{"done"}).ok());
    for (ShmActor& actor : actors) EXPECT_TRUE(actor.UntilTheEnd().ok()) << "an orderly end";
    EXPECT_TRUE(Eventually([&] { return MappedRings() == 100; })) << "the actors' own";
  }
  EXPECT_EQ(MappedRings(), 0u);
  EXPECT_EQ(OpenDescriptors(), before);
}

// Joins, takes its grants, writes into a slot, and waits for its end.
[[noreturn]] void ActorThatIsKilled(int go, int report) {
  char path[128] = {};
  if (::read(go, path, sizeof(path) - 1) <= 0) ::_exit(1);
  ShmActor actor;
  if (!actor.Join(path, "killed").ok()) ::_exit(2);
  if (!actor.Until([&] { return actor.grants.size() == 4; }).ok()) ::_exit(3);
  actor.Write(actor.grants[0], 2);
  if (::write(report, "x", 1) != 1) ::_exit(4);
  actor.UntilTheEnd().IgnoreError();
  ::_exit(5);
}

TEST(ShmTransport, AKilledActorIsNoticedAtOnceAndItsRingIsFreed) {
  int go[2], report[2];
  ASSERT_EQ(::pipe2(go, O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(report, O_CLOEXEC), 0);
  const pid_t child = ::fork();  // before there are threads
  ASSERT_GE(child, 0);
  if (child == 0) ActorThatIsKilled(go[0], report[1]);
  ShmFixture f;
  ASSERT_EQ(::write(go[1], f.path.data(), f.path.size()), static_cast<ssize_t>(f.path.size()));
  ASSERT_TRUE(Eventually([&] { return f.GetStatus().rows_missing == 0; }));
  f.OpenRound();
  char byte = 0;
  ASSERT_EQ(::read(report[0], &byte, 1), 1);
  EXPECT_EQ(MappedRings(), 1u);
  EXPECT_EQ(f.GetStatus().actors[0].address, Cat("unix:pid ", child));
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  EXPECT_TRUE(Eventually([&] { return f.CounterOf("connections_lost") == 1; }))
      << "long before the lease ends";
  EXPECT_TRUE(Eventually([&] { return MappedRings() == 0; }));
  int wait_status = 0;
  ASSERT_EQ(::waitpid(child, &wait_status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(wait_status));
  for (const int fd : {go[0], go[1], report[0], report[1]}) ::close(fd);
}

TEST(ShmTransport, CloseWakesWhoWaits) {
  ShmFixture f;
  ShmActor actor;
  ASSERT_TRUE(actor.Join(f.path, "a").ok());
  std::thread receiver([&] { EXPECT_TRUE(absl::IsCancelled(actor.UntilTheEnd())); });
  actor.transport->Close();
  receiver.join();
  EXPECT_TRUE(absl::IsCancelled(actor.transport->Send(Heartbeat{})));
  bool released = false;
  EXPECT_TRUE(absl::IsCancelled(actor.transport->SendSegment({}, nullptr, [&] { released = true; })));
  EXPECT_TRUE(released);
}

// A learner that is stopped does not read: the sender waits, until it is closed.
TEST(ShmTransport, CloseWakesASenderThatTheLearnerDoesNotRead) {
  TempDir dir;
  const auto listener = ListenUnix(dir.File("s"));
  ASSERT_TRUE(listener.ok());
  const auto transport = *ConnectSharedMemory(dir.File("s"), kPatience);
  EXPECT_TRUE(absl::IsDeadlineExceeded(transport->Receive(std::chrono::milliseconds(5)).status()));
  std::thread sender([&] {
    Status status;
    while (status.ok()) status = transport->Send(Goodbye{std::string(100'000, 'x')});
    EXPECT_TRUE(absl::IsCancelled(status)) << status;
  });
  EXPECT_TRUE(absl::IsDeadlineExceeded(transport->Receive(std::chrono::milliseconds(20)).status()));
  transport->Close();
  sender.join();
}

// Nobody closes here: the sender gives the learner up by itself, and whoever receives hears the same reason.
TEST(ShmTransport, ALearnerThatTakesNothingIsGivenUp) {
  TempDir dir;
  const auto listener = ListenUnix(dir.File("s"));
  ASSERT_TRUE(listener.ok());
  const std::chrono::milliseconds brief(50);
  const auto stuck = *ConnectSharedMemory(dir.File("s"), kPatience, brief);
  const UniqueFd unread(::accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
  const auto other = *ConnectSharedMemory(dir.File("s"), kPatience, brief);
  const UniqueFd read(::accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
  Status status;
  const std::string payload(100'000, 'x');
  SegmentHeader header;
  header.bytes = payload.size();
  int released = 0, sent = 0;
  while (status.ok()) {
    const auto* bytes = reinterpret_cast<const std::byte*>(payload.data());
    status = stuck->SendSegment(header, bytes, [&] { ++released; });
    ++sent;
  }
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("taken nothing from its socket for 50 ms"));
  EXPECT_EQ(released, sent);
  EXPECT_EQ(stuck->Send(Heartbeat{}), status);
  EXPECT_EQ(stuck->Receive(kPatience).status(), status);
  // Another connection goes on.
  size_t came = 0;
  std::thread reader([&] {
    std::vector<char> some(100'000);
    ssize_t n = 1;
    while (n > 0) {
      n = ::recv(read.get(), some.data(), some.size(), 0);
      came += static_cast<size_t>(std::max<ssize_t>(n, 0));
    }
  });
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(other->SendSegment(header, reinterpret_cast<const std::byte*>(payload.data()), [] {}).ok());
  }
  other->Close();
  reader.join();
  EXPECT_GE(came, 10 * payload.size());
}

TEST(ShmTransport, TheServersEndIsToldAndLeavesNoFile) {
  ShmFixture f;
  ShmActor actor;
  ASSERT_TRUE(actor.Join(f.path, "a").ok());
  ASSERT_TRUE(Eventually([&] { return f.GetStatus().rows_missing == 0; }));
  std::thread shutdown([&] { f.server->Shutdown(kPatience); });
  const Status end = actor.UntilTheEnd();
  EXPECT_TRUE(absl::IsUnavailable(end)) << end;
  EXPECT_EQ(end.message(), "the learner ends");
  shutdown.join();
  EXPECT_EQ(f.CounterOf("connections_lost"), 1u);
  EXPECT_TRUE(std::filesystem::is_empty(f.dir.path()));
  EXPECT_TRUE(absl::IsUnavailable(ConnectSharedMemory(f.path, kPatience).status()));
}

// ---- the path ----

TEST(ShmServerPath, BelongsToOneLearner) {
  ShmFixture f;
  const Status second = ShmServer::Start(f.path, *f.service).status();
  EXPECT_TRUE(absl::IsAlreadyExists(second)) << second;
  EXPECT_THAT(std::string(second.message()), HasSubstr("another learner"));
  ShmActor actor;
  EXPECT_TRUE(actor.Join(f.path, "a").ok()) << "and the first is as it was";
}

TEST(ShmServerPath, AStaleOneIsTakenOver) {
  ShmFixture f;
  const std::string stale = f.dir.File("stale");
  ASSERT_TRUE(ListenUnix(stale).ok());
  std::ofstream(stale + ".lock") << "of a process that was killed";
  const auto server = ShmServer::Start(stale, *f.service);
  ASSERT_TRUE(server.ok()) << server.status();
  ShmActor actor;
  EXPECT_TRUE(actor.Join(stale, "a").ok());
}

TEST(ShmServerPath, WhatKilledLearnersLeftIsSweptAndNothingElse) {
  ShmFixture f;
  const auto leave = [&](const std::string& name, bool old) {
    EXPECT_TRUE(ListenUnix(f.dir.File(name)).ok());
    std::ofstream(f.dir.File(name + ".lock")) << "";
    const auto now = std::filesystem::file_time_type::clock::now();
    std::filesystem::last_write_time(f.dir.File(name + ".lock"), now - std::chrono::hours(old ? 1 : 0));
  };
  leave("x-1.sock", true);
  leave("x-young.sock", false);
  leave("x-claimed.sock", true);
  leave("y-1.sock", true);
  EXPECT_TRUE(ListenUnix(f.dir.File("x-2.sock")).ok());  // without a lock
  std::ofstream(f.dir.File("x-file.sock")) << "data";
  const auto claim = SocketClaim::Take(f.dir.File("x-claimed.sock"));
  ASSERT_TRUE(claim.ok()) << claim.status();
  EXPECT_EQ(SocketClaim::SweepAbandoned(f.dir.path(), "x-"), 2);
  const auto there = [&](const std::string& name) { return std::filesystem::exists(f.dir.File(name)); };
  for (const char* name : {"x-1.sock", "x-1.sock.lock", "x-2.sock", "x-2.sock.lock", "x-file.sock.lock"}) {
    EXPECT_FALSE(there(name)) << name;
  }
  for (const char* name : {"x-young.sock", "x-young.sock.lock", "x-claimed.sock", "x-claimed.sock.lock",
                           "y-1.sock", "x-file.sock"}) {
    EXPECT_TRUE(there(name)) << name;
  }
  EXPECT_EQ(SocketClaim::SweepAbandoned(f.dir.File("nowhere"), "x-"), 0);
}

TEST(ShmServerPath, WhatIsNotOursStays) {
  ShmFixture f;
  const std::string file = f.dir.File("file");
  std::ofstream(file) << "data";
  EXPECT_THAT(std::string(ShmServer::Start(file, *f.service).status().message()), HasSubstr("is no socket"));
  EXPECT_EQ(std::filesystem::file_size(file), 4u);
  const auto other = ListenUnix(f.dir.File("other"));
  EXPECT_TRUE(absl::IsAlreadyExists(ShmServer::Start(f.dir.File("other"), *f.service).status()));
  EXPECT_TRUE(ConnectUnix(f.dir.File("other"), kPatience).ok());
  const std::string deep = f.dir.File(std::string(108, 'x'));
  EXPECT_TRUE(absl::IsInvalidArgument(ShmServer::Start(deep, *f.service).status()));
  EXPECT_NE(ShmServer::DefaultPath(), ShmServer::DefaultPath());
  EXPECT_LT(ShmServer::DefaultPath().size(), 108u);
}

}  // namespace
}  // namespace millrace
