#include "common/rpc/unix_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "common/text.h"

namespace millrace {
namespace {

constexpr size_t kSmallBuffer = 4096;
constexpr size_t kReadAhead = 64 * 1024;  // beyond a frame
constexpr size_t kMaxPassed = 4;          // descriptors that nobody has taken

StatusOr<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(Cat(path, ": a socket's path has 1 to ", sizeof(address.sun_path) - 1,
                                          " bytes, not ", path.size(), "; choose a shorter one"));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

Status SocketError(int error, std::string_view what) {
  const std::string text = Cat(what, ": ", std::strerror(error));
  if (error == EACCES || error == EPERM) return absl::PermissionDeniedError(text);
  if (error == EADDRINUSE) return absl::AlreadyExistsError(text);
  if (error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS) {
    return absl::ResourceExhaustedError(text);
  }
  return absl::UnavailableError(text);
}

Status Gone(int error) {
  if (error == 0 || error == EPIPE || error == ECONNRESET) {
    return absl::UnavailableError("the other end closed the connection");
  }
  return SocketError(error, "the connection failed");
}

std::array<char, 4> LengthOf(size_t bytes) {
  MILL_CHECK(bytes <= std::numeric_limits<uint32_t>::max());
  std::array<char, 4> length;
  for (size_t i = 0; i < length.size(); ++i) length[i] = static_cast<char>(bytes >> (8 * i));
  return length;
}

uint32_t LengthAt(const char* bytes) {
  uint32_t length = 0;
  for (int i = 3; i >= 0; --i) length = (length << 8) | static_cast<uint8_t>(bytes[i]);
  return length;
}

// The descriptors that came with a message.
Status KeepPassed(msghdr& message, std::deque<UniqueFd>& kept) {
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    int passed = -1;
    std::memcpy(&passed, CMSG_DATA(header), sizeof(passed));
    kept.emplace_back(passed);
  }
  if (kept.size() > kMaxPassed) {
    return absl::InvalidArgumentError("descriptors were passed without the messages that name them");
  }
  return absl::OkStatus();
}

}  // namespace

void UniqueFd::Reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

StatusOr<UniqueFd> ListenUnix(const std::string& path) {
  MILL_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return SocketError(errno, "cannot make a socket");
  // Before bind, which gives the path the socket's mode: at no time may others open it.
  if (::fchmod(fd.get(), S_IRUSR | S_IWUSR) != 0) return SocketError(errno, Cat("cannot protect ", path));
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0) {
    return SocketError(errno, Cat("cannot listen on ", path));
  }
  return fd;
}

StatusOr<UniqueFd> ConnectUnix(const std::string& path, std::chrono::milliseconds deadline) {
  MILL_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return SocketError(errno, "cannot make a socket");
  // A socket that does not block could not wait for room in the listener's queue; its send timeout is also
  // connect's.
  const int64_t left = std::max<int64_t>(deadline.count(), 1);
  timeval timeout{};
  timeout.tv_sec = left / 1000;
  timeout.tv_usec = (left % 1000) * 1000;
  int rc = ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  if (rc == 0) rc = ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  if (rc != 0) {
    const int error = errno;
    if (error == EAGAIN) return absl::UnavailableError(Cat(path, ": the learner took no connection in time"));
    return SocketError(error, Cat("cannot connect to ", path));
  }
  if (::fcntl(fd.get(), F_SETFL, O_NONBLOCK) != 0) return SocketError(errno, "cannot set up a socket");
  return fd;
}

StatusOr<UnixPeer> PeerOf(int fd) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return SocketError(errno, "cannot tell whose connection it is");
  }
  return UnixPeer{credentials.pid, credentials.uid};
}

StatusOr<bool> WaitFor(int fd, short events, std::optional<SteadyTime> until) {
  while (true) {
    int timeout = -1;
    if (until) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(*until - std::chrono::steady_clock::now());
      timeout = static_cast<int>(std::clamp<int64_t>(left.count(), 0, std::numeric_limits<int>::max()));
    }
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, timeout);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return SocketError(errno, "cannot wait for a socket");
    if (ready == 0 && until && std::chrono::steady_clock::now() >= *until) return false;
  }
}

