// The service in one process: actors in threads, the trajectory service and the trainer over it. Synchronous
// training has the bits of one process without a service, for any number of actors, whatever becomes of them
// and of their connections on the way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "actor/actor_loop.h"
#include "cli/in_process.h"
#include "cli/trainer.h"
#include "common/config/config.h"
#include "common/mutex.h"
#include "common/row_groups.h"
#include "kernels/net/fingerprint.h"
#include "learner/service_source.h"

namespace millrace {
namespace {
constexpr int kUpdates = 6;

RunOptions Options(RunMode mode = RunMode::kSync) {
  RunOptions options;
  options.mode = mode;
  options.env.id = "CartPole-v1";
  options.env.rows = 8;
  options.env.group_rows = 2;
  options.env.time_limit = 20;  // truncations in every update
  options.env.normalize_obs = true;
  options.env.scale_reward = true;
  options.policy.hidden = {16};
  options.ppo.horizon = 16;
  options.ppo.minibatch_size = 64;
  options.ppo.epochs = 2;
  options.run.threads = 2;
  options.run.steps = 1'000'000;
  return options;
}

// One step a segment, and a gradient step for each once there are some.
RunOptions SacOptions(const std::string& env, RunMode mode = RunMode::kSync) {
  RunOptions options = Options(mode);
  options.algorithm = "sac";
  options.env.id = env;
  options.env.scale_reward = false;
  options.sac.batch_size = 16;
  options.sac.random_steps = 40;
  options.replay.capacity = 500;
  options.replay.min_size = 80;
  return options;
}
constexpr int kSacUpdates = 60;

// Everything that an update changes: weights, optimizer, statistics, environments.
std::string Checksum(Trainer& trainer) {
  uint64_t digest = 0;
  const auto add = [&digest](const void* data, size_t bytes) {
    digest = XXH3_64bits_withSeed(data, bytes, digest);
  };
  for (const StateTensor& tensor : trainer.learner().State()) {
    const size_t n = tensor.elements();
    if (tensor.f32 != nullptr) add(tensor.f32, n * sizeof(float));
    if (tensor.f64 != nullptr) add(tensor.f64, n * sizeof(double));
    if (tensor.i64 != nullptr) add(tensor.i64, n * sizeof(int64_t));
  }
  const RowStates rows = trainer.source().SaveRows();
  add(rows.bytes.data(), rows.bytes.size());
  add(rows.next_step.data(), rows.next_step.size() * sizeof(uint64_t));
  return absl::StrFormat("%016x", digest);
}

std::string InOneProcess(const RunOptions& options = Options(), int updates = kUpdates) {
  auto trainer = Trainer::Make(options);
  EXPECT_TRUE(trainer.ok()) << trainer.status();
  for (int i = 0; i < updates; ++i) EXPECT_TRUE((*trainer)->Iterate().ok());
  return Checksum(**trainer);
}

// A connection that breaks at its n-th segment, which then has arrived or not.
class BreakingTransport final : public ActorTransport {
 public:
  BreakingTransport(std::unique_ptr<ActorTransport> inner, int segments, bool arrives)
      : inner_(std::move(inner)), left_(segments), arrives_(arrives) {}
  TransportKind kind() const override { return inner_->kind(); }
  Status Send(const ActorMessage& message) override { return broken_ ? Broken() : inner_->Send(message); }
  Status SendSegment(const SegmentHeader& header, const std::byte* payload,
                     std::function<void()> released) override {
    const int left = left_.fetch_sub(1);
    if (left > 1 || (left == 1 && arrives_)) {
      const Status status = inner_->SendSegment(header, payload, std::move(released));
      broken_ = broken_ || left == 1;
      return status;
    }
    broken_ = true;
    released();
    return Broken();
  }
  std::byte* Slot(int32_t slot) override { return inner_->Slot(slot); }
  StatusOr<LearnerMessage> Receive(std::chrono::milliseconds timeout) override {
    return broken_ ? StatusOr<LearnerMessage>(Broken())
                   : inner_->Receive(std::min(timeout, std::chrono::milliseconds(5)));
  }
  void Close() override { inner_->Close(); }

