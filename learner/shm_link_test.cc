#include "learner/shm_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cstring>
#include <thread>

#include "common/text.h"

namespace millrace {
namespace {

using testing::HasSubstr;

constexpr size_t kWhole = kMaxControlBytes + kWeightsChunkBytes;

// A link, and the actor's end of its socket. The test is the loop.
struct Fixture {
  uint64_t available = uint64_t{1} << 30;
  std::shared_ptr<ShmHub> hub;
  UniqueFd actor;
  std::shared_ptr<ShmLink> link;
  FrameReader reader{{kWhole, kWhole, true}};

  Fixture() {
    hub = *ShmHub::Make([this] { return available; });
    link = MakeLink(&actor);
  }
  std::shared_ptr<ShmLink> MakeLink(UniqueFd* other) const {
    int fds[2];
    MILL_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    other->Reset(fds[1]);
    auto made = std::make_shared<ShmLink>(UniqueFd(fds[0]), 7, hub);
    EXPECT_TRUE(made->Watch().ok());
    return made;
  }
  // What epoll tells the loop now.
  uint32_t Events() const {
    epoll_event event{};
    return ::epoll_wait(hub->epoll(), &event, 1, 0) == 1 ? event.events : 0;
  }
  // The next frame, if the link has written it by now or does when its loop is called.
  std::optional<LearnerFrame> Read() {
    for (int tries = 0; tries < 1000; ++tries) {
      const auto frame = reader.Next();
      EXPECT_TRUE(frame.ok()) << frame.status();
      if (*frame) {
        auto parsed = ParseLearnerFrame((*frame)->bytes);
        EXPECT_TRUE(parsed.ok()) << parsed.status();
        reader.Pop();
        return *std::move(parsed);
      }
      const StatusOr<bool> some = reader.Fill(actor.get());
      if (!some.ok()) return std::nullopt;
      if (*some) continue;
      if ((Events() & EPOLLOUT) == 0) return std::nullopt;
      link->FlushFromLoop();
    }
    return std::nullopt;
  }
  template <class T>
  std::optional<T> ReadMessage() {
    auto frame = Read();
    if (!frame) return std::nullopt;
    auto* message = std::get_if<LearnerMessage>(&*frame);
    if (message == nullptr || !std::holds_alternative<T>(*message)) return std::nullopt;
    return std::get<T>(std::move(*message));
  }
};

WeightsPtr Weights(uint64_t version, size_t bytes) {
  auto blob = std::make_shared<WeightsBlob>();
  blob->version = version;
  blob->bytes.assign(bytes, static_cast<std::byte>(version));
  return blob;
}

Welcome Long(const std::string& config) {
  Welcome welcome;
  welcome.config = config;
  welcome.lease_ms = welcome.heartbeat_ms = 1000;
  welcome.layout = "layout";
  return welcome;
}

TEST(ShmLink, MessagesLeaveAtOnceAndInOrder) {
  Fixture f;
  for (uint64_t i = 1; i <= 3; ++i) f.link->Send(Ack{i});
  EXPECT_EQ(f.Events() & EPOLLOUT, 0u) << "nothing is left for the loop";
  for (uint64_t i = 1; i <= 3; ++i) EXPECT_EQ(f.ReadMessage<Ack>()->sequence, i);
  EXPECT_EQ(f.hub->OutQueue().total, 3u);
  EXPECT_EQ(f.hub->OutQueue().depth, 0u);
}

TEST(ShmLink, CorkedMessagesLeaveTogether) {
  Fixture f;
  f.link->Cork();
  for (uint64_t i = 1; i <= 3; ++i) f.link->Send(Ack{i});
  EXPECT_FALSE(*f.reader.Fill(f.actor.get())) << "nothing has left";
  EXPECT_EQ(f.hub->OutQueue().depth, 3u);
  f.link->Uncork();
  ASSERT_TRUE(*f.reader.Fill(f.actor.get()));
  for (uint64_t i = 1; i <= 3; ++i) EXPECT_EQ(f.ReadMessage<Ack>()->sequence, i);
  EXPECT_EQ(f.hub->OutQueue().depth, 0u);
  EXPECT_EQ(f.hub->OutQueue().bytes, 0u);
}

TEST(ShmLink, WhatTheSocketDoesNotTakeWaitsForTheLoop) {
  Fixture f;
  const std::string config(500'000, 'c');
  for (int i = 0; i < 4; ++i) {
    f.link->Send(Long(config));
  }
  f.link->Send(Ack{9});
  EXPECT_GT(f.hub->OutQueue().depth, 3u);
  EXPECT_GT(f.hub->OutQueue().bytes, 1'500'000u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(f.ReadMessage<Welcome>()->config, config);
  EXPECT_EQ(f.ReadMessage<Ack>()->sequence, 9u);
  EXPECT_EQ(f.hub->OutQueue().depth, 0u);
  EXPECT_EQ(f.hub->OutQueue().bytes, 0u);
  EXPECT_EQ(f.Events() & EPOLLOUT, 0u);
}

TEST(ShmLink, WeightsComeInPiecesAndMessagesPassThem) {
  Fixture f;
  const WeightsPtr weights = Weights(5, 2 * kWeightsChunkBytes + 3);
  f.link->SendWeights(weights);
  f.link->Send(Ack{1});
  EXPECT_EQ(f.ReadMessage<Ack>()->sequence, 1u) << "weights are the loop's work";
  std::string blob;
  for (int piece = 0; piece < 3; ++piece) {
    const auto chunk = f.ReadMessage<WeightsChunk>();
    ASSERT_TRUE(chunk);
    EXPECT_EQ(chunk->version, 5u);
    EXPECT_EQ(chunk->offset, blob.size());
    EXPECT_EQ(chunk->total_bytes, weights->bytes.size());
    blob += chunk->data;
  }
  EXPECT_EQ(blob.size(), weights->bytes.size());
  EXPECT_EQ(std::memcmp(blob.data(), weights->bytes.data(), blob.size()), 0);
  EXPECT_FALSE(f.Read());
}

TEST(ShmLink, AVersionThatHasNotBegunIsPassedOver) {
  Fixture f;
  f.link->SendWeights(Weights(1, 3 * kWeightsChunkBytes));
  f.link->FlushFromLoop();  // as much of version 1 as the socket takes
  f.link->SendWeights(Weights(2, 10));
  f.link->SendWeights(Weights(3, 10));
  std::vector<uint64_t> versions;
  while (const auto chunk = f.ReadMessage<WeightsChunk>()) versions.push_back(chunk->version);
  EXPECT_THAT(versions, testing::ElementsAre(1, 1, 1, 3));
}

TEST(ShmLink, CloseSendsWhatWasQueuedAndThenTheReason) {
  Fixture f;
  f.link->Send(Ack{1});
  f.link->SendWeights(Weights(1, 10));
  f.link->Close(absl::AbortedError("because"));
  f.link->Send(Ack{2});
  f.link->Close(absl::InternalError("another"));
  EXPECT_EQ(f.ReadMessage<Ack>()->sequence, 1u);
  const auto bye = f.ReadMessage<Bye>();
  ASSERT_TRUE(bye);
  EXPECT_EQ(bye->code, static_cast<int32_t>(absl::StatusCode::kAborted));
  EXPECT_EQ(bye->reason, "because");
  EXPECT_FALSE(f.Read());
  EXPECT_TRUE(absl::IsUnavailable(f.reader.Fill(f.actor.get()).status())) << "the end of the stream";
  EXPECT_NE(f.Events() & EPOLLHUP, 0u) << "which the loop is told";
  EXPECT_TRUE(f.link->closing());
}

TEST(ShmLink, WhoDoesNotReadIsCutOff) {
  Fixture f;
  const Welcome welcome = Long(std::string(1'000'000, 'c'));
  for (size_t sent = 0; sent < ShmLink::kMaxQueuedBytes + 4'000'000; sent += 1'000'000) f.link->Send(welcome);
  EXPECT_TRUE(absl::IsResourceExhausted(f.link->failure())) << f.link->failure();
  EXPECT_THAT(std::string(f.link->failure().message()), HasSubstr("does not read"));
  EXPECT_LE(f.hub->OutQueue().bytes, ShmLink::kMaxQueuedBytes);
  EXPECT_NE(f.Events() & EPOLLHUP, 0u);
  f.link->End();
  EXPECT_EQ(f.hub->OutQueue().bytes, 0u);
  EXPECT_EQ(f.hub->OutQueue().depth, 0u);
}

TEST(ShmLink, ReservedStatesMayWaitOnTop) {
  Fixture f;
  constexpr size_t kStates = ShmLink::kMaxQueuedBytes + 10'000'000;
  f.link->ReserveStates(kStates);
  Lease lease;
  lease.add.push_back({.group = 1, .lease = 1, .rows = 1, .state = std::string(10'000'000, 's')});
  for (size_t sent = 0; sent < kStates; sent += 10'000'000) f.link->Send(lease);
  EXPECT_TRUE(f.link->failure().ok()) << f.link->failure();
  for (size_t sent = 0; sent < ShmLink::kMaxQueuedBytes; sent += 10'000'000) f.link->Send(lease);
  EXPECT_TRUE(absl::IsResourceExhausted(f.link->failure())) << "there is an end to it";
}

TEST(ShmLink, TheRingOutlivesTheConnection) {
  Fixture f;
  ASSERT_EQ(f.link->Slot(0), nullptr);
  ASSERT_TRUE(f.link->OfferRing(3, 5000));
  const auto frame = f.Read();
  ASSERT_TRUE(frame && std::holds_alternative<RingOffer>(*frame));
  const auto offer = std::get<RingOffer>(*frame);
  EXPECT_EQ(offer.slots, 3u);
  const auto theirs = SharedRing::Map(f.reader.TakeDescriptor(), offer.slots, offer.stride);
  ASSERT_TRUE(theirs.ok()) << theirs.status();
  std::memset((*theirs)->Slot(1), 5, 5000);
  f.link->End();
  EXPECT_EQ(f.link->Slot(1)[4999], std::byte{5});
  EXPECT_EQ(f.link->Slot(3), nullptr);
  EXPECT_TRUE(f.link->OfferRing(3, 5000)) << "it has it already";
  EXPECT_FALSE(f.link->OfferRing(4, 5000));
}

// What was promised to one and not touched yet is not free for the next.
TEST(ShmLink, RingsShareTheMemory) {
  Fixture f;
  f.available = 3 << 20;
  UniqueFd others[2];
  const auto second = f.MakeLink(&others[0]), third = f.MakeLink(&others[1]);
  EXPECT_TRUE(f.link->OfferRing(2, 1 << 20));
  EXPECT_EQ(f.hub->ring_error(), "");
  EXPECT_FALSE(second->OfferRing(2, 1 << 20));
  EXPECT_THAT(f.hub->ring_error(), HasSubstr("only 1 MiB of memory are free"));
  EXPECT_TRUE(third->OfferRing(1, 1 << 20));
  f.link.reset();
  EXPECT_TRUE(second->OfferRing(2, 1 << 20)) << "memory is free again";
}

// Senders on several threads while the loop flushes and the connection ends under them.
TEST(ShmLink, ManyThreads) {
  Fixture f;
  std::vector<std::thread> senders;
  for (int i = 0; i < 3; ++i) {
    senders.emplace_back([&, i] {
      for (uint64_t n = 0; n < 300; ++n) {
        f.link->Send(Ack{n});
        if (n % 50 == 0) f.link->SendWeights(Weights(n, 100'000));
        if (i == 0 && n == 250) f.link->Close(absl::OkStatus());
      }
    });
  }
  bool bye = false;
  const SteadyTime until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!bye && std::chrono::steady_clock::now() < until) {
    while (const auto frame = f.Read()) {
      const auto* message = std::get_if<LearnerMessage>(&*frame);
      bye = message != nullptr && std::holds_alternative<Bye>(*message);
    }
  }
  EXPECT_TRUE(bye);
  f.link->End();
  for (std::thread& sender : senders) sender.join();
  EXPECT_EQ(f.hub->OutQueue().depth, 0u);
}

}  // namespace
}  // namespace millrace
