#include "common/rpc/address.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace millrace {
namespace {

using ::testing::HasSubstr;

TEST(Address, IsHostAndPort) {
  const auto v4 = ParseAddress("127.0.0.1:7070");
  ASSERT_TRUE(v4.ok()) << v4.status();
  EXPECT_EQ(v4->host, "127.0.0.1");
  EXPECT_EQ(v4->port, 7070);
  EXPECT_EQ(FormatAddress(*v4), "127.0.0.1:7070");
  const auto v6 = ParseAddress("[::1]:0");
  ASSERT_TRUE(v6.ok()) << v6.status();
  EXPECT_EQ(v6->host, "::1");
  EXPECT_EQ(FormatAddress(*v6), "[::1]:0");
}

TEST(Address, AnythingElseIsRefusedWithAnExample) {
  for (const char* bad : {"", ":", "host", "host:", ":70", "host:x", "host:65536", "host:-1", "host:7070 ",
                          "::1:70", "[]:70", "a b:70", "http://host:70", "host:70x"}) {
    const auto parsed = ParseAddress(bad);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("127.0.0.1:7070")) << bad;
  }
}

TEST(Address, LoopbackIsKnown) {
  for (const char* host : {"127.0.0.1", "127.9.9.9", "::1"}) EXPECT_TRUE(*IsLoopback({host, 1})) << host;
  for (const char* host : {"0.0.0.0", "10.0.0.1", "::", "128.0.0.1"})
    EXPECT_FALSE(*IsLoopback({host, 1})) << host;
}

TEST(Address, APortInUseIsNamed) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_GE(fd, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const HostPort taken{"127.0.0.1", ntohs(address.sin_port)};
  const Status refused = CheckCanListen(taken);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr(FormatAddress(taken) + " is in use"));
  close(fd);
  EXPECT_TRUE(CheckCanListen({"127.0.0.1", 0}).ok());
  EXPECT_THAT(std::string(CheckCanListen({"192.0.2.1", 0}).message()),
              HasSubstr("no address of this machine"));
}

TEST(Address, AHostIsOneHost) {
  EXPECT_EQ(HostId(), HostId());
  EXPECT_EQ(HostId().size(), 36u);
}

}  // namespace
}  // namespace millrace
