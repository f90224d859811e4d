#include "actor/actor_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>
#include "common/weights.h"

#include <optional>
#include <thread>

#include "actor/testing/fake_wire.h"
#include "common/config/config.h"

namespace millrace {
namespace {

using testing::HasSubstr;
constexpr uint64_t kHorizon = 8;

RunOptions Options() {
  RunOptions options;
  options.env.id = "CartPole-v1";
  options.env.rows = 8;
  options.env.group_rows = 4;
  options.policy.hidden = {8};
  options.ppo.horizon = kHorizon;
  options.ppo.minibatch_size = 16;
  return options;
}

// An actor in a thread, and the test as its learner.
class ActorLoopTest : public testing::Test {
 protected:
  ActorLoopTest() {
    options.name = "tester";
    options.threads = 2;
    options.incarnation = 77;
    options.backoff_min = options.backoff_max = std::chrono::milliseconds(1);
    options.log = [this](const std::string& line) { log += line + "\n"; };
    rows = *LeasedRows::Make(run.env, run.run.seed, 0, 4, kHorizon);
    net = std::make_unique<ActorCritic>(NetSpecFor(rows->group().spec(), run.policy));
    encoder = std::make_unique<ObsEncoder>(rows->group().spec(), false, 0);
  }
  ~ActorLoopTest() override {
    if (thread.joinable()) {
      loop->Stop();
      thread.join();
    }
  }
  std::shared_ptr<FakeWire> Wire(TransportKind kind = TransportKind::kGrpc, int slots = 0) {
    auto wire = std::make_shared<FakeWire>(kind, slots, rows->layout().bytes());
    connector.Add(wire);
    return wire;
  }
  void Start() {
    loop = std::make_unique<ActorLoop>(connector, options);
    thread = std::thread([this] { result = loop->Run(); });
  }
  Status Join() {
    thread.join();
    return *result;
  }
  Welcome MakeWelcome(uint64_t learner = 1) const {
    Welcome welcome;
    welcome.program_version = "1";
    welcome.run_id = "run";
    welcome.learner_incarnation = learner;
    welcome.config = SerializeConfig(run);
    welcome.lease_ms = 1000;
    welcome.heartbeat_ms = 50;
    welcome.layout_hash = rows->layout().Hash();
    welcome.layout = rows->layout().Describe();
    return welcome;
  }
  // Hello, Welcome, Ready.
  Hello Greet(FakeWire& wire, uint64_t learner = 1) {
    Hello hello;
    EXPECT_TRUE(wire.Hear(&hello));
    wire.Say(MakeWelcome(learner));
    Ready ready;
    EXPECT_TRUE(wire.Hear(&ready));
    EXPECT_EQ(ready.layout, rows->layout().Describe());
    EXPECT_EQ(ready.layout_hash, rows->layout().Hash());
    return hello;
  }
  // Weights of a version: initialised by it as the seed.
  std::vector<float> Parameters(uint64_t version) const {
    std::vector<float> parameters(net->parameter_floats());
    net->Initialize(version, run.policy, parameters.data());
    return parameters;
  }
  WeightsChunk Weights(uint64_t version) const {
    const std::vector<float> parameters = Parameters(version);
    WeightsChunk chunk;
    chunk.version = version;
    chunk.data.assign(reinterpret_cast<const char*>(parameters.data()), parameters.size() * sizeof(float));
    chunk.total_bytes = chunk.data.size();
    chunk.checksum = WeightsChecksum(version, chunk.data.data(), chunk.data.size());
    return chunk;
  }
  static Lease Add(uint64_t lease, uint64_t next_step = 0, std::string state = "", uint32_t group = 0) {
    Lease message;
    message.add.push_back({group, lease, group * 4, 4, next_step, std::move(state)});
    return message;
  }
  static Grant Permit(uint64_t lease, uint64_t version, bool exact = true, int32_t slot = -1,
                      uint32_t group = 0) {
    return {.exact = exact, .policy_version = version, .bytes = 1, .groups = {{group, lease, slot}}};
  }
  // What this segment of group 0 must be: collected here by the same weights.
  std::string Expected(uint64_t version) {
    const std::vector<float> parameters = Parameters(version);
    std::vector<float> packed(net->packed_floats());
    net->PackAll(parameters.data(), packed.data(), false);
    AlignedBytes memory = *AlignedBytes::Make(rows->layout().bytes());
    SegmentCollector collector(*net, rows->group().spec(), 4);
    std::string fault;
    const PolicyView view{net.get(), encoder.get(), parameters.data(), packed.data(), version};
    const SegmentView segment(&rows->layout(), memory.data());
    rows->Collect(
        collector, segment, [&] { return view; }, &fault);
    return Snapshot(memory.data());
  }
  std::string Snapshot(const std::byte* payload) const {
    const SegmentView segment(&rows->layout(), const_cast<std::byte*>(payload));
    return {reinterpret_cast<const char*>(segment.snapshot()), 4 * rows->layout().row_state_bytes()};
  }
  std::string Snapshot(const FakeWire::Segment& segment) const {
    return Snapshot(reinterpret_cast<const std::byte*>(segment.payload.data()));
  }