 private:
  static Status Broken() { return absl::UnavailableError("the test has cut the connection"); }
  const std::unique_ptr<ActorTransport> inner_;
  std::atomic<int> left_;
  const bool arrives_;
  std::atomic<bool> broken_{false};
};

class BreakingConnector final : public ActorConnector {
 public:
  explicit BreakingConnector(TrajectoryService& service) : inner_(service) {}
  StatusOr<std::unique_ptr<ActorTransport>> Connect(std::chrono::milliseconds deadline,
                                                    std::string* note) override {
    MILL_ASSIGN_OR_RETURN(auto transport, inner_.Connect(deadline, note));
    const int n = connections_++;  // each lasts longer, so that all that is sent again fits at last
    return std::unique_ptr<ActorTransport>(
        std::make_unique<BreakingTransport>(std::move(transport), 2 + n, n % 2 == 0));
  }
  void Shutdown() override { inner_.Shutdown(); }
  int connections() const { return connections_; }

 private:
  InProcessConnector inner_;
  std::atomic<int> connections_{0};
};

// A learner with its service; actors come and go.
class Service {
 public:
  explicit Service(const RunOptions& options) : options_(options) {
    const std::vector<int> rows =
        GroupRows(static_cast<int>(options.env.rows), static_cast<int>(options.env.group_rows));
    const auto group = RowGroup::Make(options.env, options.run.seed, 0, rows[0]);
    EXPECT_TRUE(group.ok()) << group.status();
    TrajectoryServiceOptions service;
    service.run = options;
    service.spec = (*group)->spec();
    service.row_state_bytes = (*group)->row_state_bytes();
    service.serialized_config = SerializeConfig(options);
    service.run_id = "run";
    service.program_version = "test";
    service.kernel_bits = KernelFingerprint();
    auto made = TrajectoryService::Make(std::move(service));
    EXPECT_TRUE(made.ok()) << made.status();
    service_ = *std::move(made);
    auto trainer = Trainer::Make(options, (*group)->spec(), service_->batch_rows(),
                                 std::make_unique<ServiceSource>(*service_));
    EXPECT_TRUE(trainer.ok()) << trainer.status();
    trainer_ = *std::move(trainer);
    ticker_ = std::thread([this] {
      MutexLock lock(mutex_);
      while (!done_) {
        wake_.WaitFor(mutex_, std::chrono::milliseconds(10));
        service_->Tick();
      }
    });
  }
  ~Service() {
    service_->Stop(absl::OkStatus());
    for (auto& actor : actors_) {
      actor->loop->Drain();  // who is just between two connections does not hear that the run is done
      if (actor->thread.joinable()) actor->thread.join();
      EXPECT_TRUE(actor->result.ok() || actor->gone) << actor->result;
    }
    {
      MutexLock lock(mutex_);
      done_ = true;
      wake_.NotifyAll();
    }
    ticker_.join();
  }
  size_t AddActor(std::unique_ptr<ActorConnector> connector = nullptr) {
    auto actor = std::make_unique<Actor>();
    if (connector == nullptr) connector = std::make_unique<InProcessConnector>(*service_);
    actor->connector = std::move(connector);
    ActorLoopOptions options;
    options.name = absl::StrCat("actor-", actors_.size());
    options.threads = 2;
    options.program_version = "test";
    options.backoff_min = options.backoff_max = std::chrono::milliseconds(1);
    actor->loop = std::make_unique<ActorLoop>(*actor->connector, options);
    actor->thread = std::thread([a = actor.get()] { a->result = a->loop->Run(); });
    actors_.push_back(std::move(actor));
    return actors_.size() - 1;
  }
  // Gone without a word, in the middle of whatever it does.
  void Kill(size_t i) {
    actors_[i]->gone = true;
    actors_[i]->loop->Stop();
    actors_[i]->thread.join();
  }
  void Iterate(int updates) {
    for (int i = 0; i < updates; ++i) {
      const auto row = trainer_->Iterate();
      ASSERT_TRUE(row.ok()) << row.status();
      ASSERT_TRUE(std::isfinite(IsSac(options_) ? row->alpha : row->value_loss));
    }
  }
  RunStatus Status() const {
    RunStatus status;
    service_->FillStatus(status);
    return status;
  }
  TrajectoryService& service() { return *service_; }
  Trainer& trainer() { return *trainer_; }
  ActorLoop& actor(size_t i) { return *actors_[i]->loop; }

