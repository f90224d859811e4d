#include "cli/learner_host.h"

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "actor/row_group.h"
#include "common/config/config.h"
#include "common/resource_usage.h"
#include "common/row_groups.h"
#include "kernels/net/fingerprint.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono_literals::operator""ms;

constexpr auto kGrace = 2000ms;     // for what is queued on connections when the run ends
constexpr int kFirstNotice = 2;     // seconds of waiting for actors before it is said
constexpr int kLongestNotice = 60;  // seconds between two notices

uint64_t RandomBits() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

std::string RunIdPath(const std::string& dir) {
  return JoinPath(dir, "run_id");
}

// A run keeps its id for life; one that `train` began in one process gets it here.
StatusOr<std::string> ReadRunId(const std::string& dir, const RunOptions& options) {
  PosixFileSystem fs;
  if (!dir.empty() && FileExists(fs, RunIdPath(dir))) {
    MILL_ASSIGN_OR_RETURN(const std::string text, ReadFile(fs, RunIdPath(dir)));
    const absl::string_view id = absl::StripAsciiWhitespace(text);
    if (!id.empty()) return std::string(id);
  }
  return absl::StrFormat("%s-%d-%016x", options.run.name, options.run.seed, RandomBits());
}

// The timer of leases must be finer than they are, and need not be finer than this.
std::chrono::milliseconds TickPeriod(const RunOptions& options) {
  const auto quarter = static_cast<int64_t>(options.actors.lease_seconds * 1000 / 4);
  return std::chrono::milliseconds(std::clamp<int64_t>(quarter, 10, 250));
}

uint64_t SegmentsOf(const TrajectoryService& service, const std::string& name) {
  RunStatus status;
  service.FillStatus(status);
  for (const ActorStatus& actor : status.actors) {
    if (actor.name == name) return actor.segments;
  }
  return 0;
}

const char* NameOf(TransportChoice choice) {
  return choice == TransportChoice::kShm ? "shm" : choice == TransportChoice::kGrpc ? "grpc" : "auto";
}

}  // namespace

LearnerHost::LearnerHost(ServeOptions options) : options_(std::move(options)) {}

LearnerHost::~LearnerHost() {
  End(absl::CancelledError("the learner has ended"));
}

StatusOr<std::unique_ptr<Trainer>> LearnerHost::MakeTrainer(const RunOptions& options,
                                                            const std::string& resumed_dir) {
  // Before a folder is made or changed.
  MILL_RETURN_IF_ERROR(GrpcServer::Check(options_.listen, options_.health_listen, options_.insecure));
  MILL_ASSIGN_OR_RETURN(run_id_, ReadRunId(resumed_dir, options));
  const std::vector<int> groups =
      GroupRows(static_cast<int>(options.env.rows), static_cast<int>(options.env.group_rows));
  TrajectoryServiceOptions service;
  {
    // For its spec; the environments themselves run elsewhere.
    MILL_ASSIGN_OR_RETURN(const auto sample, RowGroup::Make(options.env, options.run.seed, 0, groups[0]));
    service.spec = sample->spec();
    service.row_state_bytes = sample->row_state_bytes();
  }
  const int steps = static_cast<int>(Horizon(options));  // the first group is the largest
  segment_bytes_ =
      SegmentLayout(service.spec, steps, groups[0],
                    SegmentLayout::FinalCapacity(service.spec.max_episode_steps, steps, groups[0]),
                    service.row_state_bytes)
          .bytes();
  service.run = options;
  service.serialized_config = SerializeConfig(options);
  service.run_id = run_id_;
  service.program_version = MILLRACE_VERSION;
  service.learner_incarnation = RandomBits();
  service.kernel_bits = KernelFingerprint();
  const EnvSpec spec = service.spec;
  MILL_ASSIGN_OR_RETURN(service_, TrajectoryService::Make(std::move(service)));
  auto source = std::make_unique<ServiceSource>(*service_);
  source_ = source.get();
  MILL_ASSIGN_OR_RETURN(auto trainer,
                        Trainer::Make(options, spec, service_->batch_rows(), std::move(source)));
  service_->SetMostRows(trainer->learner().most_rows());
  return trainer;
}

