#include "actor/actor_crew.h"

#include <algorithm>

#include "common/row_groups.h"
#include "common/text.h"

namespace millrace {
namespace {
using Clock = std::chrono::steady_clock;

double Since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The only writer is the calling thread.
void Add(std::atomic<uint64_t>& counter, uint64_t n) {
  counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}
void AddSeconds(std::atomic<uint64_t>& counter, double seconds) {
  Add(counter, static_cast<uint64_t>(std::max(0.0, seconds) * 1e9));
}
double Seconds(const std::atomic<uint64_t>& ns) {
  return static_cast<double>(ns.load(std::memory_order_relaxed)) * 1e-9;
}
}  // namespace

ActorCrew::ActorCrew(const RunOptions& options, const EnvSpec& spec, const SegmentLayout& layout)
    : options_(options), spec_(spec), layout_(layout), subscriber_(spec, options) {}

StatusOr<std::unique_ptr<ActorCrew>> ActorCrew::Make(const RunOptions& options, int threads) {
  const std::vector<int> rows =
      GroupRows(static_cast<int>(options.env.rows), static_cast<int>(options.env.group_rows));
  // Made to learn the environment's spec; groups are made when they are leased.
  MILL_ASSIGN_OR_RETURN(const auto first, LeasedRows::Make(options.env, options.run.seed, 0, rows[0],
                                                           static_cast<int>(Horizon(options))));
  auto crew = std::unique_ptr<ActorCrew>(new ActorCrew(options, first->group().spec(), first->layout()));
  for (int i = 0; i < threads; ++i) crew->counters_.push_back(std::make_unique<Counters>());
  for (int i = 0; i < threads; ++i) {
    crew->threads_.emplace_back([c = crew.get(), i] { c->Work(*c->counters_[static_cast<size_t>(i)]); });
  }
  return crew;
}

ActorCrew::~ActorCrew() {
  Stop();
}

void ActorCrew::Stop() {
  abort_.store(true);
  book_.Drain();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

// ---- workers ----

void ActorCrew::Work(Counters& counters) {
  SegmentCollector collector(subscriber_.net(), spec_, layout_.rows(), UniformSteps(options_));
  WeightSubscriber::Reader reader(subscriber_);
  LeaseBook::Task task;
  while (book_.Take(&task)) {
    AddSeconds(counters.weights_ns, task.wait_weights_seconds);
    AddSeconds(counters.credit_ns, task.wait_credit_seconds);
    const Status status = Act(task, collector, reader, counters);
    book_.Release(task);
    if (!status.ok()) Fail(status);
  }
}

Status ActorCrew::BeginRows(const LeaseBook::Task& task) {
  std::unique_ptr<LeasedRows>& rows = *task.held;
  if (rows == nullptr || task.state.empty()) {  // numbers of episodes begin at zero in new rows only
    MILL_ASSIGN_OR_RETURN(
        rows, LeasedRows::Make(options_.env, options_.run.seed, task.first_row, static_cast<int>(task.rows),
                               static_cast<int>(Horizon(options_))));
  }
  return rows->Begin(task.state, task.next_step);
}

Status ActorCrew::Act(const LeaseBook::Task& task, SegmentCollector& collector,
                      WeightSubscriber::Reader& reader, Counters& counters) {
  if (static_cast<int>(task.rows) > layout_.rows()) {
    return absl::InvalidArgumentError(Cat("row group ", task.group, " has ", task.rows,
                                          " rows; the run's have ", layout_.rows(), " at most"));
  }
  if (task.begin) MILL_RETURN_IF_ERROR(BeginRows(task));
  LeasedRows& rows = **task.held;
  // The learner has gone on since the task was taken: it does not want this segment.
  if (task.exact && reader.Newest().version != task.version) return absl::OkStatus();
  MILL_ASSIGN_OR_RETURN(TrajectoryWriter::Parcel* const parcel,
                        writer_.Begin(rows.layout().bytes(), task.slot, task.memory));
  const SegmentView segment(&rows.layout(), parcel->payload);
  const Clock::time_point begin = Clock::now();
  parcel->header.group = task.group;
  parcel->header.lease = task.lease;
  parcel->header.first_step = rows.next_step();
  const auto policy = [&] {
    if (abort_.load(std::memory_order_relaxed)) return PolicyView();
    return task.exact ? reader.Same() : reader.Newest();
  };
  const SegmentCollector::Result result = rows.Collect(collector, segment, policy, &parcel->header.fault);
  if (!result.whole) {
    writer_.Discard(parcel);
    return absl::OkStatus();
  }
  parcel->header.policy_version = segment.policy_version()[0];
  Add(counters.steps, static_cast<uint64_t>(rows.layout().samples()) * options_.env.action_repeat);
  AddSeconds(counters.inference_ns, result.inference_seconds);
  AddSeconds(counters.env_ns, Since(begin) - result.inference_seconds);
  const Clock::time_point collected = Clock::now();
  Deliver(parcel);
  Add(counters.segments, 1);
  AddSeconds(counters.send_ns, Since(collected));
  return absl::OkStatus();
}

// Where the connection breaks between the look and the sending, another look is taken.
void ActorCrew::Deliver(TrajectoryWriter::Parcel* parcel) {
  do {
    MutexLock lock(mutex_);
    switch (book_.Standing(parcel->header.group, parcel->header.lease)) {
      case LeaseBook::Holding::kYes:
        break;
      case LeaseBook::Holding::kUnknown:
        parked_.push_back(parcel);
        return;
      case LeaseBook::Holding::kNo:
        writer_.Discard(parcel);
        return;
    }
  } while (!writer_.Send(parcel));
}

void ActorCrew::DeliverParked() {
  std::vector<TrajectoryWriter::Parcel*> parked;
  {
    MutexLock lock(mutex_);
    parked.swap(parked_);
  }
  for (TrajectoryWriter::Parcel* parcel : parked) Deliver(parcel);
}

void ActorCrew::Fail(const Status& status) {
  MutexLock lock(mutex_);
  if (failure_.ok()) failure_ = status;
}

// ---- the loop's thread ----

void ActorCrew::Attach(ActorTransport* transport) {
  transport_ = transport;
  writer_.Attach(transport);
}

void ActorCrew::Detach() {
  book_.OnDisconnect();  // first, so that Deliver never finds a standing lease without a connection for long
  writer_.Detach();
  transport_ = nullptr;
}

Status ActorCrew::Receive(const LearnerMessage& message) {
  if (const auto* lease = std::get_if<Lease>(&message)) {
    book_.OnLease(*lease);
    DeliverParked();
  } else if (const auto* grant = std::get_if<Grant>(&message)) {
    if (grant->acknowledged > 0) writer_.Acknowledge(grant->acknowledged);
    return OnGrant(*grant);
  } else if (const auto* ack = std::get_if<Ack>(&message)) {
    writer_.Acknowledge(ack->sequence);
  } else if (const auto* chunk = std::get_if<WeightsChunk>(&message)) {
    return OnWeights(*chunk);
  }
  return absl::OkStatus();
}

Status ActorCrew::OnGrant(const Grant& grant) {
  slots_.clear();
  for (const GroupGrant& group : grant.groups) {
    slots_.push_back(group.slot < 0 ? nullptr : transport_->Slot(group.slot));
    if (group.slot >= 0 && slots_.back() == nullptr) {
      return absl::DataLossError(Cat("the learner granted slot ", group.slot, ", which does not exist"));
    }
  }
  book_.OnGrant(grant, slots_);
  return absl::OkStatus();
}

Status ActorCrew::OnWeights(const WeightsChunk& chunk) {
  MILL_ASSIGN_OR_RETURN(const bool complete, subscriber_.Take(chunk));
  if (complete) book_.OnWeights(chunk.version);
  return absl::OkStatus();
}

Status ActorCrew::failure() const {
  MutexLock lock(mutex_);
  return failure_;
}

void ActorCrew::AddStats(ActorStats* stats) const {
  for (const auto& counters : counters_) {
    stats->steps += counters->steps.load(std::memory_order_relaxed);
    stats->segments += counters->segments.load(std::memory_order_relaxed);
    stats->env_seconds += Seconds(counters->env_ns);
    stats->inference_seconds += Seconds(counters->inference_ns);
    stats->wait_weights_seconds += Seconds(counters->weights_ns);
    stats->wait_credit_seconds += Seconds(counters->credit_ns);
    stats->send_seconds += Seconds(counters->send_ns);
  }
  uint64_t version = 0;
  if (subscriber_.newest(&version)) stats->policy_version = version;
  stats->unacknowledged = writer_.unacknowledged();
}

}  // namespace millrace
