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

class NetworkFault : public testing::Test {
 protected:
  void SetUp() override {
    settings_ = SmallRun();
    Configure();
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    learner_ = std::make_unique<Learner>(FreshDir(Cat("net-", name)), settings_);
    proxy_ = *Proxy::Start(learner_->port());
    actor_ = StartActor(proxy_->address(), "far");
    learner_->WaitForUpdates(3);
  }

  // An update takes its time, so that faults meet a busy wire.
  virtual void Configure() { settings_.push_back("env.step_wait_us=300"); }

  // After the last fault: the run goes on undisturbed, ends in order, and has the bits of one that never knew
  // a network.
  void TearDown() override {
    learner_->WaitForUpdates(5);
    const RunStatus status = learner_->Status();
    EXPECT_TRUE(status.bit_exact);
    learner_->Stop();
    ExpectBitsOfTrain(learner_->run_dir(), settings_, steps_per_update_);
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

  Settings settings_;
  uint64_t steps_per_update_ = 256;
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

// Nothing that one of them gets is taken for a duplicate of what it had before, and both have all of their
// own.
TEST_F(NetworkFault, LearnersMayTakeTurnsBehindOneAddress) {
  Learner second(FreshDir("net-turns"), settings_);
  for (int i = 0; i < (LongForm() ? 20 : 2); ++i) {
    for (Learner* learner : {&second, learner_.get()}) {
      proxy_->SetTarget(learner->port());
      proxy_->CutAll(Proxy::Cut::kReset);
      learner->WaitForUpdates(3);
    }
  }
  EXPECT_TRUE(actor_->WaitForLine("learners take turns at this address")) << actor_->output();
  EXPECT_EQ(second.Counter("duplicates") + learner_->Counter("duplicates"), 0u);
  second.Stop();
  ExpectBitsOfTrain(second.run_dir(), settings_, steps_per_update_);
}

// The lease ends on the learner's side; the actor finds out by HTTP/2's keepalive.
TEST_F(NetworkFault, AHalfOpenConnectionIsNoticedOnBothSides) {
  ExpectReconnect([&] { proxy_->StallPresent(); });
  EXPECT_GE(learner_->Counter("leases_expired") + learner_->Counter("connections_lost"), 1u);
}

// Long segments and large weights, so that nearly every byte is of a payload.
class NetworkDamage : public NetworkFault {
 protected:
  void Configure() override {
    settings_.insert(settings_.end(), {"ppo.horizon=256", "policy.hidden=[256,256]", "ppo.epochs=1"});
    steps_per_update_ = 2048;
  }

  // Damages `flips` bytes, one after the other, each while the run goes on. Some strike what nobody misses,
  // such as a figure in a heartbeat; whatever is struck, the run goes on.
  void Damage(Direction direction, int flips) {
    for (int i = 0; i < flips && !HasFailure(); ++i) {
      const uint64_t flipped = proxy_->counts().flipped;
      proxy_->FlipBit(direction, 20'000 + 977 * static_cast<uint64_t>(i));
      EXPECT_TRUE(learner_->WaitFor([&](const RunStatus&) { return proxy_->counts().flipped > flipped; }));
      // A message that can't be read may end an actor, which says so; a supervisor starts it again.
      if (!actor_->running()) {
        EXPECT_THAT(actor_->output(), testing::HasSubstr("the learner"));
        actor_ = StartActor(proxy_->address(), "far");
      }
      learner_->WaitForUpdates(2);
    }
  }
  static int Flips() { return LongForm() ? 200 : 5; }
};

TEST_F(NetworkDamage, DamagedSegmentsNeverReachTraining) {
  Damage(Direction::kUp, Flips());
  EXPECT_GE(learner_->Counter("checksum_errors"), static_cast<uint64_t>(Flips()) * 3 / 5);
}

TEST_F(NetworkDamage, DamagedWeightsAreNeverActedBy) {
  const uint64_t before = proxy_->counts().accepted;
  Damage(Direction::kDown, Flips());
  // Each time the actor has come by another connection.
  EXPECT_GE(proxy_->counts().accepted - before, static_cast<uint64_t>(Flips()) * 3 / 5);
  EXPECT_TRUE(actor_->WaitForLine("damaged on their way")) << actor_->output();
}

}  // namespace
}  // namespace millrace