 private:
  struct Actor {
    std::unique_ptr<ActorConnector> connector;
    std::unique_ptr<ActorLoop> loop;
    std::thread thread;
    ::millrace::Status result;
    bool gone = false;
  };
  const RunOptions options_;
  std::unique_ptr<TrajectoryService> service_;
  std::unique_ptr<Trainer> trainer_;
  std::vector<std::unique_ptr<Actor>> actors_;
  Mutex mutex_;
  CondVar wake_;
  bool done_ MILL_GUARDED_BY(mutex_) = false;
  std::thread ticker_;
};

TEST(Service, SyncHasTheBitsOfOneProcessForAnyNumberOfActors) {
  const std::string expected = InOneProcess();
  for (const int actors : {1, 2, 4}) {
    Service service(Options());
    for (int i = 0; i < actors; ++i) service.AddActor();
    service.Iterate(kUpdates);
    EXPECT_EQ(Checksum(service.trainer()), expected) << actors << " actors";
    EXPECT_TRUE(service.Status().bit_exact);
  }
}

TEST(Service, SacInSyncModeHasTheBitsOfOneProcess) {
  for (const char* env : {"Pendulum-v1", "CartPole-v1"}) {
    const RunOptions options = SacOptions(env);
    const std::string expected = InOneProcess(options, kSacUpdates);
    for (const int actors : {1, 3}) {
      Service service(options);
      for (int i = 0; i < actors; ++i) service.AddActor();
      service.Iterate(kSacUpdates);
      EXPECT_EQ(Checksum(service.trainer()), expected) << env << ", " << actors << " actors";
      EXPECT_GT(service.trainer().learner().optimizer_steps(), 100u);
    }
  }
}

TEST(Service, SacKeepsItsRatioInAsyncMode) {
  Service service(SacOptions("Pendulum-v1", RunMode::kAsync));
  service.AddActor();
  service.AddActor();
  service.Iterate(200);
  const uint64_t steps = service.trainer().state().steps;
  EXPECT_NEAR(static_cast<double>(service.trainer().learner().optimizer_steps()),
              static_cast<double>(steps) - 80, 16);
}

TEST(Service, SyncGoesOnElsewhereWhenAnActorVanishes) {
  const std::string expected = InOneProcess();
  Service service(Options());
  const size_t first = service.AddActor();
  service.AddActor();
  service.Iterate(2);
  std::thread killer([&] { service.Kill(first); });  // at some instant of the next updates
  service.Iterate(2);
  killer.join();
  service.AddActor();
  service.Iterate(kUpdates - 4);
  EXPECT_EQ(Checksum(service.trainer()), expected);
  EXPECT_TRUE(service.Status().bit_exact);
}

// One actor comes back to the leases that it had, and sends again; of two, the other goes on in its place.
TEST(Service, SyncLosesNothingWhenConnectionsBreak) {
  const std::string expected = InOneProcess();
  for (const int actors : {1, 2}) {
    Service service(Options());
    std::vector<BreakingConnector*> connectors;
    for (int i = 0; i < actors; ++i) {
      auto connector = std::make_unique<BreakingConnector>(service.service());
      connectors.push_back(connector.get());
      service.AddActor(std::move(connector));
    }
    service.Iterate(kUpdates);
    EXPECT_EQ(Checksum(service.trainer()), expected) << actors << " actors";
    int connections = 0;
    for (const BreakingConnector* connector : connectors) connections += connector->connections();
    EXPECT_GT(connections, actors);
    EXPECT_TRUE(service.Status().bit_exact);
  }
}

TEST(Service, AnActorThatDrainsHandsItsRowsOver) {
  const std::string expected = InOneProcess();
  Service service(Options());
  service.AddActor();
  service.AddActor();
  service.Iterate(2);
  service.actor(0).Drain();
  service.Iterate(kUpdates - 2);
  EXPECT_EQ(Checksum(service.trainer()), expected);
}

TEST(Service, AsyncTrainsWithinItsLag) {
  const RunOptions options = Options(RunMode::kAsync);
  Service service(options);
  service.AddActor();
  service.AddActor();
  uint64_t updates = 12;
  service.Iterate(12);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (service.Status().actors.size() < 2 && std::chrono::steady_clock::now() < deadline) {
    service.Iterate(1);  // one of them may be slow to start
    ++updates;
  }
  const RunStatus status = service.Status();
  uint64_t segments = 0;
  for (size_t lag = 0; lag < status.policy_lag_histogram.size(); ++lag) {
    EXPECT_TRUE(lag <= options.learner.max_policy_lag || status.policy_lag_histogram[lag] == 0) << lag;
    segments += status.policy_lag_histogram[lag];
  }
  EXPECT_EQ(segments, updates * service.service().batch_rows().size());
  EXPECT_EQ(status.actors.size(), 2u);
  EXPECT_EQ(service.trainer().learner().updates(), updates);
}

}  // namespace
}  // namespace millrace
