// How an actor process finds its transport.
#include "actor/connector_grpc.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "tests/service/service_fixture.h"

namespace millrace {
namespace {

using testing::HasSubstr;

std::unique_ptr<ActorConnector> Make(const std::string& address,
                                     TransportChoice choice = TransportChoice::kAuto) {
  auto made = MakeConnector({address, choice, "0.0-test"});
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

// Takes connections and says nothing.
class SilentListener {
 public:
  SilentListener() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(fd_, 8), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~SilentListener() { close(fd_); }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  const int fd_;
  int port_ = 0;
};

TEST(ConnectorGrpc, TakesGrpcWhereSharedMemoryIsNotOffered) {
  Learner learner;
  std::string note = "old";
  auto transport = Make(learner.server->address())->Connect(kWait, &note);
  ASSERT_TRUE(transport.ok()) << transport.status();
  EXPECT_EQ((*transport)->kind(), TransportKind::kGrpc);
  EXPECT_EQ(note, "the learner does not offer it: no room");

  transport = Make(learner.server->address(), TransportChoice::kGrpc)->Connect(kWait, &note);
  ASSERT_TRUE(transport.ok()) << transport.status();
  EXPECT_EQ(note, "");
}

TEST(ConnectorGrpc, FallsBackWithTheReasonUnlessToldNotTo) {
  Learner learner("/nowhere/at/all.sock");
  std::string note;
  auto transport = Make(learner.server->address())->Connect(kWait, &note);
  ASSERT_TRUE(transport.ok()) << transport.status();
  EXPECT_EQ((*transport)->kind(), TransportKind::kGrpc);
  EXPECT_THAT(note, HasSubstr("/nowhere/at/all.sock"));

  const auto must = Make(learner.server->address(), TransportChoice::kShm)->Connect(kWait, &note);
  EXPECT_FALSE(must.ok());
  EXPECT_THAT(std::string(must.status().message()), HasSubstr("/nowhere/at/all.sock"));

  Learner without;
  const auto never = Make(without.server->address(), TransportChoice::kShm)->Connect(kWait, &note);
  EXPECT_EQ(never.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(never.status().message()), HasSubstr("does not offer it"));
}

TEST(ConnectorGrpc, SaysWhatIsWrongWithAnAddress) {
  std::string note;
  for (const char* bad : {"nonsense", "127.0.0.1:0", "127.0.0.1:99999"}) {
    EXPECT_EQ(MakeConnector({bad, TransportChoice::kAuto, ""}).status().code(),
              absl::StatusCode::kInvalidArgument)
        << bad;
  }
  std::string address;
  {
    Learner learner("", "127.0.0.1:0");
    address = learner.server->address();
    const auto other = Make(learner.server->health_address())->Connect(kWait, &note);
    EXPECT_EQ(other.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(other.status().message()), HasSubstr("no Millrace learner"));
  }
  const auto nobody = Make(address)->Connect(kWait, &note);
  EXPECT_TRUE(absl::IsUnavailable(nobody.status()));
  EXPECT_THAT(std::string(nobody.status().message()), HasSubstr("nobody listens there"));
}

TEST(ConnectorGrpc, EndsByItsDeadlineAndByShutdown) {
  const SilentListener silent;
  std::string note;
  const auto late = Make(silent.address())->Connect(std::chrono::milliseconds(200), &note);
  EXPECT_TRUE(absl::IsUnavailable(late.status())) << late.status();

  const auto connector = Make(silent.address());
  std::thread stopper([&] { connector->Shutdown(); });
  const auto stopped = connector->Connect(kWait, &note);
  stopper.join();
  EXPECT_TRUE(absl::IsCancelled(stopped.status())) << stopped.status();
  EXPECT_TRUE(absl::IsCancelled(connector->Connect(kWait, &note).status()));
}

}  // namespace
}  // namespace millrace
