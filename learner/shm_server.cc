#include "learner/shm_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "common/mutex.h"
#include "common/rpc/codec.h"
#include "common/rpc/unix_socket.h"
#include "common/text.h"
#include "learner/shm_link.h"
#include "learner/socket_claim.h"

namespace millrace {
namespace {

constexpr size_t kMaxConnections = 4096;
constexpr auto kHelloTime = std::chrono::seconds(10);   // from the connection to its first message
constexpr auto kByeTime = std::chrono::seconds(5);      // for an actor to read the end
constexpr auto kAcceptPause = std::chrono::seconds(1);  // when the process has no descriptor left
constexpr uint64_t kListenerId = 0, kWakeId = 1, kFirstId = 2;

SteadyTime Now() {
  return std::chrono::steady_clock::now();
}

struct Connection {
  std::shared_ptr<ShmLink> link;
  std::string peer;
  FrameReader reader{{kMaxControlBytes, kMaxControlBytes, false}};
  std::optional<SessionId> session;
  std::optional<SteadyTime> deadline;
  bool bye_timed = false;  // the deadline is that of the end
  // A payload on its way in, where there is no ring.
  std::optional<TrajectoryService::Ingest> ingest;
  SegmentHeader header;
  size_t payload_here = 0, payload_left = 0;
};

std::string DefaultFolder() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  // Systemd's folder is this user's alone and goes when the user logs out for good.
  const bool usable = runtime != nullptr && std::strlen(runtime) < 64 && ::access(runtime, W_OK | X_OK) == 0;
  return usable ? runtime : "/tmp";
}

std::string DefaultPrefix() {
  return Cat("millrace-", ::geteuid(), "-");
}

}  // namespace

class ShmServer::Impl {
 public:
  Impl(SocketClaim claim, UniqueFd listener, std::shared_ptr<ShmHub> hub, TrajectoryService& service)
      : claim_(std::move(claim)), listener_(std::move(listener)), hub_(std::move(hub)), service_(service) {}

  Status Begin() {
    MILL_RETURN_IF_ERROR(WatchFd(listener_.get(), kListenerId));
    MILL_RETURN_IF_ERROR(WatchFd(hub_->wake_fd(), kWakeId));
    thread_ = std::thread([this] { Run(); });
    return absl::OkStatus();
  }

  void Shutdown(std::chrono::milliseconds grace) {
    {
      MutexLock lock(mutex_);
      if (!stop_by_) stop_by_ = Now() + grace;
    }
    hub_->Wake();
    if (thread_.joinable()) thread_.join();
    listener_.Reset();
    claim_.Release();
  }

  const ShmHub& hub() const { return *hub_; }

