#include "learner/shm_link.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/text.h"

namespace millrace {
namespace {
// Small messages that wait together leave together, up to this length.
constexpr size_t kGatheredBytes = 16 * 1024;
}  // namespace

// ---- ShmHub ----

StatusOr<std::shared_ptr<ShmHub>> ShmHub::Make(MemorySource available_memory) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll || !wake) {
    return absl::ResourceExhaustedError(Cat("cannot wait for sockets: ", std::strerror(errno)));
  }
  return std::shared_ptr<ShmHub>(new ShmHub(std::move(available_memory), std::move(epoll), std::move(wake)));
}

ShmHub::ShmHub(MemorySource available_memory, UniqueFd epoll, UniqueFd wake)
    : available_memory_(std::move(available_memory)), epoll_(std::move(epoll)), wake_(std::move(wake)) {}

void ShmHub::Wake() const {
  const uint64_t one = 1;
  // It can only fail where a wake-up is pending already.
  [[maybe_unused]] const ssize_t n = ::write(wake_.get(), &one, sizeof(one));
}

void ShmHub::DrainWake() const {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t n = ::read(wake_.get(), &count, sizeof(count));
}

StatusOr<std::shared_ptr<SharedRing>> ShmHub::MakeRing(uint32_t slots, size_t bytes) {
  MutexLock lock(mutex_);
  // A page costs memory when it is touched, so what was promised and not touched is still among the free.
  uint64_t promised = 0;
  std::erase_if(rings_, [](const std::weak_ptr<SharedRing>& ring) { return ring.expired(); });
  for (const std::weak_ptr<SharedRing>& weak : rings_) {
    if (const std::shared_ptr<SharedRing> ring = weak.lock()) promised += ring->UntouchedBytes();
  }
  const uint64_t available = available_memory_();
  auto made = SharedRing::Make(slots, bytes, available - std::min(available, promised));
  if (!made.ok()) {
    ring_error_ = std::string(made.status().message());
    return made.status();
  }
  std::shared_ptr<SharedRing> ring = *std::move(made);
  rings_.push_back(ring);
  return ring;
}

std::string ShmHub::ring_error() const {
  MutexLock lock(mutex_);
  return ring_error_;
}

void ShmHub::Queued(size_t bytes) {
  depth_.fetch_add(1, std::memory_order_relaxed);
  bytes_.fetch_add(bytes, std::memory_order_relaxed);
  total_.fetch_add(1, std::memory_order_relaxed);
}

void ShmHub::Sent(size_t messages, size_t bytes, std::chrono::nanoseconds waited) {
  Dropped(messages, bytes);
  wait_ns_.fetch_add(messages * static_cast<uint64_t>(waited.count()), std::memory_order_relaxed);
}

void ShmHub::Dropped(size_t messages, size_t bytes) {
  depth_.fetch_sub(messages, std::memory_order_relaxed);
  bytes_.fetch_sub(bytes, std::memory_order_relaxed);
}

QueueStatus ShmHub::OutQueue() const {
  QueueStatus status;
  status.name = "shm_out";
  status.depth = depth_.load(std::memory_order_relaxed);
  status.bytes = bytes_.load(std::memory_order_relaxed);
  status.total = total_.load(std::memory_order_relaxed);
  status.max_bytes = ShmLink::kMaxQueuedBytes;
  const double wait = 1e-9 * static_cast<double>(wait_ns_.load(std::memory_order_relaxed));
  status.wait_seconds = status.total == 0 ? 0 : wait / static_cast<double>(status.total);
  return status;
}

// ---- ShmLink ----

ShmLink::ShmLink(UniqueFd socket, uint64_t id, std::shared_ptr<ShmHub> hub)
    : id_(id), hub_(std::move(hub)), fd_(std::move(socket)) {}

ShmLink::~ShmLink() {
  End();
}