Status LearnerHost::Serve(TrainSession& session) {
  const RunOptions& options = session.options();
  ServerOptions server;
  server.listen = options_.listen;
  server.health_listen = options_.health_listen;
  server.insecure = options_.insecure;
  server.max_segment_bytes = segment_bytes_;
  server.run_id = run_id_;
  server.program_version = MILLRACE_VERSION;
  if (options.actors.transport == TransportChoice::kGrpc) {
    server.no_socket_reason = "its actors.transport is grpc";
  } else {
    ShmServer::SweepAbandoned();
    const std::string path = ShmServer::DefaultPath();
    StatusOr<std::unique_ptr<ShmServer>> shm = ShmServer::Start(path, *service_);
    if (shm.ok()) {
      shm_ = *std::move(shm);
      server.unix_socket = path;
    } else if (options.actors.transport == TransportChoice::kShm) {
      return shm.status();
    } else {
      server.no_socket_reason = std::string(shm.status().message());
      session.Say(absl::StrCat("no shared memory for actors of this host: ", server.no_socket_reason));
    }
  }
  MILL_ASSIGN_OR_RETURN(grpc_, GrpcServer::Start(server, *service_, *control_));
  return absl::OkStatus();
}

Status LearnerHost::Begin(TrainSession& session) {
  session_ = &session;
  if (!FileExists(session.file_system(), RunIdPath(session.dir().path()))) {
    MILL_RETURN_IF_ERROR(
        WriteFileAtomically(session.file_system(), RunIdPath(session.dir().path()), run_id_ + "\n"));
  }
  control_ = std::make_unique<RunControl>(*service_, session.options(), session.dir().path(),
                                          [&session](const std::string& line) { session.Say(line); });
  Trainer& trainer = session.trainer();
  control_->NoteRun(trainer.state().steps, trainer.learner().updates(), trainer.state().episodes.total(),
                    trainer.state().seconds);
  MILL_RETURN_IF_ERROR(Serve(session));
  session.Say(absl::StrCat(
      "listening on ", grpc_->address(),
      grpc_->health_address().empty() ? "" : absl::StrCat(", health on ", grpc_->health_address()), "; run ",
      run_id_));
  if (options_.own_actors) {
    StartActors(session, grpc_->address());
  } else if (session.options().actors.processes > 0) {
    session.Say("actors.processes is for `millrace train`; start actors by hand here");
  }
  looked_at_ = Clock::now();
  next_notice_ = kFirstNotice;
  watcher_ = std::make_unique<StopWatcher>([this] { control_->EndRun(RunControl::End::kSignal); },
                                           TickPeriod(session.options()), [this] { OnTick(); });
  return absl::OkStatus();
}

void LearnerHost::StartActors(TrainSession& session, const std::string& address) {
  const ActorsSection& actors = session.options().actors;
  const uint32_t share = std::max(1u, static_cast<uint32_t>(AvailableCpus()) / actors.processes);
  SupervisorOptions supervisor;
  supervisor.processes = static_cast<int>(actors.processes);
  supervisor.command = {"/proc/self/exe", "actor",
                        "--learner",      address,
                        "--threads",      absl::StrCat(actors.threads > 0 ? actors.threads : share),
                        "--transport",    NameOf(actors.transport),
                        "--name"};
  supervisor.log_dir = session.dir().path();
  supervisor.max_restarts = actors.max_restarts;
  supervisor.segments = [this](const std::string& name) { return SegmentsOf(*service_, name); };
  supervisor.say = [this](const std::string& line) { session_->Say(line); };
  supervisor.give_up = [this](const Status& why) {
    if (control_->draining()) return;  // they were asked to leave; see NoticeDrained
    control_->EndRun(RunControl::End::kFailed, why);
  };
  supervisor_ = std::make_unique<Supervisor>(std::move(supervisor));
}

void LearnerHost::NoteCheckpoint() {
  control_->NoteCheckpoint({session_->last_checkpoint(), session_->checkpointed_update()},
                           session_->checkpointed_at());
}

