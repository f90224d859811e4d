// LearnerHost: what stands beside the loop of a run that is trained by what actors send - the trajectory
// service, its servers, control, the timer, and the actor processes that `train` starts itself. Station: from
// trajectory_service to status_service. Owner: the command; one thread, which is the loop's.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/run_control.h"
#include "cli/stop_signal.h"
#include "cli/supervisor.h"
#include "cli/train_session.h"
#include "learner/server_grpc.h"
#include "learner/service_source.h"
#include "learner/shm_server.h"
#include "learner/trajectory_service.h"

namespace millrace {

struct ServeOptions {
  std::string listen = "127.0.0.1:0";  // host:port
  std::string health_listen;           // empty: none
  bool insecure = false;
  bool own_actors = false;  // starts actors.processes processes; who comes besides is welcome
};

class LearnerHost final : public RunHost {
 public:
  explicit LearnerHost(ServeOptions options);
  ~LearnerHost() override;

  StatusOr<std::unique_ptr<Trainer>> MakeTrainer(const RunOptions& options,
                                                 const std::string& resumed_dir) override;
  Status Begin(TrainSession& session) override;
  StatusOr<bool> MayGoOn() override;
  void AfterUpdate(const MetricsRow& row) override;
  std::span<const SegmentEntry> Segments() override;
  void Evaluating(bool begins) override;
  // Tells the actors what `outcome` means for them, and stops serving.
  void End(const StatusOr<RunOutcome>& outcome) override;

 private:
  Status Serve(TrainSession& session);
  void StartActors(TrainSession& session, const std::string& address);
  Status Farewell(const StatusOr<RunOutcome>& outcome) const;
  void NoteCheckpoint();
  void OnTick();
  void NoticeWait(const RunStatus& status);
  void NoticeDrained(const RunStatus& status);

  const ServeOptions options_;
  std::string run_id_;
  size_t segment_bytes_ = 0;  // of the largest segment
  std::unique_ptr<TrajectoryService> service_;
  std::unique_ptr<RunControl> control_;
  std::unique_ptr<ShmServer> shm_;
  std::unique_ptr<GrpcServer> grpc_;
  std::unique_ptr<Supervisor> supervisor_;
  TrainSession* session_ = nullptr;
  ServiceSource* source_ = nullptr;  // the trainer's
  std::vector<SegmentEntry> entries_;

  // The watcher's own.
  std::chrono::steady_clock::time_point looked_at_;
  int seconds_waited_ = 0, next_notice_ = 0;
  std::unique_ptr<StopWatcher> watcher_;  // last: its thread uses all of the above
};

}  // namespace millrace
