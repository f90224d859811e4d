// The proxy itself, between plain sockets: what it is told to do to the bytes is what happens to them.
#include "tests/faults/proxy.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"

namespace millrace {
namespace {

using std::chrono_literals::operator""ms;
using Direction = Proxy::Direction;

constexpr int kDeadlineMs = 20'000;

class Plain {  // a TCP socket with deadlines
 public:
  explicit Plain(int fd) : fd_(fd) {}
  Plain(Plain&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Plain() {
    if (fd_ >= 0) ::close(fd_);
  }

  static sockaddr_in Address(uint16_t port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
  }
  static Plain Listen(uint16_t* port) {
    Plain s(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address = Address(0);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(s.fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(s.fd_, 16), 0);
    EXPECT_EQ(::getsockname(s.fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    *port = ntohs(address.sin_port);
    return s;
  }
  static Plain Connect(uint16_t port) {
    Plain s(::socket(AF_INET, SOCK_STREAM, 0));
    const sockaddr_in address = Address(port);
    EXPECT_EQ(::connect(s.fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    return s;
  }
  Plain Accept() const {
    EXPECT_TRUE(Readable(kDeadlineMs));
    return Plain(::accept(fd_, nullptr, nullptr));
  }
  void Send(const std::string& bytes) const {
    EXPECT_EQ(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  bool Readable(int timeout_ms) const {
    pollfd polled = {fd_, POLLIN, 0};
    return ::poll(&polled, 1, timeout_ms) == 1;
  }
  // `size` bytes, or fewer where the other side ends.
  std::string Receive(size_t size) const {
    std::string bytes;
    while (bytes.size() < size && Readable(kDeadlineMs)) {
      char buffer[4096];
      const ssize_t n = ::recv(fd_, buffer, std::min(sizeof buffer, size - bytes.size()), 0);
      if (n <= 0) break;
      bytes.append(buffer, static_cast<size_t>(n));
    }
    return bytes;
  }
  // 0: an orderly end, else errno; -1: there was more to read.
  int End() const {
    EXPECT_TRUE(Readable(kDeadlineMs));
    char byte;
    const ssize_t n = ::recv(fd_, &byte, 1, 0);
    return n == 0 ? 0 : n < 0 ? errno : -1;
  }
  void FinishSending() const { ::shutdown(fd_, SHUT_WR); }

 private:
  int fd_;
};

uint16_t PortOf(const Proxy& proxy) {
  const std::vector<std::string> parts = absl::StrSplit(proxy.address(), ':');
  return static_cast<uint16_t>(std::stoi(parts.back()));
}

class ProxyTest : public testing::Test {
 protected:
  void Connect() {
    client_.emplace_back(Plain::Connect(PortOf(*proxy_)));
    server_.emplace_back(listener_.Accept());
  }
  const Plain& client() const { return client_.back(); }
  const Plain& server() const { return server_.back(); }

  uint16_t port_ = 0;
  Plain listener_ = Plain::Listen(&port_);
  std::unique_ptr<Proxy> proxy_ = *Proxy::Start(port_);
  std::vector<Plain> client_, server_;
};

TEST_F(ProxyTest, PassesBytesBothWaysAndTheirEnd) {
  Connect();
  const std::string large(3'000'000, 'x');  // more than all buffers between
  std::thread sender([&] {
    client().Send(large);
    client().FinishSending();
  });
  EXPECT_EQ(server().Receive(large.size() + 1), large);
  sender.join();
  server().Send("and back");
  EXPECT_EQ(client().Receive(8), "and back");
  server().FinishSending();
  EXPECT_EQ(client().End(), 0);
  EXPECT_EQ(proxy_->counts().bytes_up, large.size());
  EXPECT_EQ(proxy_->counts().bytes_down, 8u);
  EXPECT_EQ(proxy_->counts().accepted, 1u);
}

TEST_F(ProxyTest, InvertsTheBitsThatItIsToldTo) {
  Connect();
  proxy_->FlipBit(Direction::kUp, 3);
  client().Send("abcdefgh");
  EXPECT_EQ(server().Receive(8), "abctefgh");  // 'd' ^ 0x10
  client().Send("abcdefgh");
  EXPECT_EQ(server().Receive(8), "abcdefgh");
  proxy_->FlipBit(Direction::kDown, 1, 3);
  server().Send("aaaaaaaa");
  EXPECT_EQ(client().Receive(8), "aqaaqaaq");
  server().Send("aaa");
  EXPECT_EQ(client().Receive(3), "aaq");
  proxy_->StopFlipping();
  server().Send("aaaaaa");
  EXPECT_EQ(client().Receive(6), "aaaaaa");
  EXPECT_EQ(proxy_->counts().flipped, 5u);
}

TEST_F(ProxyTest, CutsInOrderOrByReset) {
  Connect();
  proxy_->CutAll(Proxy::Cut::kFin);
  EXPECT_EQ(client().End(), 0);
  EXPECT_EQ(server().End(), 0);
  Connect();
  proxy_->CutAll(Proxy::Cut::kReset);
  EXPECT_EQ(client().End(), ECONNRESET);
  EXPECT_EQ(server().End(), ECONNRESET);
  EXPECT_EQ(proxy_->counts().open, 0u);
  proxy_->Refuse(true);
  const Plain refused = Plain::Connect(PortOf(*proxy_));
  EXPECT_EQ(refused.End(), ECONNRESET);
  proxy_->Refuse(false);
  Connect();
  client().Send("works");
  EXPECT_EQ(server().Receive(5), "works");
}

TEST_F(ProxyTest, AStalledConnectionStaysOpenAndSilentWhileOthersPass) {
  Connect();
  proxy_->StallPresent();
  EXPECT_EQ(proxy_->counts().stalled, 1u);
  client().Send("lost");
  Connect();  // a second pair
  client().Send("through");
  EXPECT_EQ(server().Receive(7), "through");
  EXPECT_FALSE(server_[0].Readable(0));
  EXPECT_FALSE(client_[0].Readable(0));
  EXPECT_EQ(proxy_->counts().open, 2u);
}

TEST_F(ProxyTest, HoldsBytesBackForItsDelayAndByItsRate) {
  Connect();
  proxy_->Delay(Direction::kUp, 150ms);
  const auto began = std::chrono::steady_clock::now();
  client().Send("late");
  EXPECT_EQ(server().Receive(4), "late");
  EXPECT_GE(std::chrono::steady_clock::now() - began, 150ms);  // never early, on any machine
  proxy_->Delay(Direction::kUp, 0ms);
  proxy_->Throttle(Direction::kUp, 10'000);
  const auto throttled = std::chrono::steady_clock::now();
  client().Send(std::string(2000, 'x'));
  EXPECT_EQ(server().Receive(2000).size(), 2000u);
  EXPECT_GE(std::chrono::steady_clock::now() - throttled, 180ms);
}

TEST_F(ProxyTest, ConnectsLaterClientsElsewhere) {
  uint16_t other = 0;
  const Plain elsewhere = Plain::Listen(&other);
  Connect();
  proxy_->SetTarget(other);
  const Plain late = Plain::Connect(PortOf(*proxy_));
  const Plain accepted = elsewhere.Accept();
  late.Send("hi");
  EXPECT_EQ(accepted.Receive(2), "hi");
  client().Send("still");
  EXPECT_EQ(server().Receive(5), "still");
  proxy_.reset();
  EXPECT_EQ(late.End(), 0);
}

}  // namespace
}  // namespace millrace
