#include "actor/actor_loop.h"

#include <unistd.h>

#include <algorithm>
#include <random>

#include "absl/strings/str_format.h"
#include "common/config/config.h"
#include "common/resource_usage.h"
#include "common/text.h"
#include "kernels/net/fingerprint.h"
#include "kernels/ops/philox.h"

namespace millrace {
namespace {
using std::chrono::milliseconds;

std::string HostName() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0) return "unknown";
  return name;
}

uint64_t RandomWord() {
  std::random_device device;
  const uint64_t word = static_cast<uint64_t>(device()) << 32 | device();
  return word == 0 ? 1 : word;
}
}  // namespace

ActorLoop::ActorLoop(ActorConnector& connector, ActorLoopOptions options)
    : connector_(connector), options_(std::move(options)) {
  if (options_.name.empty()) options_.name = Cat(HostName(), ":", getpid());
  if (options_.threads <= 0) options_.threads = AvailableCpus();
  if (options_.incarnation == 0) options_.incarnation = RandomWord();
  if (options_.backoff_seed == 0) options_.backoff_seed = options_.incarnation;
}

ActorLoop::~ActorLoop() = default;

void ActorLoop::Log(const std::string& line) const {
  if (options_.log) options_.log(line);
}

void ActorLoop::Drain() {
  requests_.drain = true;
  connector_.Shutdown();
  MutexLock lock(mutex_);
  wake_.NotifyAll();
}

void ActorLoop::Stop() {
  requests_.stop = true;
  connector_.Shutdown();
  MutexLock lock(mutex_);
  wake_.NotifyAll();
}

ActorStats ActorLoop::stats() const {
  MutexLock lock(mutex_);
  ActorStats stats = former_;
  if (crew_ != nullptr) crew_->AddStats(&stats);
  return stats;
}

void ActorLoop::DropCrew() {
  if (crew_ == nullptr) return;
  crew_->Stop();
  crew_->AddStats(&former_);
  former_.unacknowledged = 0;
  crew_.reset();
}

// Sequences begin anew, so it is another incarnation that sends them.
void ActorLoop::BecomeNew() {
  DropCrew();
  ++options_.incarnation;
  met_.clear();
}

// Several learners may answer at one address, in turn. To one that was met before, and another since, the
// numbers of a new crew's segments would be duplicates.
bool ActorLoop::KnowsUs(const Welcome& welcome) const {
  return learner_incarnation_ != welcome.learner_incarnation && met_.count(welcome.learner_incarnation) > 0;
}

Hello ActorLoop::MakeHello(const std::string& note) const {
  Hello hello;
  hello.program_version = options_.program_version;
  hello.actor = options_.name;
  hello.incarnation = options_.incarnation;
  hello.host = HostName();
  hello.pid = static_cast<uint32_t>(getpid());
  hello.threads = static_cast<uint32_t>(options_.threads);
  hello.kernel_bits = KernelFingerprint();
  hello.transport_note = note;
  return hello;
}

// False: told to leave while waiting.
bool ActorLoop::Backoff(int attempt) {
  const int64_t most = options_.backoff_max.count();
  const int64_t wait = std::min(most, options_.backoff_min.count() << std::min(attempt, 20));
  const double chance =
      UniformFloat(PhiloxAt(options_.backoff_seed, Purpose::kTest, 0, static_cast<uint64_t>(attempt)).v[0]);
  const auto until =
      std::chrono::steady_clock::now() +
      std::chrono::microseconds(static_cast<int64_t>(1000.0 * static_cast<double>(wait) * (1 - chance / 2)));
  MutexLock lock(mutex_);
  while (!requests_.stop && !requests_.drain) {
    const auto left = until - std::chrono::steady_clock::now();
    if (left <= left.zero()) return true;
    wake_.WaitFor(mutex_, left);
  }
  return false;
}

Status ActorLoop::Run() {
  const Status status = Connected();
  MutexLock lock(mutex_);
  DropCrew();
  return status;
}