Status ShmLink::Watch() {
  MutexLock lock(mutex_);
  epoll_event event{};
  event.events = watched_ = EPOLLIN;
  event.data.u64 = id_;
  if (::epoll_ctl(hub_->epoll(), EPOLL_CTL_ADD, fd_.get(), &event) == 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(Cat("cannot watch a socket: ", std::strerror(errno)));
}

void ShmLink::Send(LearnerMessage message) {
  std::string bytes = Encode(message);
  {
    MutexLock lock(mutex_);
    Queue(std::move(bytes));
  }
  Flush(false);
}

void ShmLink::ReserveStates(size_t bytes) {
  MutexLock lock(mutex_);
  most_queued_bytes_ = kMaxQueuedBytes + bytes;
}

void ShmLink::SendWeights(WeightsPtr weights) {
  {
    MutexLock lock(mutex_);
    next_weights_ = std::move(weights);
  }
  Flush(false);
}

void ShmLink::Close(const Status& why) {
  std::string bye = Encode(LearnerMessage(Bye{static_cast<int32_t>(why.code()), std::string(why.message())}));
  {
    MutexLock lock(mutex_);
    if (closing_ || gone_) return;
    Queue(std::move(bye));
    closing_ = true;
    if (failure_.ok()) failure_ = why;
  }
  Flush(false);
  hub_->Wake();  // the loop bounds how long the actor may take to read it
}

bool ShmLink::OfferRing(uint32_t slots, size_t bytes) {
  {
    MutexLock lock(mutex_);
    if (ring_) return ring_->slots() >= slots && ring_->stride() >= bytes;
    if (closing_ || gone_) return false;
  }
  auto made = hub_->MakeRing(slots, bytes);
  if (!made.ok()) return false;
  const std::shared_ptr<SharedRing> ring = *std::move(made);
  UniqueFd descriptor = ring->Descriptor();
  if (!descriptor) return false;
  {
    MutexLock lock(mutex_);
    if (ring_) return false;
    ring_ = ring;
    Queue(Encode(RingOffer{ring->slots(), ring->stride()}), std::move(descriptor));
  }
  Flush(false);
  return true;
}

std::byte* ShmLink::Slot(int32_t slot) {
  MutexLock lock(mutex_);
  return ring_ ? ring_->Slot(slot) : nullptr;
}

size_t ShmLink::slot_bytes() const {
  MutexLock lock(mutex_);
  return ring_ ? ring_->stride() : 0;
}

bool ShmLink::closing() const {
  MutexLock lock(mutex_);
  return closing_;
}

Status ShmLink::failure() const {
  MutexLock lock(mutex_);
  return failure_;
}

void ShmLink::End() {
  MutexLock lock(mutex_);
  if (gone_) return;
  gone_ = true;
  hub_->Dropped(queued_, queued_bytes_);
  queue_.clear();
  queued_ = queued_bytes_ = 0;
  next_weights_.reset();
  begun_.reset();
  // Whoever is sending ends at once by this, and closes the socket.
  ::shutdown(fd_.get(), SHUT_RDWR);
  if (!sending_) Settle();
}

void ShmLink::Queue(std::string message, UniqueFd passed) {
  if (closing_ || gone_ || !failure_.ok()) return;
  const size_t bytes = message.size() + 4;
  if (queued_bytes_ + bytes > most_queued_bytes_) {
    return Fail(absl::ResourceExhaustedError(Cat("the actor does not read: ", queued_bytes_,
                                                 " bytes wait for it, of at most ", most_queued_bytes_)));
  }
  ++queued_;
  queued_bytes_ += bytes;
  hub_->Queued(bytes);
  if (!passed && !queue_.empty() && queue_.back().frames.bytes() + bytes <= kGatheredBytes &&
      queue_.back().frames.Append(message)) {
    ++queue_.back().count;
    return;
  }
  queue_.push_back(
      Waiting{FrameWriter(std::move(message), {}, std::move(passed)), 1, std::chrono::steady_clock::now()});
}

void ShmLink::Cork() {
  MutexLock lock(mutex_);
  corked_ = true;
}

void ShmLink::Uncork() {
  {
    MutexLock lock(mutex_);
    corked_ = false;
  }
  Flush(false);
}

void ShmLink::Flush(bool from_loop) {
  mutex_.Lock();
  if (sending_ || corked_ || gone_) {
    mutex_.Unlock();  // whoever is sending, or uncorks, looks at the queue again before it leaves
    return;
  }
  sending_ = true;
  bool more = true;
  while (more && !gone_ && (failure_.ok() || closing_)) {
    const bool chunk = !NextFrame();
    // Pieces of weights are the loop's work: callers hold locks that others wait for.
    if (chunk && !(from_loop && HasWeights())) break;
    if (chunk && !begun_) {
      begun_ = std::move(next_weights_);
      next_weights_.reset();
      next_offset_ = 0;
    }
    chunk_of_ = chunk ? begun_ : nullptr;
    mutex_.Unlock();
    if (chunk) current_.emplace(Waiting{NextChunk(), 0, {}});
    StatusOr<bool> done = current_->frames.Step(fd_.get());
    more = done.ok() && *done;
    mutex_.Lock();
    Written(std::move(done));
  }
  sending_ = false;
  Settle();
  mutex_.Unlock();
}

// Makes the frame that was begun, or the first that waits, the current one. False: there is none.
bool ShmLink::NextFrame() {
  if (current_) return true;
  if (queue_.empty()) return false;
  current_.emplace(std::move(queue_.front()));
  queue_.pop_front();
  return true;
}

FrameWriter ShmLink::NextChunk() {
  const WeightsBlob& blob = *chunk_of_;
  const size_t bytes = std::min(kWeightsChunkBytes, blob.bytes.size() - next_offset_);
  WeightsChunk chunk;
  chunk.version = blob.version;
  chunk.total_bytes = blob.bytes.size();
  chunk.offset = next_offset_;
  chunk.checksum = blob.checksum;
  chunk.data.assign(reinterpret_cast<const char*>(blob.bytes.data()) + next_offset_, bytes);
  next_offset_ += bytes;
  return FrameWriter(Encode(LearnerMessage(std::move(chunk))));
}

// Books the outcome of a step of the current frame.
void ShmLink::Written(StatusOr<bool> done) {
  if (!done.ok()) return Fail(done.status());
  if (!*done) return;
  if (current_->count > 0 && !gone_) {
    const size_t bytes = current_->frames.bytes();
    queued_ -= current_->count;
    queued_bytes_ -= bytes;
    hub_->Sent(current_->count, bytes, std::chrono::steady_clock::now() - current_->since);
  }
  current_.reset();
  if (begun_ && next_offset_ >= begun_->bytes.size()) begun_.reset();
}

void ShmLink::Fail(Status why) {
  if (failure_.ok()) failure_ = std::move(why);
  ::shutdown(fd_.get(), SHUT_RDWR);  // the loop hears of it by epoll
}

// After something was queued or written: what the loop is to be woken for.
void ShmLink::Settle() {
  if (gone_) {
    current_.reset();
    // Closing would do, were there not the moment in which a fork has it too.
    ::epoll_ctl(hub_->epoll(), EPOLL_CTL_DEL, fd_.get(), nullptr);
    fd_.Reset();
    return;
  }
  const bool frames = current_ || !queue_.empty();
  if (closing_ && !frames) ::shutdown(fd_.get(), SHUT_RDWR);
  const bool write = (frames || HasWeights()) && (failure_.ok() || closing_);
  const uint32_t wanted = (closing_ ? 0u : uint32_t{EPOLLIN}) | (write ? uint32_t{EPOLLOUT} : 0u);
  if (wanted == watched_) return;
  epoll_event event{};
  event.events = wanted;
  event.data.u64 = id_;
  MILL_CHECK(::epoll_ctl(hub_->epoll(), EPOLL_CTL_MOD, fd_.get(), &event) == 0);
  watched_ = wanted;
}

}  // namespace millrace
