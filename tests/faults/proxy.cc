#include "tests/faults/proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <list>
#include <thread>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "common/text.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  ~Socket() { Close(); }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }
  void Close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  // Ends in order even where bytes were not read, for which the kernel would send a reset.
  void Finish() {
    ::shutdown(fd_, SHUT_RDWR);
    char unread[4096];
    while (::recv(fd_, unread, sizeof unread, MSG_DONTWAIT) > 0) {
    }
    Close();
  }
  // Closes with a reset instead of an orderly end.
  void Reset() {
    const linger abort = {1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &abort, sizeof abort);
    Close();
  }

 private:
  int fd_;
};

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

struct Chunk {
  std::string bytes;
  size_t sent = 0;
  Time due;
};

// One direction of one connection.
struct Lane {
  std::deque<Chunk> chunks;
  size_t queued = 0;
  bool ended = false, passed_end = false;  // the sender has closed; and the receiver knows
  Time next_send;                          // by the throttle
  bool room() const { return !ended && queued < Proxy::kBufferBytes; }
};

struct Connection {
  std::array<Socket, 2> ends;  // client, server: a lane reads from the end of its direction
  std::array<Lane, 2> lanes;
  bool stalled = false;
  bool gone = false;
};

struct Rule {
  std::chrono::milliseconds delay{0};
  uint64_t bytes_per_second = 0;
  bool flips = false;
  uint64_t flip_after = 0, flip_every = 0;
};

}  // namespace

class Proxy::Impl {
 public:
  Impl(Socket listener, Socket wake, uint16_t port, uint16_t target)
      : listener_(std::move(listener)), wake_(std::move(wake)), port_(port), target_(target) {
    thread_ = std::thread([this] { Run(); });
  }
  ~Impl() {
    {
      MutexLock lock(mutex_);
      stop_ = true;
    }
    Wake();
    thread_.join();
  }

  uint16_t port() const { return port_; }

  // Changes something under the lock and has the thread look at it.
  template <typename Change>
  void Command(Change&& change) {
    {
      MutexLock lock(mutex_);
      change(*this);
    }
    Wake();
  }

  Counts counts() const {
    MutexLock lock(mutex_);
    Counts counts = counts_;
    counts.open = connections_.size();
    for (const Connection& c : connections_) counts.stalled += c.stalled;
    return counts;
  }

 private:
  friend class Proxy;

  void Wake() {
    const uint64_t one = 1;
    static_cast<void>(!::write(wake_.get(), &one, sizeof one));
  }

  // The lock is held but while polling: a command waits for one round at most, and none of it blocks.
  void Run() {
    std::vector<pollfd> polled;
    while (true) {
      int timeout = -1;
      {
        MutexLock lock(mutex_);
        if (stop_) return;
        timeout = Prepare(polled);
      }
      ::poll(polled.data(), polled.size(), timeout);
      MutexLock lock(mutex_);
      if (polled[0].revents != 0) {
        uint64_t ignored;
        static_cast<void>(!::read(wake_.get(), &ignored, sizeof ignored));
      }
      if (polled[1].revents != 0) Accept();
      for (Connection& c : connections_) {
        if (!c.stalled) Serve(c);
      }
      connections_.remove_if([](const Connection& c) { return c.gone; });
    }
  }