  RunOptions run = Options();
  ActorLoopOptions options;
  FakeConnector connector;
  std::string log;
  std::unique_ptr<LeasedRows> rows;  // group 0, as it must be
  std::unique_ptr<ActorCritic> net;
  std::unique_ptr<ObsEncoder> encoder;
  std::unique_ptr<ActorLoop> loop;
  std::thread thread;
  std::optional<Status> result;
};

TEST_F(ActorLoopTest, SendsTheSegmentsItIsGranted) {
  auto wire = Wire();
  Start();
  const Hello hello = Greet(*wire);
  EXPECT_EQ(hello.actor, "tester");
  EXPECT_EQ(hello.incarnation, 77u);
  EXPECT_EQ(hello.threads, 2u);
  EXPECT_EQ(hello.transport_note, "a test");
  wire->Say(Weights(3));
  wire->Say(Add(11));
  ASSERT_TRUE(rows->Begin("", 0).ok());
  for (uint64_t i = 0; i < 3; ++i) {
    if (i > 0) wire->Say(Weights(3 + i));
    wire->Say(Permit(11, 3 + i));
    FakeWire::Segment segment;
    ASSERT_TRUE(wire->Take(&segment));
    EXPECT_EQ(segment.header.sequence, i + 1);
    EXPECT_EQ(segment.header.group, 0u);
    EXPECT_EQ(segment.header.lease, 11u);
    EXPECT_EQ(segment.header.first_step, i * kHorizon);
    EXPECT_EQ(segment.header.policy_version, 3 + i);
    EXPECT_EQ(segment.header.slot, -1);
    EXPECT_EQ(segment.header.checksum, XXH3_64bits(segment.payload.data(), segment.payload.size()));
    EXPECT_EQ(Snapshot(segment), Expected(3 + i));
    wire->Say(Ack{i + 1});
  }
  EXPECT_TRUE(wire->HearHeartbeat());
  wire->Say(Bye{0, "done"});
  EXPECT_TRUE(Join().ok());
  const ActorStats stats = loop->stats();
  EXPECT_EQ(stats.steps, 3 * 4 * kHorizon);
  EXPECT_EQ(stats.segments, 3u);
  EXPECT_EQ(stats.policy_version, 5u);
  EXPECT_EQ(stats.unacknowledged, 0u);
  EXPECT_GT(stats.env_seconds + stats.inference_seconds, 0);
}

TEST_F(ActorLoopTest, ActsByExactlyTheGrantedVersionAndNoOther) {
  auto wire = Wire();
  Start();
  Greet(*wire);
  wire->Say(Weights(5));
  wire->Say(Add(11));
  wire->Say(Permit(11, 4));  // the learner has gone on: nothing
  wire->Say(Permit(11, 6));  // not there yet
  wire->Say(Weights(6));
  FakeWire::Segment segment;
  ASSERT_TRUE(wire->Take(&segment));
  EXPECT_EQ(segment.header.policy_version, 6u);
  EXPECT_EQ(segment.header.sequence, 1u);
  const SegmentView view(&rows->layout(), reinterpret_cast<std::byte*>(segment.payload.data()));
  for (uint64_t t = 0; t < kHorizon; ++t) EXPECT_EQ(view.policy_version()[t], 6u);
  wire->Say(Bye{0, "done"});
  EXPECT_TRUE(Join().ok());
  EXPECT_EQ(wire->segments(), 0u);
}

TEST_F(ActorLoopTest, TakesNewWeightsOverBetweenSteps) {
  run.env.step_wait_us = 20'000;
  auto wire = Wire();
  Start();
  Greet(*wire);
  wire->Say(Weights(1));
  wire->Say(Add(11));
  wire->Say(Permit(11, 1, false));
  wire->Say(Permit(11, 1, false));
  wire->Say(Permit(11, 2, false));
  FakeWire::Segment segment;
  ASSERT_TRUE(wire->Take(&segment));
  wire->Say(Weights(2));  // while the second is made
  ASSERT_TRUE(wire->Take(&segment));
  EXPECT_EQ(segment.header.sequence, 2u);
  const SegmentView view(&rows->layout(), reinterpret_cast<std::byte*>(segment.payload.data()));
  EXPECT_EQ(segment.header.policy_version, view.policy_version()[0]);
  EXPECT_EQ(view.policy_version()[kHorizon - 1], 2u);
  EXPECT_TRUE(CheckSegment(view).ok());
  ASSERT_TRUE(wire->Take(&segment));
  EXPECT_EQ(segment.header.policy_version, 2u);
}

TEST_F(ActorLoopTest, SendsAgainWhatWasNotAcknowledged) {
  auto first = Wire(), second = Wire();
  first->HoldPayloads();
  Start();
  Greet(*first);
  first->Say(Weights(1));
  first->Say(Add(11));
  FakeWire::Segment sent[2], segment;
  first->Say(Permit(11, 1));
  ASSERT_TRUE(first->Take(&sent[0]));
  first->Say(Weights(2));
  first->Say(Permit(11, 2));
  ASSERT_TRUE(first->Take(&sent[1]));
  first->Say(Ack{1});
  first->Cut();

  const Hello hello = Greet(*second);
  EXPECT_EQ(hello.incarnation, 77u);
  ASSERT_TRUE(second->Take(&segment));
  EXPECT_EQ(segment.header.sequence, 2u);
  EXPECT_EQ(segment.payload, sent[1].payload);
  // The lease goes on where the actor stands; a grant for what it has acted already is ignored.
  second->Say(Weights(2));
  second->Say(Add(11, kHorizon, Snapshot(sent[0])));
  second->Say(Permit(11, 2));
  second->Say(Ack{2});
  second->Say(Weights(3));
  second->Say(Permit(11, 3));
  ASSERT_TRUE(second->Take(&segment));
  EXPECT_EQ(segment.header.sequence, 3u);
  EXPECT_EQ(segment.header.first_step, 2 * kHorizon);
  EXPECT_EQ(segment.header.policy_version, 3u);
  ASSERT_TRUE(rows->Begin(Snapshot(sent[1]), 2 * kHorizon).ok());
  EXPECT_EQ(Snapshot(segment), Expected(3));
  EXPECT_EQ(second->segments(), 0u);
}

TEST_F(ActorLoopTest, AnotherLeaseBeginsFromTheLearnersState) {
  auto first = Wire(), second = Wire();
  Start();
  Greet(*first);
  first->Say(Weights(1));
  first->Say(Add(11));
  first->Say(Permit(11, 1));
  FakeWire::Segment one, segment;
  ASSERT_TRUE(first->Take(&one));
  first->Say(Ack{1});
  first->Say(Permit(11, 1, false));
  ASSERT_TRUE(first->Take(&segment));
  first->Cut();
  Greet(*second);
  ASSERT_TRUE(second->Take(&segment));  // of the old lease; the learner passes over it
  second->Say(Weights(1));
  second->Say(Add(12, kHorizon, Snapshot(one)));
  second->Say(Permit(12, 1));
  ASSERT_TRUE(second->Take(&segment));
  EXPECT_EQ(segment.header.lease, 12u);
  EXPECT_EQ(segment.header.sequence, 3u);
  EXPECT_EQ(segment.header.first_step, kHorizon);
  ASSERT_TRUE(rows->Begin(Snapshot(one), kHorizon).ok());
  EXPECT_EQ(Snapshot(segment), Expected(1));

  // And so does a lease that is renewed on the way; of a dropped one nothing more comes.
  Lease renewed = Add(13, kHorizon, Snapshot(one));
  renewed.drop.push_back(0);
  second->Say(renewed);
  second->Say(Permit(12, 1));
  second->Say(Permit(13, 1));
  ASSERT_TRUE(second->Take(&segment));
  EXPECT_EQ(segment.header.lease, 13u);
  EXPECT_EQ(segment.header.first_step, kHorizon);
}

TEST_F(ActorLoopTest, ASegmentUnderwayOutlivesTheConnection) {
  run.env.step_wait_us = 5'000;
  auto first = Wire(), second = Wire();
  Start();
  Greet(*first);
  first->Say(Weights(1));
  first->Say(Add(11));
  first->Say(Permit(11, 1));
  first->Cut();
  Greet(*second);
  // Whether it had begun or not: there will be one segment of this version.
  second->Say(Weights(1));
  second->Say(Add(11));
  second->Say(Permit(11, 1));
  FakeWire::Segment segment;
  ASSERT_TRUE(second->Take(&segment));
  EXPECT_EQ(segment.header.sequence, 1u);
  EXPECT_EQ(segment.header.first_step, 0u);
  second->Say(Ack{1});
  second->Say(Weights(2));
  second->Say(Permit(11, 2));
  ASSERT_TRUE(second->Take(&segment));
  EXPECT_EQ(segment.header.sequence, 2u);
  EXPECT_EQ(segment.header.first_step, kHorizon);
}

TEST_F(ActorLoopTest, ANewLearnerProcessKnowsNothingOfTheOldOne) {
  auto first = Wire(), second = Wire();
  Start();
  Greet(*first, 1);
  first->Say(Weights(1));
  first->Say(Add(11));
  first->Say(Permit(11, 1));
  FakeWire::Segment segment;
  ASSERT_TRUE(first->Take(&segment));
  first->Say(Bye{static_cast<int32_t>(absl::StatusCode::kUnavailable), "restarts"});
  Greet(*second, 2);
  second->Say(Add(11));  // the same number by chance
  second->Say(Permit(11, 1));
  second->Say(Weights(1));
  ASSERT_TRUE(second->Take(&segment));
  EXPECT_EQ(segment.header.sequence, 1u);
  EXPECT_EQ(segment.header.first_step, 0u);
  ASSERT_TRUE(rows->Begin("", 0).ok());
  EXPECT_EQ(Snapshot(segment), Expected(1));
  second->Say(Bye{0, "done"});
  EXPECT_TRUE(Join().ok());
  EXPECT_EQ(loop->stats().segments, 2u);
  EXPECT_THAT(log, HasSubstr("restarts; trying again"));
}

// The first has seen sequence 1 already: a new crew's would be a duplicate to it.
TEST_F(ActorLoopTest, LearnersMayTakeTurnsBehindOneAddress) {
  options.learner = "here:7";
  auto first = Wire(), second = Wire(), third = Wire(), fourth = Wire();
  Start();
  FakeWire::Segment segment;
  for (const auto& wire : {first, second}) {
    EXPECT_EQ(Greet(*wire, wire == first ? 1 : 2).incarnation, 77u);
    wire->Say(Weights(1));
    wire->Say(Add(11));
    wire->Say(Permit(11, 1));
    ASSERT_TRUE(wire->Take(&segment));
    EXPECT_EQ(segment.header.sequence, 1u);
    wire->Cut();
  }
  Hello hello;
  Goodbye goodbye;
  ASSERT_TRUE(third->Hear(&hello));
  EXPECT_EQ(hello.incarnation, 77u);
  third->Say(MakeWelcome(1));
  ASSERT_TRUE(third->Hear(&goodbye));
  third->Say(Bye{0, ""});
  EXPECT_TRUE(third->WaitClosed());
  EXPECT_EQ(Greet(*fourth, 1).incarnation, 78u);
  fourth->Say(Weights(1));
  fourth->Say(Add(12));
  fourth->Say(Permit(12, 1));
  ASSERT_TRUE(fourth->Take(&segment));
  EXPECT_EQ(segment.header.sequence, 1u);
  fourth->Say(Bye{0, "done"});
  EXPECT_TRUE(Join().ok());
  EXPECT_THAT(log,
              HasSubstr("here:7: cut; trying again at least every 0.001 s, to send again the 1 segments"));
  EXPECT_THAT(log, HasSubstr("here:7: learners take turns at this address (run run now)"));
}

TEST_F(ActorLoopTest, SharedSlotsAreWrittenInPlaceAndLostWithTheConnection) {
  auto first = Wire(TransportKind::kSharedMemory, 3), second = Wire(TransportKind::kSharedMemory, 3);
  Start();
  Greet(*first);
  first->Say(Weights(1));
  first->Say(Add(11));
  first->Say(Permit(11, 1, true, 2));
  FakeWire::Segment segment;
  ASSERT_TRUE(first->Take(&segment));
  EXPECT_EQ(segment.header.slot, 2);
  ASSERT_TRUE(rows->Begin("", 0).ok());
  EXPECT_EQ(Snapshot(segment), Expected(1));
  first->Cut();
  const Hello hello = Greet(*second);
  EXPECT_EQ(hello.incarnation, 78u);
  second->Say(Weights(1));
  second->Say(Add(12));
  second->Say(Permit(12, 1, true, 0));
  ASSERT_TRUE(second->Take(&segment));
  EXPECT_EQ(segment.header.sequence, 1u);
  EXPECT_EQ(segment.header.first_step, 0u);
  second->Say(Permit(12, 1, false, 3));  // there are three
  EXPECT_TRUE(second->WaitClosed());
}

TEST_F(ActorLoopTest, DrainHandsOverWhatIsUnderway) {
  run.env.step_wait_us = 5'000;
  auto wire = Wire();
  Start();
  Greet(*wire);
  wire->Say(Weights(1));
  wire->Say(Add(11));
  wire->Say(Permit(11, 1));
  wire->Say(Permit(11, 1, false));
  wire->AcknowledgeAll();
  FakeWire::Segment segment;
  ASSERT_TRUE(wire->Take(&segment));
  loop->Drain();  // while the second is made, or before
  Goodbye goodbye;
  ASSERT_TRUE(wire->Hear(&goodbye));
  EXPECT_EQ(goodbye.reason, "the actor was asked to leave");
  EXPECT_EQ(loop->stats().segments, 1 + wire->segments());
  EXPECT_EQ(loop->stats().unacknowledged, 0u);
  wire->Say(Bye{0, ""});
  EXPECT_TRUE(Join().ok());
}

TEST_F(ActorLoopTest, LeavesAfterADrainWithAGoodbye) {
  auto wire = Wire();
  Start();
  Greet(*wire);
  wire->Say(Weights(1));
  wire->Say(Add(11));
  wire->Say(Permit(11, 1));
  FakeWire::Segment segment;
  ASSERT_TRUE(wire->Take(&segment));
  wire->Say(millrace::Drain{"maintenance"});
  wire->Say(Ack{1});
  Goodbye goodbye;
  ASSERT_TRUE(wire->Hear(&goodbye));
  EXPECT_EQ(goodbye.reason, "maintenance");
  wire->Say(Bye{0, ""});
  EXPECT_TRUE(Join().ok());
}

TEST_F(ActorLoopTest, ADrainWaitsForAcknowledgementsOnlySoLong) {
  options.drain_timeout = std::chrono::milliseconds(1);
  auto wire = Wire();
  Start();
  Greet(*wire);
  wire->Say(Weights(1));
  wire->Say(Add(11));
  wire->Say(Permit(11, 1));
  FakeWire::Segment segment;
  ASSERT_TRUE(wire->Take(&segment));
  loop->Drain();
  Goodbye goodbye;
  ASSERT_TRUE(wire->Hear(&goodbye));
  EXPECT_EQ(loop->stats().unacknowledged, 1u);
  wire->Cut();
  EXPECT_TRUE(Join().ok());
}

TEST_F(ActorLoopTest, GivesUpWhereTheLearnerRefuses) {
  auto wire = Wire();
  Start();
  Hello hello;
  ASSERT_TRUE(wire->Hear(&hello));
  wire->Say(Bye{static_cast<int32_t>(absl::StatusCode::kFailedPrecondition), "too old"});
  const Status status = Join();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("too old"));
}

TEST_F(ActorLoopTest, WhoComesAfterTheEndLeaves) {
  const auto wire = Wire();
  Start();
  Hello hello;
  ASSERT_TRUE(wire->Hear(&hello));
  wire->Say(Bye{0, "the run is done"});
  const Status status = Join();
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(ActorLoopTest, SaysHowItsSegmentsDiffer) {
  auto wire = Wire();
  Start();
  Hello hello;
  ASSERT_TRUE(wire->Hear(&hello));
  Welcome welcome = MakeWelcome();
  welcome.layout = "Other-v0";
  welcome.layout_hash = 1;
  wire->Say(welcome);
  Ready ready;
  ASSERT_TRUE(wire->Hear(&ready));
  wire->Say(Bye{static_cast<int32_t>(absl::StatusCode::kFailedPrecondition), "other segments"});
  EXPECT_EQ(Join().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(log, HasSubstr("actor:   CartPole-v1"));
  EXPECT_THAT(log, HasSubstr("learner: Other-v0"));
}

TEST_F(ActorLoopTest, DamagedWeightsEndTheConnectionOnly) {
  auto first = Wire(), second = Wire();
  Start();
  Greet(*first);
  WeightsChunk damaged = Weights(4);
  damaged.data[100] ^= 1;
  first->Say(damaged);
  EXPECT_TRUE(first->WaitClosed());
  Greet(*second);
  WeightsChunk other = Weights(5);
  other.total_bytes += 4;
  second->Say(other);
  const Status status = Join();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("version 5"));
  EXPECT_THAT(log, HasSubstr("weights of version 4 were damaged"));
}

TEST_F(ActorLoopTest, AnUnusableConfigurationIsSaidToTheUser) {
  run.env.id = "Nothing-v0";
  auto wire = Wire();
  Start();
  Hello hello;
  ASSERT_TRUE(wire->Hear(&hello));
  wire->Say(MakeWelcome());
  const Status status = Join();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("Nothing-v0"));
}

TEST_F(ActorLoopTest, LooksForTheLearnerUntilItIsThere) {
  Start();
  while (connector.attempts() < 3) std::this_thread::yield();
  auto wire = Wire();
  Greet(*wire);
  wire->Say(Bye{0, "done"});
  EXPECT_TRUE(Join().ok());
}

TEST_F(ActorLoopTest, LeavesWhileThereIsNoLearner) {
  options.backoff_min = options.backoff_max = std::chrono::hours(1);
  Start();
  while (connector.attempts() < 1) std::this_thread::yield();
  loop->Drain();
  EXPECT_TRUE(Join().ok());
}

TEST_F(ActorLoopTest, StopGivesUpASegmentUnderway) {
  run.env.step_wait_us = 50'000;
  run.ppo.horizon = 4000;  // minutes
  run.ppo.minibatch_size = 32000;
  auto wire = Wire();
  Start();
  Hello hello;
  ASSERT_TRUE(wire->Hear(&hello));
  wire->Say(MakeWelcome());
  wire->Say(Weights(1));
  wire->Say(Add(11));
  wire->Say(Permit(11, 1));
  EXPECT_TRUE(wire->HearHeartbeat());
  loop->Stop();
  EXPECT_EQ(Join().code(), absl::StatusCode::kCancelled);
  loop.reset();
}

}  // namespace
}  // namespace millrace