 private:
  Status WatchFd(int fd, uint64_t id) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = id;
    if (::epoll_ctl(hub_->epoll(), EPOLL_CTL_ADD, fd, &event) == 0) return absl::OkStatus();
    return absl::ResourceExhaustedError(Cat("cannot watch a socket: ", std::strerror(errno)));
  }

  void Run() {
    std::array<epoll_event, 64> events;
    while (!(stopping_ && connections_.empty())) {
      const int n = ::epoll_wait(hub_->epoll(), events.data(), static_cast<int>(events.size()), Timeout());
      for (int i = 0; i < n; ++i) {
        const uint64_t id = events[static_cast<size_t>(i)].data.u64;
        if (id == kListenerId) {
          Accept();
        } else if (id == kWakeId) {
          OnWake();
        } else if (const auto it = connections_.find(id); it != connections_.end()) {
          OnSocket(id, it->second, events[static_cast<size_t>(i)].events);
        }
      }
      OnTime();
    }
  }

  // ---- time ----

  int Timeout() const {
    if (timers_.empty()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(timers_.begin()->first - Now());
    return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60'000));
  }

  void SetDeadline(uint64_t id, Connection& connection, std::optional<SteadyTime> deadline) {
    if (connection.deadline) timers_.erase({*connection.deadline, id});
    connection.deadline = deadline;
    if (deadline) timers_.insert({*deadline, id});
  }

  void OnTime() {
    while (!timers_.empty() && timers_.begin()->first <= Now()) {
      const uint64_t id = timers_.begin()->second;
      if (id == kListenerId) {
        timers_.erase(timers_.begin());
        PauseAccept(false);
        continue;
      }
      Connection& connection = connections_.at(id);
      if (connection.bye_timed) {
        End(id, absl::UnavailableError("the actor did not read the end of the connection"));
      } else {
        SetDeadline(id, connection, std::nullopt);
        connection.link->Close(absl::DeadlineExceededError("no hello came"));
        TimeBye(id, connection);
      }
    }
  }

  void TimeBye(uint64_t id, Connection& connection) {
    if (connection.bye_timed) return;
    connection.bye_timed = true;
    SteadyTime by = Now() + kByeTime;
    if (stopping_) by = std::min(by, stop_at_);
    SetDeadline(id, connection, by);
  }

  // A link was closed, from whichever thread, or the server is to stop.
  void OnWake() {
    hub_->DrainWake();
    std::optional<SteadyTime> stop;
    {
      MutexLock lock(mutex_);
      stop = stop_by_;
    }
    if (stop && !stopping_) {
      stopping_ = true;
      stop_at_ = *stop;
      ::epoll_ctl(hub_->epoll(), EPOLL_CTL_DEL, listener_.get(), nullptr);
      timers_.clear();
      for (auto& [id, connection] : connections_) {
        connection.deadline.reset();
        connection.bye_timed = false;
        connection.link->Close(absl::UnavailableError("the learner ends"));
      }
    }
    for (auto& [id, connection] : connections_) {
      if (connection.link->closing()) TimeBye(id, connection);
    }
  }

  // ---- connections ----

  void PauseAccept(bool pause) {
    epoll_event event{};
    event.events = pause ? 0u : uint32_t{EPOLLIN};
    event.data.u64 = kListenerId;
    ::epoll_ctl(hub_->epoll(), EPOLL_CTL_MOD, listener_.get(), &event);
    if (pause) timers_.insert({Now() + kAcceptPause, kListenerId});
  }

  void Accept() {
    while (!stopping_) {
      UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!fd) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        // Without a descriptor the connection stays in the queue, and epoll would report it without end.
        if (errno != EAGAIN && errno != EWOULDBLOCK) PauseAccept(true);
        return;
      }
      const Status admitted = Admit(fd);
      if (!admitted.ok()) Refuse(fd, admitted);
    }
  }

  Status Admit(UniqueFd& fd) {
    MILL_ASSIGN_OR_RETURN(const UnixPeer peer, PeerOf(fd.get()));
    if (peer.uid != ::geteuid() && peer.uid != 0) {
      return absl::PermissionDeniedError(
          Cat("user ", peer.uid, " may not join user ", ::geteuid(), "'s learner"));
    }
    if (connections_.size() >= kMaxConnections) {
      return absl::UnavailableError(
          Cat("the learner has ", kMaxConnections, " connections, the most it takes"));
    }
    const uint64_t id = next_id_++;
    auto link = std::make_shared<ShmLink>(std::move(fd), id, hub_);
    if (const Status watched = link->Watch(); !watched.ok()) return watched;
    Connection& connection = connections_[id];
    connection.link = std::move(link);
    connection.peer = Cat("unix:pid ", peer.pid);
    SetDeadline(id, connection, Now() + kHelloTime);
    return absl::OkStatus();
  }

  // Says why, as far as the socket takes it at once.
  static void Refuse(const UniqueFd& fd, const Status& why) {
    if (!fd) return;
    const Bye bye{static_cast<int32_t>(why.code()), std::string(why.message())};
    FrameWriter(Encode(LearnerMessage(bye))).Step(fd.get()).IgnoreError();
  }

  void OnSocket(uint64_t id, Connection& connection, uint32_t events) {
    ShmLink& link = *connection.link;
    if (events & EPOLLOUT) link.FlushFromLoop();
    if (link.closing()) {
      TimeBye(id, connection);
      // Bye has left, or nobody is there to read it.
      if (events & (EPOLLHUP | EPOLLERR)) End(id, absl::OkStatus());
      return;
    }
    if (const Status failure = link.failure(); !failure.ok()) return End(id, failure);
    // What came before a hang-up is still to be read.
    if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR))) return;
    const bool payload = connection.payload_left > 0;
    const Status read = payload ? ReadPayload(connection) : ReadSocket(connection);
    if (!read.ok()) return End(id, read);
    link.Cork();
    if (const Status taken = payload ? EndPayload(connection) : TakeFrames(id, connection); !taken.ok()) {
      link.Close(taken);
      TimeBye(id, connection);
    }
    link.Uncork();
  }

  void End(uint64_t id, const Status& reason) {
    Connection& connection = connections_.at(id);
    SetDeadline(id, connection, std::nullopt);
    if (connection.ingest && !connection.ingest->skip) service_.DropIngest(*connection.ingest);
    connection.link->End();
    if (connection.session) {
      const Status failure = connection.link->failure();
      service_.Lost(*connection.session, failure.ok() ? reason : failure);
    }
    connections_.erase(id);
  }

  // ---- messages ----

  // Reads once; an error: the connection is gone.
  Status ReadSocket(Connection& connection) { return connection.reader.Fill(connection.link->fd()).status(); }

  // Everything below: an error is a breach, to be answered by Bye.
  Status TakeFrames(uint64_t id, Connection& connection) {
    while (connection.payload_left == 0 && !connection.link->closing()) {
      MILL_ASSIGN_OR_RETURN(const auto frame, connection.reader.Next());
      if (!frame) break;
      MILL_ASSIGN_OR_RETURN(const ActorFrame parsed, ParseActorFrame(frame->bytes, frame->total));
      if (const auto* message = std::get_if<ActorMessage>(&parsed)) {
        MILL_RETURN_IF_ERROR(OnMessage(id, connection, *message));
      } else if (const auto* segment = std::get_if<SegmentFrame>(&parsed)) {
        MILL_RETURN_IF_ERROR(OnSegment(connection, *segment, *frame));
      } else if (frame->total > frame->bytes.size()) {
        return absl::InvalidArgumentError(Cat("an unknown message of ", frame->total, " bytes"));
      }
      connection.reader.Pop();
    }
    return absl::OkStatus();
  }

  Status OnMessage(uint64_t id, Connection& connection, const ActorMessage& message) {
    if (connection.session) return service_.Receive(*connection.session, message);
    const auto* hello = std::get_if<Hello>(&message);
    if (hello == nullptr) return absl::FailedPreconditionError("the first message must be Hello");
    SetDeadline(id, connection, std::nullopt);
    MILL_ASSIGN_OR_RETURN(connection.session, service_.Open(*hello, TransportKind::kSharedMemory,
                                                            connection.peer, connection.link));
    // From here on segments may come, whose payload is longer than any message.
    connection.reader.set_max_bytes(std::numeric_limits<uint32_t>::max());
    return absl::OkStatus();
  }

  Status OnSegment(Connection& connection, const SegmentFrame& segment, const FrameReader::Frame& frame) {
    if (!connection.session) return absl::FailedPreconditionError("the first message must be Hello");
    const SegmentHeader& header = segment.header;
    const uint64_t payload = frame.total - segment.payload_offset;
    if (header.slot >= 0) {
      if (connection.link->Slot(header.slot) == nullptr) {
        return absl::InvalidArgumentError(Cat("header.slot: ", header.slot, " is no slot of the ring"));
      }
      if (header.bytes > connection.link->slot_bytes()) {
        return absl::InvalidArgumentError(
            Cat("header.bytes: ", header.bytes, " do not fit a slot of ", connection.link->slot_bytes()));
      }
    } else if (payload != header.bytes) {
      return absl::InvalidArgumentError(
          Cat("header.bytes: ", header.bytes, ", but ", payload, " bytes of payload"));
    }
    MILL_ASSIGN_OR_RETURN(const auto ingest, service_.BeginIngest(*connection.session, header));
    if (header.slot >= 0) return ingest.skip ? absl::OkStatus() : Finish(ingest, header);

    const std::string_view here = frame.bytes.substr(std::min(segment.payload_offset, frame.bytes.size()));
    connection.ingest = ingest;
    connection.header = header;
    connection.payload_here = here.size();
    connection.payload_left = payload - here.size();
    if (!ingest.skip) std::memcpy(ingest.memory, here.data(), here.size());
    return EndPayload(connection);
  }

  // As ReadSocket, but straight to where the payload belongs.
  Status ReadPayload(Connection& connection) {
    const bool skip = connection.ingest->skip;
    if (skip && scratch_.empty()) scratch_.resize(size_t{64} << 10);
    void* const to = skip ? scratch_.data() : connection.ingest->memory + connection.payload_here;
    const size_t room = skip ? std::min(connection.payload_left, scratch_.size()) : connection.payload_left;
    MILL_ASSIGN_OR_RETURN(const size_t n, ReadSome(connection.link->fd(), to, room));
    connection.payload_here += n;
    connection.payload_left -= n;
    return absl::OkStatus();
  }

  Status EndPayload(Connection& connection) {
    if (connection.payload_left > 0) return absl::OkStatus();
    const TrajectoryService::Ingest ingest = *connection.ingest;
    connection.ingest.reset();
    return ingest.skip ? absl::OkStatus() : Finish(ingest, connection.header);
  }

  Status Finish(const TrajectoryService::Ingest& ingest, const SegmentHeader& header) {
    return service_.EndIngest(ingest, XXH3_64bits(ingest.memory, header.bytes));
  }

  SocketClaim claim_;
  UniqueFd listener_;
  const std::shared_ptr<ShmHub> hub_;
  TrajectoryService& service_;
  std::thread thread_;
  Mutex mutex_;
  std::optional<SteadyTime> stop_by_ MILL_GUARDED_BY(mutex_);

  // The loop's.
  std::map<uint64_t, Connection> connections_;
  std::set<std::pair<SteadyTime, uint64_t>> timers_;
  uint64_t next_id_ = kFirstId;
  bool stopping_ = false;
  SteadyTime stop_at_;
  std::vector<std::byte> scratch_;
};