StatusOr<bool> LearnerHost::MayGoOn() {
  for (;;) {
    NoteCheckpoint();
    const RunControl::Work work = control_->Take();
    if (work.none()) return true;
    if (work.options) {
      if (const Status applied = session_->Apply(*work.options); !applied.ok()) {
        session_->Say(absl::StrCat("changed settings: ", applied.message()));
      }
    }
    if (work.checkpoint) {
      const Status saved = session_->SaveCheckpoint();
      if (saved.ok()) {
        control_->Checkpointed(
            RunControl::Saved{session_->last_checkpoint(), session_->checkpointed_update()});
      } else {
        control_->Checkpointed(saved);
      }
    }
    if (work.end == RunControl::End::kFailed) return work.why;
    if (work.end != RunControl::End::kNone) return false;
  }
}

void LearnerHost::AfterUpdate(const MetricsRow& row) {
  control_->NoteUpdate(row);
}

std::span<const SegmentEntry> LearnerHost::Segments() {
  const TrajectoryService::Batch& batch = source_->batch();
  entries_.clear();
  for (size_t i = 0; i < batch.segments.size(); ++i) {
    entries_.push_back(
        DescribeSegment(batch.segments[i], batch.groups[i], batch.first_steps[i], batch.actors[i]));
  }
  return entries_;
}

void LearnerHost::Evaluating(bool begins) {
  control_->SetEvaluating(begins);
}

Status LearnerHost::Farewell(const StatusOr<RunOutcome>& outcome) const {
  if (!outcome.ok())
    return absl::InternalError(absl::StrCat("the run has failed: ", outcome.status().message()));
  const bool by_signal = control_ != nullptr && control_->end() == RunControl::End::kSignal;
  // Who started its actors itself takes them along.
  if (*outcome == RunOutcome::kStopped && by_signal && !options_.own_actors) {
    return absl::UnavailableError("the learner was stopped; it may come back");
  }
  return absl::OkStatus();
}

void LearnerHost::End(const StatusOr<RunOutcome>& outcome) {
  if (service_ == nullptr) return;
  watcher_.reset();
  if (outcome.ok()) NoteCheckpoint();
  if (control_ != nullptr) control_->Close();
  if (supervisor_ != nullptr) supervisor_->Stopping();
  service_->Stop(Farewell(outcome));
  if (shm_ != nullptr) shm_->Shutdown(kGrace);
  if (grpc_ != nullptr) grpc_->Shutdown(kGrace);
  supervisor_.reset();
  shm_.reset();
  grpc_.reset();
}

// ---- the watcher's thread ----

void LearnerHost::OnTick() {
  service_->Tick();
  if (Clock::now() - looked_at_ < 1000ms) return;
  looked_at_ = Clock::now();
  const RunStatus status = control_->Status();
  NoticeWait(status);
  if (status.state == "draining") NoticeDrained(status);
}

void LearnerHost::NoticeWait(const RunStatus& status) {
  if (status.state != "waiting") {
    seconds_waited_ = 0;
    next_notice_ = kFirstNotice;
    return;
  }
  if (++seconds_waited_ < next_notice_) return;
  next_notice_ = seconds_waited_ + std::min(2 * seconds_waited_, kLongestNotice);
  std::string what = "none is connected";
  if (!status.awaited.empty()) {
    what = absl::StrCat("rows are kept for ", absl::StrJoin(status.awaited, ", "), " (actors.on_lost: wait)");
  } else if (status.rows_missing > 0) {
    what = absl::StrCat(status.rows_missing, " rows are held by none");
  }
  const std::string name = status.awaited.empty() ? "" : absl::StrCat(" --name ", status.awaited.front());
  session_->Say(absl::StrCat(
      "waiting for actors: ", what, "; ",
      options_.own_actors
          ? absl::StrCat(session_->dir().path(), "/actor-*.log may say why")
          : absl::StrCat("start one with `millrace actor --learner ", grpc_->address(), name, "`")));
}

// When the actors are gone and what they left is too little for a batch, the run can end.
void LearnerHost::NoticeDrained(const RunStatus& status) {
  const bool here = std::any_of(status.actors.begin(), status.actors.end(),
                                [](const ActorStatus& a) { return a.state != "gone"; });
  uint64_t waiting = 0;
  for (const QueueStatus& queue : status.queues) {
    if (queue.name == "segments") waiting = queue.depth;
  }
  if (!here && waiting < service_->batch_rows().size()) control_->EndRun(RunControl::End::kDrain);
}

}  // namespace millrace
