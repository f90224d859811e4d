// A learner that takes what is ready, and actors in processes of their own: its batches are as large as what
// has come in makes due. How much that is each time, the test sets by what it lets the service grant.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "actor/row_group.h"
#include "cli/run_control.h"
#include "cli/trainer.h"
#include "common/config/config.h"
#include "common/row_groups.h"
#include "kernels/net/fingerprint.h"
#include "learner/server_grpc.h"
#include "learner/service_source.h"
#include "learner/shm_server.h"
#include "learner/weight_publisher.h"
#include "tests/integration/program.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPatience = std::chrono::seconds(60);  // far beyond what anything here takes
constexpr uint64_t kDue = 4 * 2 * 10;                 // samples, by one segment of each of the two groups

// Waits until `what` holds; false when patience ends first.
bool Eventually(const std::function<bool()>& what) {
  const Clock::time_point until = Clock::now() + kPatience;
  while (!what()) {
    if (Clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

RunOptions Options() {
  RunOptions options;
  options.algorithm = "sac";
  options.mode = RunMode::kAsync;
  options.env.id = "Pendulum-v1";
  options.env.rows = 4;
  options.env.normalize_obs = true;
  options.policy.hidden = {16};
  options.sac.horizon = 2;
  options.sac.batch_size = 10;
  options.sac.batch_min = 10;
  options.sac.batch_max = 10 * kDue;
  options.sac.random_steps = 40;
  options.replay.capacity = 4000;
  options.replay.min_size = 80;
  options.learner.max_policy_lag = 12;
  options.actors.lease_seconds = 60;
  options.run.threads = 2;
  return options;
}

class AdaptiveBatch : public testing::Test {
 protected:
  void SetUp() override {
    const auto group = RowGroup::Make(options_.env, options_.run.seed, 0, 2);
    ASSERT_TRUE(group.ok()) << group.status();
    TrajectoryServiceOptions service;
    service.run = options_;
    service.spec = (*group)->spec();
    service.row_state_bytes = (*group)->row_state_bytes();
    service.serialized_config = SerializeConfig(options_);
    service.run_id = "run";
    service.program_version = MILLRACE_VERSION;
    service.kernel_bits = KernelFingerprint();
    auto made = TrajectoryService::Make(std::move(service));
    ASSERT_TRUE(made.ok()) << made.status();
    service_ = *std::move(made);
    auto trainer = Trainer::Make(options_, (*group)->spec(), service_->batch_rows(),
                                 std::make_unique<ServiceSource>(*service_));
    ASSERT_TRUE(trainer.ok()) << trainer.status();
    trainer_ = *std::move(trainer);
    control_ = std::make_unique<RunControl>(*service_, options_, "", [](const std::string&) {});
    ServerOptions server;
    server.listen = "127.0.0.1:0";
    server.max_segment_bytes = 1 << 20;
    server.run_id = "run";
    server.program_version = MILLRACE_VERSION;
    server.unix_socket = ShmServer::DefaultPath();
    auto shm = ShmServer::Start(server.unix_socket, *service_);
    ASSERT_TRUE(shm.ok()) << shm.status();
    shm_ = *std::move(shm);
    auto grpc = GrpcServer::Start(server, *service_, *control_);
    ASSERT_TRUE(grpc.ok()) << grpc.status();
    grpc_ = *std::move(grpc);
    service_->SetPaused(true);
    service_->Publish(WeightPublisher().Pack(trainer_->learner().policy()));
  }
  void TearDown() override {
    if (service_ != nullptr) service_->Stop(absl::OkStatus());
    if (shm_ != nullptr) shm_->Shutdown(std::chrono::seconds(2));
    if (grpc_ != nullptr) grpc_->Shutdown(std::chrono::seconds(2));
    for (const auto& actor : actors_) {
      const Result result = actor->Finish();
      EXPECT_EQ(result.code, 0) << result.output;
    }
  }

  void StartActor(const std::string& transport) {
    actors_.push_back(std::make_unique<Program>(absl::StrCat("actor --learner ", grpc_->address(),
                                                             " --threads 1 --transport ", transport,
                                                             " --name ", transport)));
  }
  RunStatus Status() const {
    RunStatus status;
    service_->FillStatus(status);
    return status;
  }
  // So many segments of each group of one actor wait, from whichever actors, and no more come.
  bool Ready(uint32_t rounds) {
    service_->SetMaxPolicyLag(rounds);
    service_->SetPaused(false);
    if (!Eventually([&] { return Status().queues.at(0).depth >= 2 * rounds; })) return false;
    service_->SetPaused(true);
    service_->SetMaxPolicyLag(options_.learner.max_policy_lag);
    return Status().queues.at(0).depth == 2 * rounds;
  }

  const RunOptions options_ = Options();
  std::unique_ptr<TrajectoryService> service_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<RunControl> control_;
  std::unique_ptr<ShmServer> shm_;
  std::unique_ptr<GrpcServer> grpc_;
  std::vector<std::unique_ptr<Program>> actors_;
};

TEST_F(AdaptiveBatch, OfALearnerThatFallsBehindGrows) {
  StartActor("shm");
  StartActor("grpc");
  ASSERT_TRUE(Eventually([this] {
    const RunStatus status = Status();
    return status.actors.size() == 2 && status.actors[0].rows > 0 && status.actors[1].rows > 0;
  }));
  uint64_t steps = 0;
  MetricsWindow window;
  const auto update = [&](uint32_t rounds, uint32_t taken) {
    ASSERT_TRUE(Ready(rounds)) << rounds;
    const auto row = trainer_->Iterate();
    ASSERT_TRUE(row.ok()) << row.status();
    steps += 8 * taken;
    EXPECT_EQ(row->steps, steps) << "of all segments that were taken";
    EXPECT_EQ(trainer_->learner().updates(), row->update);
    if (steps <= 80) return;  // the first gradient steps go ahead by the limiter's band
    EXPECT_EQ(row->batch_min, taken * kDue);
    EXPECT_EQ(row->batch_mean, taken * kDue);
    EXPECT_EQ(row->batch_max, taken * kDue);
    window.Add(*row);
  };
  for (const uint32_t rounds : {10, 10, 1, 1, 4, 10, 1, 7, 2}) update(rounds, rounds);
  if (HasFatalFailure()) return;
  const MetricsRow line = window.Take();
  EXPECT_EQ(line.batch_min, 1 * kDue);
  EXPECT_EQ(line.batch_max, 10 * kDue);
  EXPECT_NEAR(line.batch_mean, kDue * (10 + 1 + 1 + 4 + 10 + 1 + 7 + 2) / 8.0, 1e-9);
  const RunStatus status = Status();
  ASSERT_EQ(status.actors.size(), 2u);
  for (const ActorStatus& actor : status.actors) EXPECT_GT(actor.segments, 0u) << actor.name;
  EXPECT_EQ(trainer_->source().SaveRows().group_rows.size(), 4u) << "two groups of each actor";
}

}  // namespace
}  // namespace millrace
