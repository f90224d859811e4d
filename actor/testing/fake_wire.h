// FakeWire: a connection whose learner's end is the test itself - what it says, what it has heard, and when
// the connection breaks. FakeConnector gives the actor one such wire after another. For tests only; any
// thread.
#pragma once

#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actor/transport.h"
#include "common/aligned_bytes.h"
#include "common/mutex.h"

namespace millrace {

class FakeWire {
 public:
  struct Segment {
    SegmentHeader header;
    std::string payload;
  };
  static constexpr std::chrono::seconds kPatience{20};  // a test that waits longer has failed

  explicit FakeWire(TransportKind kind = TransportKind::kGrpc, int slots = 0, size_t slot_bytes = 0)
      : kind_(kind) {
    for (int i = 0; i < slots; ++i) slots_.push_back(*AlignedBytes::Make(slot_bytes));
  }

  // ---- the learner's end ----
  void Say(LearnerMessage message) {
    MutexLock lock(mutex_);
    said_.push_back(std::move(message));
    changed_.NotifyAll();
  }
  // As if the network had gone.
  void Cut() {
    MutexLock lock(mutex_);
    cut_ = true;
    changed_.NotifyAll();
  }
  // The next message that is not a heartbeat; false when none comes.
  bool Hear(ActorMessage* message) {
    return Wait([&]() MILL_NO_THREAD_SAFETY_ANALYSIS {
      while (!heard_.empty() && std::holds_alternative<Heartbeat>(heard_.front())) heard_.pop_front();
      if (heard_.empty()) return false;
      *message = std::move(heard_.front());
      heard_.pop_front();
      return true;
    });
  }
  template <class Message>
  bool Hear(Message* message) {
    ActorMessage any;
    if (!Hear(&any) || !std::holds_alternative<Message>(any)) return false;
    *message = std::get<Message>(std::move(any));
    return true;
  }
  bool HearHeartbeat() {
    return Wait([&]() MILL_NO_THREAD_SAFETY_ANALYSIS { return heartbeats_ > 0; });
  }
  bool Take(Segment* segment) {
    return Wait([&]() MILL_NO_THREAD_SAFETY_ANALYSIS {
      if (segments_.empty()) return false;
      *segment = std::move(segments_.front());
      segments_.pop_front();
      return true;
    });
  }
  size_t segments() const {
    MutexLock lock(mutex_);
    return segments_.size();
  }
  bool WaitClosed() {
    return Wait([&]() MILL_NO_THREAD_SAFETY_ANALYSIS { return closed_; });
  }
  // The payload's memory is not given back until the connection closes.
  void HoldPayloads() {
    MutexLock lock(mutex_);
    hold_ = true;
  }
  // Each segment is acknowledged as it comes.
  void AcknowledgeAll() {
    MutexLock lock(mutex_);
    acknowledge_ = true;
  }

 private:
  friend class FakeTransport;
  template <class Done>
  bool Wait(Done done) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    MutexLock lock(mutex_);
    for (;;) {
      if (done()) return true;
      const auto left = deadline - std::chrono::steady_clock::now();
      if (left <= left.zero()) return false;
      changed_.WaitFor(mutex_, left);
    }
  }

  const TransportKind kind_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<LearnerMessage> said_ MILL_GUARDED_BY(mutex_);
  std::deque<ActorMessage> heard_ MILL_GUARDED_BY(mutex_);
  std::deque<Segment> segments_ MILL_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> held_ MILL_GUARDED_BY(mutex_);
  std::vector<AlignedBytes> slots_;
  int heartbeats_ MILL_GUARDED_BY(mutex_) = 0;
  bool cut_ MILL_GUARDED_BY(mutex_) = false, closed_ MILL_GUARDED_BY(mutex_) = false,
            hold_ MILL_GUARDED_BY(mutex_) = false, acknowledge_ MILL_GUARDED_BY(mutex_) = false;
};

class FakeTransport final : public ActorTransport {
 public:
  explicit FakeTransport(std::shared_ptr<FakeWire> wire) : wire_(std::move(wire)) {}
  ~FakeTransport() override { Close(); }
  TransportKind kind() const override { return wire_->kind_; }
  Status Send(const ActorMessage& message) override {
    MutexLock lock(wire_->mutex_);
    if (wire_->cut_) return absl::UnavailableError("cut");
    if (std::holds_alternative<Heartbeat>(message)) ++wire_->heartbeats_;
    wire_->heard_.push_back(message);
    wire_->changed_.NotifyAll();
    return absl::OkStatus();
  }
  Status SendSegment(const SegmentHeader& header, const std::byte* payload,
                     std::function<void()> released) override {
    {
      MutexLock lock(wire_->mutex_);
      if (!wire_->cut_) {
        wire_->segments_.push_back(
            {header, std::string(reinterpret_cast<const char*>(payload), header.bytes)});
        if (wire_->acknowledge_) wire_->said_.push_back(Ack{header.sequence});
        wire_->changed_.NotifyAll();
        if (wire_->hold_) {
          wire_->held_.push_back(std::move(released));
          return absl::OkStatus();
        }
      }
    }
    released();
    return absl::OkStatus();
  }
  std::byte* Slot(int32_t slot) override {
    const auto i = static_cast<size_t>(slot);
    return i < wire_->slots_.size() ? wire_->slots_[i].data() : nullptr;
  }
  StatusOr<LearnerMessage> Receive(std::chrono::milliseconds timeout) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    MutexLock lock(wire_->mutex_);
    while (wire_->said_.empty()) {
      if (wire_->closed_) return absl::CancelledError("closed");
      if (wire_->cut_) return absl::UnavailableError("cut");
      const auto left = deadline - std::chrono::steady_clock::now();
      if (left <= left.zero()) return absl::DeadlineExceededError("nothing came");
      wire_->changed_.WaitFor(wire_->mutex_, left);
    }
    LearnerMessage message = std::move(wire_->said_.front());
    wire_->said_.pop_front();
    return message;
  }
  void Close() override {
    std::vector<std::function<void()>> held;
    {
      MutexLock lock(wire_->mutex_);
      held.swap(wire_->held_);
      wire_->closed_ = wire_->cut_ = true;
      wire_->changed_.NotifyAll();
    }
    for (const auto& released : held) released();
  }

 private:
  const std::shared_ptr<FakeWire> wire_;
};

// Gives the wires out in order; without one it is unavailable.
class FakeConnector final : public ActorConnector {
 public:
  void Add(std::shared_ptr<FakeWire> wire) {
    MutexLock lock(mutex_);
    wires_.push_back(std::move(wire));
  }
  int attempts() const {
    MutexLock lock(mutex_);
    return attempts_;
  }
  StatusOr<std::unique_ptr<ActorTransport>> Connect(std::chrono::milliseconds, std::string* note) override {
    MutexLock lock(mutex_);
    ++attempts_;
    if (shut_) return absl::CancelledError("shut down");
    if (wires_.empty()) return absl::UnavailableError("no learner");
    *note = "a test";
    auto transport = std::make_unique<FakeTransport>(wires_.front());
    wires_.pop_front();
    return transport;
  }
  void Shutdown() override {
    MutexLock lock(mutex_);
    shut_ = true;
  }

 private:
  mutable Mutex mutex_;
  std::deque<std::shared_ptr<FakeWire>> wires_ MILL_GUARDED_BY(mutex_);
  int attempts_ MILL_GUARDED_BY(mutex_) = 0;
  bool shut_ MILL_GUARDED_BY(mutex_) = false;
};

}  // namespace millrace
