// Unix stream sockets as both ends of the shared-memory transport use them: opening, frames of
// [u32 length, little endian][message], and the passing of one descriptor. Station: under shm_server and
// transport_shm. Owner: the connection.
//
// Threads: a FrameReader belongs to the thread that reads, a FrameWriter to the one that writes at the time;
// the functions hold nothing. Sockets are close-on-exec, never raise SIGPIPE, and do not block: who wants to
// wait calls WaitFor, which the kernel ends when the socket is ready or was shut down, by shutdown(2) from
// another thread too.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/status.h"

namespace millrace {

// Owns a descriptor; -1: none.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    Reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~UniqueFd() { Reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void Reset(int fd = -1);

 private:
  int fd_ = -1;
};

// A socket that listens on `path`, which must be free; this user's alone (mode 0600). InvalidArgument when
// the path is too long for a socket (107 bytes), AlreadyExists when something is there.
StatusOr<UniqueFd> ListenUnix(const std::string& path);

// Unavailable naming the path when nobody listens there or takes the connection in time, PermissionDenied
// when it may not be opened.
StatusOr<UniqueFd> ConnectUnix(const std::string& path, std::chrono::milliseconds deadline);

// Who opened the other end, by the kernel's word. A process of another pid namespace has pid 0.
struct UnixPeer {
  int pid = 0;
  uint32_t uid = 0;
};
StatusOr<UnixPeer> PeerOf(int fd);

using SteadyTime = std::chrono::steady_clock::time_point;
// Until one of poll(2)'s events is there, or the socket was shut down. False when `until` came first; with
// no `until` it waits for as long as that takes.
StatusOr<bool> WaitFor(int fd, short events, std::optional<SteadyTime> until);

// Up to `bytes` into `memory`: how many came, 0 for none at this time; Unavailable at the end of the stream.
StatusOr<size_t> ReadSome(int fd, void* memory, size_t bytes);

// A frame on its way out: a message, then, not copied, `payload` of the caller's, and a descriptor to pass.
class FrameWriter {
 public:
  explicit FrameWriter(std::string message, std::string_view payload = {}, UniqueFd passed = {});

  // Another frame behind this one, so that both leave in one system call. False: this one has begun to leave,
  // or does not end with its message.
  bool Append(std::string_view message);

  size_t bytes() const { return length_.size() + message_.size() + payload_.size(); }
  // Writes what the socket takes now: true when all is written, false when it takes no more. Unavailable
  // when the other end is gone.
  StatusOr<bool> Step(int fd);

 private:
  std::array<char, 4> length_;
  std::string message_;
  std::string_view payload_;
  UniqueFd passed_;
  size_t sent_ = 0;
};

// Frames on their way in, from a peer that is not trusted: memory grows with what came, not with what was
// announced.
class FrameReader {
 public:
  struct Options {
    size_t max_whole = 0;           // of a frame, this much is collected before it is shown
    size_t max_bytes = 0;           // a longer frame is an error
    bool descriptors = false;       // takes passed descriptors; otherwise the kernel drops them
    size_t kept_bytes = 64 * 1024;  // a longer buffer is given up when it is empty
  };
  explicit FrameReader(Options options) : options_(options) {}
  void set_max_bytes(size_t bytes) { options_.max_bytes = bytes; }

  // Reads once from the socket. False when nothing is there; Unavailable at the end of the stream.
  StatusOr<bool> Fill(int fd);

  // The frame at the front, when it, or its first max_whole bytes, are here. Valid until the next call.
  struct Frame {
    std::string_view bytes;  // all that is here of it
    size_t total = 0;        // its length; the rest is still to be read by ReadSome, after Pop
  };
  StatusOr<std::optional<Frame>> Next();
  void Pop();

  // The oldest descriptor that was passed and not taken yet.
  UniqueFd TakeDescriptor();
  // Nothing begun and not ended.
  bool idle() const { return begin_ == end_; }

 private:
  void MakeRoom();

  Options options_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;  // of what is here
  size_t front_ = 0;            // bytes of the frame that Next showed, its length's four included
  std::deque<UniqueFd> passed_;
};

}  // namespace millrace
