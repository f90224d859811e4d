// A learner and an actor over gRPC with the proxy between them: each fault is noticed and named, the run goes
// on, and what it has learnt is, bit for bit, what `train` learns in one process. Real processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "common/text.h"
#include "tests/faults/proxy.h"
#include "tests/faults/run_under_test.h"

namespace millrace {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using Direction = Proxy::Direction;

constexpr uint64_t kStepsPerUpdate = 256;

class NetworkFault : public testing::Test {
 protected:
  void SetUp() override {
    settings_ = SmallRun();
    settings_.push_back("env.step_wait_us=300");  // an update takes its time, so that faults meet a busy wire
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    learner_ = std::make_unique<Learner>(FreshDir(Cat("net-", name)), settings_);
    proxy_ = *Proxy::Start(learner_->port());
    actor_ = StartActor(proxy_->address(), "far");
    learner_->WaitForUpdates(3);
  }

  // After the last fault: the run goes on undisturbed, ends in order, and has the bits of one that never knew
  // a network.
  void TearDown() override {
    learner_->WaitForUpdates(5);
    const RunStatus status = learner_->Status();
    EXPECT_TRUE(status.bit_exact);
    learner_->Stop();
    ExpectBitsOfTrain(learner_->run_dir(), settings_, kStepsPerUpdate);
    if (HasFailure())
      std::printf("learner:\n%s\nactor:\n%s\n", learner_->process().output().c_str(),
                  actor_->output().c_str());
  }

  // The actor has come by another connection than before `what`.
  template <typename Fault>
  void ExpectReconnect(Fault&& what) {
    const uint64_t before = proxy_->counts().accepted;
    what();
    EXPECT_TRUE(learner_->WaitFor([&](const RunStatus& status) {
      return proxy_->counts().accepted > before && status.rows_missing == 0;
    })) << actor_->output();
    learner_->WaitForUpdates(2);
  }

  // What damage is called, whichever side met it and however deep below the messages it struck.
  uint64_t DamageNamed() {
    return learner_->Counter("checksum_errors") + learner_->Counter("connections_lost");
  }

  Settings settings_;
  std::unique_ptr<Learner> learner_;
  std::unique_ptr<Proxy> proxy_;
  std::unique_ptr<Process> actor_;
};

TEST_F(NetworkFault, DelayCostsTimeAndNothingElse) {
  for (const Direction direction : {Direction::kUp, Direction::kDown}) proxy_->Delay(direction, 40ms);
  learner_->WaitForUpdates(LongForm() ? 100 : 5);
  for (const Direction direction : {Direction::kUp, Direction::kDown}) proxy_->Delay(direction, 0ms);
  EXPECT_EQ(learner_->Counter("connections_lost"), 0u);
}

TEST_F(NetworkFault, ASlowLineCostsTimeAndNothingElse) {
  for (const Direction direction : {Direction::kUp, Direction::kDown}) proxy_->Throttle(direction, 100'000);
  learner_->WaitForUpdates(LongForm() ? 60 : 4);
  for (const Direction direction : {Direction::kUp, Direction::kDown}) proxy_->Throttle(direction, 0);
  EXPECT_EQ(learner_->Counter("connections_lost"), 0u);
}

TEST_F(NetworkFault, ConnectionsThatAreCutComeBack) {
  for (int i = 0; i < (LongForm() ? 50 : 2); ++i) {
    for (const Proxy::Cut how : {Proxy::Cut::kFin, Proxy::Cut::kReset}) {
      ExpectReconnect([&] { proxy_->CutAll(how); });
    }
  }
  EXPECT_GE(learner_->Counter("connections_lost"), LongForm() ? 100u : 4u);
  EXPECT_TRUE(actor_->WaitForLine("trying again")) << actor_->output();
}

TEST_F(NetworkFault, ALearnerThatCannotBeReachedIsTriedAgain) {
  ExpectReconnect([&] {
    proxy_->Refuse(true);
    proxy_->CutAll(Proxy::Cut::kReset);
    // Refused a few times.
    const uint64_t seen = proxy_->counts().accepted;
    EXPECT_TRUE(learner_->WaitFor([&](const RunStatus&) { return proxy_->counts().accepted >= seen + 3; }));
    EXPECT_TRUE(actor_->running());
    proxy_->Refuse(false);
  });
}

// The lease ends on the learner's side; the actor finds out by HTTP/2's keepalive.
TEST_F(NetworkFault, AHalfOpenConnectionIsNoticedOnBothSides) {
  ExpectReconnect([&] { proxy_->StallPresent(); });
  EXPECT_GE(learner_->Counter("leases_expired") + learner_->Counter("connections_lost"), 1u);
}

TEST_F(NetworkFault, DamagedSegmentsNeverReachTraining) {
  for (int i = 0; i < (LongForm() ? 200 : 5); ++i) {
    const uint64_t before = DamageNamed();
    const uint64_t flipped = proxy_->counts().flipped;
    proxy_->FlipBit(Direction::kUp, 2000 + 977 * static_cast<uint64_t>(i));
    EXPECT_TRUE(learner_->WaitFor([&](const RunStatus&) {
      return proxy_->counts().flipped > flipped && DamageNamed() > before;
    })) << i;
    learner_->WaitForUpdates(1);
  }
  EXPECT_GE(learner_->Counter("checksum_errors"), 1u);
}

TEST_F(NetworkFault, DamagedWeightsAreNeverActedBy) {
  for (int i = 0; i < (LongForm() ? 200 : 5); ++i) {
    const uint64_t flipped = proxy_->counts().flipped;
    ExpectReconnect([&] { proxy_->FlipBit(Direction::kDown, 20'000 + 977 * static_cast<uint64_t>(i)); });
    EXPECT_GT(proxy_->counts().flipped, flipped);
  }
}

}  // namespace
}  // namespace millrace