  // What to wait for, and at most how long (milliseconds, -1: without end).
  int Prepare(std::vector<pollfd>& polled) MILL_REQUIRES(mutex_) {
    polled = {{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    const Time now = Clock::now();
    Time next = Time::max();
    for (const Connection& c : connections_) {
      if (c.stalled) continue;
      std::array<short, 2> events = {0, 0};
      for (size_t d = 0; d < 2; ++d) {
        const Lane& lane = c.lanes[d];
        if (lane.room()) events[d] |= POLLIN;
        if (lane.chunks.empty()) continue;
        const Time at = std::max(lane.chunks.front().due, lane.next_send);
        if (at <= now) {
          events[1 - d] |= POLLOUT;
        } else {
          next = std::min(next, at);
        }
      }
      // Without its descriptor nothing is reported, so one that hung up does not keep the thread busy.
      for (size_t d = 0; d < 2; ++d) polled.push_back({events[d] == 0 ? -1 : c.ends[d].get(), events[d], 0});
    }
    if (next == Time::max()) return -1;
    return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(next - now).count());
  }

  void Accept() MILL_REQUIRES(mutex_) {
    Socket client(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (client.get() < 0) return;
    ++counts_.accepted;
    Socket server(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in address = Loopback(target_);
    // On loopback a connection stands, or is refused, at once.
    if (refuse_ ||
        ::connect(server.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      return client.Reset();
    }
    const int one = 1;
    for (const Socket* end : {&client, &server}) {
      ::setsockopt(end->get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    connections_.emplace_back();
    connections_.back().ends = {std::move(client), std::move(server)};
  }

  void Serve(Connection& c) MILL_REQUIRES(mutex_) {
    for (size_t d = 0; d < 2 && !c.gone; ++d) {
      c.gone = !Read(c, d) || !Write(c, d);
    }
    if (c.gone) {  // one side is broken: the other learns it in the same way
      for (Socket& end : c.ends) end.Reset();
    }
    c.gone = c.gone || (c.lanes[0].passed_end && c.lanes[1].passed_end);
  }

  // False: the connection is broken.
  bool Read(Connection& c, size_t d) MILL_REQUIRES(mutex_) {
    Lane& lane = c.lanes[d];
    if (!lane.room()) return true;
    char buffer[64 << 10];
    const ssize_t n = ::recv(c.ends[d].get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (n == 0) {
      lane.ended = true;
      return true;
    }
    const auto size = static_cast<size_t>(n);
    (d == 0 ? counts_.bytes_up : counts_.bytes_down) += size;
    lane.chunks.push_back({std::string(buffer, size), 0, Clock::now() + rules_[d].delay});
    lane.queued += size;
    Flip(rules_[d], lane.chunks.back().bytes);
    return true;
  }

  void Flip(Rule& rule, std::string& bytes) MILL_REQUIRES(mutex_) {
    size_t at = 0;
    while (rule.flips && rule.flip_after < bytes.size() - at) {
      at += static_cast<size_t>(rule.flip_after);
      bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
      ++counts_.flipped;
      rule.flips = rule.flip_every > 0;
      rule.flip_after = rule.flip_every > 0 ? rule.flip_every - 1 : 0;
      ++at;
    }
    if (rule.flips) rule.flip_after -= bytes.size() - at;
  }

  bool Write(Connection& c, size_t d) MILL_REQUIRES(mutex_) {
    Lane& lane = c.lanes[d];
    const int to = c.ends[1 - d].get();
    while (!lane.chunks.empty()) {
      Chunk& chunk = lane.chunks.front();
      const Time now = Clock::now();
      if (std::max(chunk.due, lane.next_send) > now) return true;
      size_t size = chunk.bytes.size() - chunk.sent;
      const uint64_t rate = rules_[d].bytes_per_second;
      if (rate > 0) size = std::min<size_t>(size, std::max<uint64_t>(1, rate / 100));
      const ssize_t n = ::send(to, chunk.bytes.data() + chunk.sent, size, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n < 0) return errno == EAGAIN || errno == EINTR;
      if (rate > 0) lane.next_send = now + std::chrono::nanoseconds(1'000'000'000 / rate * n);
      chunk.sent += static_cast<size_t>(n);
      lane.queued -= static_cast<size_t>(n);
      if (chunk.sent == chunk.bytes.size()) lane.chunks.pop_front();
    }
    if (lane.ended && !lane.passed_end) {
      ::shutdown(to, SHUT_WR);
      lane.passed_end = true;
    }
    return true;
  }

  const Socket listener_, wake_;
  const uint16_t port_;
  std::thread thread_;

  mutable Mutex mutex_;
  bool stop_ MILL_GUARDED_BY(mutex_) = false, refuse_ MILL_GUARDED_BY(mutex_) = false;
  uint16_t target_ MILL_GUARDED_BY(mutex_);
  std::array<Rule, 2> rules_ MILL_GUARDED_BY(mutex_);
  std::list<Connection> connections_ MILL_GUARDED_BY(mutex_);
  Counts counts_ MILL_GUARDED_BY(mutex_);
};

StatusOr<std::unique_ptr<Proxy>> Proxy::Start(uint16_t port) {
  Socket listener(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  Socket wake(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (listener.get() < 0 || wake.get() < 0 || ::bind(listener.get(), generic, sizeof address) != 0 ||
      ::listen(listener.get(), 1024) != 0 || ::getsockname(listener.get(), generic, &size) != 0) {
    return absl::UnavailableError(Cat("proxy: ", std::strerror(errno)));
  }
  auto impl = std::make_unique<Impl>(std::move(listener), std::move(wake), ntohs(address.sin_port), port);
  return std::unique_ptr<Proxy>(new Proxy(std::move(impl)));
}

Proxy::Proxy(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Proxy::~Proxy() = default;

std::string Proxy::address() const {
  return Cat("127.0.0.1:", impl_->port());
}

void Proxy::SetTarget(uint16_t port) {
  impl_->Command([&](Impl& p) MILL_NO_THREAD_SAFETY_ANALYSIS { p.target_ = port; });
}

void Proxy::Delay(Direction direction, std::chrono::milliseconds delay) {
  impl_->Command([&](Impl& p) MILL_NO_THREAD_SAFETY_ANALYSIS {
    p.rules_[static_cast<size_t>(direction)].delay = delay;
  });
}

void Proxy::Throttle(Direction direction, uint64_t bytes_per_second) {
  impl_->Command([&](Impl& p) MILL_NO_THREAD_SAFETY_ANALYSIS {
    p.rules_[static_cast<size_t>(direction)].bytes_per_second = bytes_per_second;
  });
}

void Proxy::CutAll(Cut how) {
  impl_->Command([&](Impl& p) MILL_NO_THREAD_SAFETY_ANALYSIS {
    for (Connection& c : p.connections_) {
      for (Socket& end : c.ends) how == Cut::kReset ? end.Reset() : end.Finish();
    }
    p.connections_.clear();
  });
}

void Proxy::StallPresent() {
  impl_->Command([](Impl& p) MILL_NO_THREAD_SAFETY_ANALYSIS {
    for (Connection& c : p.connections_) c.stalled = true;
  });
}

void Proxy::Refuse(bool refuse) {
  impl_->Command([&](Impl& p) MILL_NO_THREAD_SAFETY_ANALYSIS { p.refuse_ = refuse; });
}

void Proxy::FlipBit(Direction direction, uint64_t after, uint64_t every) {
  impl_->Command([&](Impl& p) MILL_NO_THREAD_SAFETY_ANALYSIS {
    Rule& rule = p.rules_[static_cast<size_t>(direction)];
    rule.flips = true;
    rule.flip_after = after;
    rule.flip_every = every;
  });
}

void Proxy::StopFlipping() {
  impl_->Command([](Impl& p) MILL_NO_THREAD_SAFETY_ANALYSIS {
    for (Rule& rule : p.rules_) rule.flips = false;
  });
}

Proxy::Counts Proxy::counts() const {
  return impl_->counts();
}

}  // namespace millrace