StatusOr<std::unique_ptr<ShmServer>> ShmServer::Start(const std::string& path, TrajectoryService& service,
                                                      std::function<uint64_t()> available_memory) {
  MILL_ASSIGN_OR_RETURN(SocketClaim claim, SocketClaim::Take(path));
  MILL_ASSIGN_OR_RETURN(UniqueFd listener, claim.Listen());
  MILL_ASSIGN_OR_RETURN(auto hub, ShmHub::Make(std::move(available_memory)));
  auto impl = std::make_unique<Impl>(std::move(claim), std::move(listener), std::move(hub), service);
  MILL_RETURN_IF_ERROR(impl->Begin());
  return std::unique_ptr<ShmServer>(new ShmServer(std::move(impl)));
}

ShmServer::ShmServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ShmServer::~ShmServer() {
  impl_->Shutdown(std::chrono::milliseconds(0));
}

void ShmServer::Shutdown(std::chrono::milliseconds grace) {
  impl_->Shutdown(grace);
}

std::string ShmServer::ring_error() const {
  return impl_->hub().ring_error();
}

QueueStatus ShmServer::OutQueue() const {
  return impl_->hub().OutQueue();
}

std::string ShmServer::DefaultPath() {
  std::random_device random;
  return Cat(DefaultFolder(), "/", DefaultPrefix(), ::getpid(), "-", absl::Hex(random()), ".sock");
}

int ShmServer::SweepAbandoned() {
  return SocketClaim::SweepAbandoned(DefaultFolder(), DefaultPrefix());
}

}  // namespace millrace