// One connection after another, until there is no more to do.
Status ActorLoop::Connected() {
  std::string said;
  for (int attempt = 0;;) {
    if (requests_.stop) return absl::CancelledError("the actor was told to stop");
    if (requests_.drain) return absl::OkStatus();
    std::string note;
    bool useful = false;
    StatusOr<std::unique_ptr<ActorTransport>> transport = connector_.Connect(options_.connect_timeout, &note);
    Status status = transport.status();
    if (transport.ok()) status = RunOnce(*std::move(transport), note, &useful);
    if (requests_.stop || requests_.drain || status.ok()) {
      const bool mended = status.ok() || ComesBack(status) || absl::IsCancelled(status);
      if (requests_.stop) return absl::CancelledError("the actor was told to stop");
      return mended ? absl::OkStatus() : status;
    }
    if (!ComesBack(status) && !absl::IsDeadlineExceeded(status)) return status;
    attempt = useful ? 0 : attempt + 1;
    std::string line(status.message());
    if (!options_.learner.empty() && line.find(options_.learner) == std::string::npos) {
      line = Cat(options_.learner, ": ", line);
    }
    if (line != said) Log(Cat(line, "; trying again", Intent()));
    said = line;
    Backoff(attempt);
  }
}

// What a lost connection means for the work at hand.
std::string ActorLoop::Intent() const {
  const uint64_t kept = stats().unacknowledged;
  const double longest = std::chrono::duration<double>(options_.backoff_max).count();
  return Cat(absl::StrFormat(" at least every %g s", longest),
             kept == 0 ? "" : Cat(", to send again the ", kept, " segments that were not acknowledged"));
}

// A crew for this learner, the one that there is where it still fits.
Status ActorLoop::Prepare(const Welcome& welcome, TransportKind kind) {
  if (welcome.protocol < kOldestProtocol || welcome.protocol > kProtocol) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the learner (version %s) chose protocol %d; this actor (version %s) speaks %d to %d",
        welcome.program_version, welcome.protocol, options_.program_version, kOldestProtocol, kProtocol));
  }
  MutexLock lock(mutex_);
  if (learner_incarnation_ != welcome.learner_incarnation || learner_config_ != welcome.config) DropCrew();
  learner_incarnation_ = welcome.learner_incarnation;
  met_.insert(learner_incarnation_);
  learner_config_ = welcome.config;
  shares_memory_ = kind == TransportKind::kSharedMemory;
  if (crew_ == nullptr) {
    StatusOr<RunOptions> run = ParseConfig(welcome.config);
    if (!run.ok()) {
      return absl::FailedPreconditionError(Cat("the learner's configuration (version ",
                                               welcome.program_version,
                                               ") can't be read: ", std::string(run.status().message())));
    }
    MILL_ASSIGN_OR_RETURN(crew_, ActorCrew::Make(*run, options_.threads));
  }
  const SegmentLayout& layout = crew_->layout();
  if (layout.Hash() != welcome.layout_hash) {  // said to the learner as well, which refuses
    Log(Cat("segments differ from the learner's:\n  actor:   ", layout.Describe(),
            "\n  learner: ", welcome.layout));
  }
  return absl::OkStatus();
}

Status ActorLoop::RunOnce(std::unique_ptr<ActorTransport> transport, const std::string& note, bool* useful) {
  const TransportKind kind = transport->kind();
  ActorCrew* crew = nullptr;
  {
    MutexLock lock(mutex_);
    // Segments in memory of this actor's own can't be sent into a ring.
    if (crew_ != nullptr && kind == TransportKind::kSharedMemory) BecomeNew();
  }
  ActorSession session(*transport, requests_);
  StatusOr<Welcome> welcome = session.Greet(MakeHello(note), options_.connect_timeout);
  Status status = welcome.status();
  if (status.ok() && KnowsUs(*welcome)) {
    MILL_RETURN_IF_ERROR(session.Leave("the actor has been with another learner and comes anew"));
    transport->Close();
    MutexLock lock(mutex_);
    BecomeNew();
    *useful = true;
    return absl::UnavailableError(Cat("learners take turns at this address (run ", welcome->run_id, " now)"));
  }
  if (status.ok()) status = Prepare(*welcome, kind);
  if (status.ok()) {
    {
      MutexLock lock(mutex_);
      crew = crew_.get();
    }
    Log(Cat("run ", welcome->run_id, ": connected, by ", TransportName(kind),
            note.empty() ? "" : Cat(" (", note, ")")));
    status = session.Serve(*crew, *welcome, options_.drain_timeout, [this] { return stats(); });
    if (status.ok() && !requests_.stop && !requests_.drain) {
      Log(Cat(session.drain_reason().empty() ? "the learner has ended the run" : session.drain_reason(),
              "; leaving"));
    }
  }
  if (session.done()) status = absl::OkStatus();
  *useful = session.useful();
  transport->Close();
  if (crew != nullptr) crew->Detach();
  if (crew != nullptr && shares_memory_) {
    MutexLock lock(mutex_);
    BecomeNew();  // before the ring goes, which its workers may be writing into
  }
  return status;
}

}  // namespace millrace