StatusOr<size_t> ReadSome(int fd, void* memory, size_t bytes) {
  while (true) {
    const ssize_t n = ::recv(fd, memory, bytes, 0);
    if (n > 0) return static_cast<size_t>(n);
    if (n == 0) return Gone(0);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return size_t{0};
    if (errno != EINTR) return Gone(errno);
  }
}

FrameWriter::FrameWriter(std::string message, std::string_view payload, UniqueFd passed)
    : message_(std::move(message)), payload_(payload), passed_(std::move(passed)) {
  length_ = LengthOf(message_.size() + payload_.size());
}

bool FrameWriter::Append(std::string_view message) {
  if (sent_ > 0 || !payload_.empty()) return false;
  const std::array<char, 4> length = LengthOf(message.size());
  message_.append(length.data(), length.size()).append(message);
  return true;
}

StatusOr<bool> FrameWriter::Step(int fd) {
  while (sent_ < bytes()) {
    std::array<iovec, 3> parts;
    size_t count = 0, skip = sent_;
    for (const std::string_view part :
         {std::string_view(length_.data(), length_.size()), std::string_view(message_), payload_}) {
      const size_t done = std::min(skip, part.size());
      skip -= done;
      if (done < part.size()) parts[count++] = {const_cast<char*>(part.data()) + done, part.size() - done};
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (passed_) {
      message.msg_control = control;
      message.msg_controllen = sizeof(control);
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      const int passed = passed_.get();
      std::memcpy(CMSG_DATA(header), &passed, sizeof(passed));
    }
    const ssize_t n = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
      return Gone(errno);
    }
    passed_.Reset();  // it left with the first byte
    sent_ += static_cast<size_t>(n);
  }
  return true;
}

void FrameReader::MakeRoom() {
  if (begin_ == end_) begin_ = end_ = 0;
  if (end_ < buffer_.size()) return;
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    return;
  }
  buffer_.resize(std::max(kSmallBuffer, std::min(2 * buffer_.size(), options_.max_whole + kReadAhead)));
}

StatusOr<bool> FrameReader::Fill(int fd) {
  MakeRoom();
  MILL_CHECK(end_ < buffer_.size());  // frames that are here must be popped before the next one is asked for
  while (true) {
    iovec part{buffer_.data() + end_, buffer_.size() - end_};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    if (options_.descriptors) {
      message.msg_control = control;
      message.msg_controllen = sizeof(control);
    }
    const ssize_t n = ::recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (n <= 0) return Gone(n < 0 ? errno : 0);
    end_ += static_cast<size_t>(n);
    if (options_.descriptors) MILL_RETURN_IF_ERROR(KeepPassed(message, passed_));
    return true;
  }
}

StatusOr<std::optional<FrameReader::Frame>> FrameReader::Next() {
  front_ = 0;
  const size_t here = end_ - begin_;
  if (here < 4) return std::optional<Frame>();
  const size_t total = LengthAt(buffer_.data() + begin_);
  if (total > options_.max_bytes) {
    return absl::InvalidArgumentError(
        Cat("a message of ", total, " bytes; at most ", options_.max_bytes, " are allowed"));
  }
  if (here - 4 < std::min(total, options_.max_whole)) return std::optional<Frame>();
  const size_t shown = std::min(total, here - 4);
  front_ = 4 + shown;
  return std::optional<Frame>(Frame{std::string_view(buffer_.data() + begin_ + 4, shown), total});
}

void FrameReader::Pop() {
  begin_ += front_;
  // A long message must not leave every connection with a long buffer.
  if (begin_ == end_ && buffer_.size() > options_.kept_bytes && front_ < kSmallBuffer) {
    buffer_ = std::vector<char>();
    begin_ = end_ = 0;
  }
  front_ = 0;
}

UniqueFd FrameReader::TakeDescriptor() {
  if (passed_.empty()) return UniqueFd();
  UniqueFd fd = std::move(passed_.front());
  passed_.pop_front();
  return fd;
}

}  // namespace millrace
