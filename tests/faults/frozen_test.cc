// Processes that stand still (SIGSTOP) and clocks that jump: nothing is lost, and in sync mode the bits are
// those of a run that nothing happened to.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "common/text.h"
#include "tests/faults/run_under_test.h"

namespace millrace {
namespace {

using std::chrono_literals::operator""ms;

constexpr uint64_t kStepsPerUpdate = 256;
constexpr auto kLease = 1000ms;

Settings ShortLease() {
  Settings settings = SmallLedger();
  settings.insert(settings.end(), {"actors.lease_seconds=1", "env.step_wait_us=300"});
  return settings;
}

uint32_t RowsOf(const RunStatus& status, const std::string& name) {
  for (const ActorStatus& actor : status.actors) {
    if (actor.name == name) return actor.rows;
  }
  return 0;
}

// Nothing but the passing of time is waited for.
void StandStill(Process& process, std::chrono::milliseconds time) {
  process.Signal(SIGSTOP);
  process.WaitForEnd(time);
  process.Signal(SIGCONT);
}

TEST(Frozen, AnActorsRowsGoOnElsewhereAndItComesBack) {
  const Settings settings = ShortLease();
  Learner learner(FreshDir("frozen-actor"), settings);
  const auto a = StartActor(learner.address(), "a"), b = StartActor(learner.address(), "b", "auto");
  const auto shared = [](const RunStatus& s) { return RowsOf(s, "a") == 4 && RowsOf(s, "b") == 4; };
  ASSERT_TRUE(learner.WaitFor(shared)) << learner.process().output();
  for (Process* frozen : {a.get(), b.get()}) {
    const std::string other = frozen == a.get() ? "b" : "a";
    frozen->Signal(SIGSTOP);
    EXPECT_TRUE(learner.WaitFor([&](const RunStatus& s) { return RowsOf(s, other) == 8; }));
    learner.WaitForUpdates(3);
    frozen->Signal(SIGCONT);
    EXPECT_TRUE(learner.WaitFor(shared)) << frozen->output();
    learner.WaitForUpdates(3);
  }
  EXPECT_GE(learner.Counter("leases_expired"), 2u);
  EXPECT_TRUE(learner.Status().bit_exact);
  learner.Stop();
  ExpectBitsOfTrain(learner.run_dir(), settings, kStepsPerUpdate);
}

TEST(Frozen, ALearnerThatStoodStillBlamesNobody) {
  const Settings settings = ShortLease();
  Learner learner(FreshDir("frozen-learner"), settings);
  const auto a = StartActor(learner.address(), "a"), b = StartActor(learner.address(), "b", "auto");
  learner.WaitForUpdates(3);
  for (int i = 0; i < (LongForm() ? 20 : 2); ++i) {
    StandStill(learner.process(), 2 * kLease);
    learner.WaitForUpdates(3);
  }
  EXPECT_EQ(learner.Counter("leases_expired"), 0u);
  EXPECT_EQ(learner.Counter("connections_lost"), 0u);
  EXPECT_TRUE(a->running() && b->running());
  learner.Stop();
  ExpectBitsOfTrain(learner.run_dir(), settings, kStepsPerUpdate);
}

// libfaketime changes what the wall clock says, in both processes, while they run; leases and deadlines must
// not care.
std::string FakeTimeLibrary() {
  for (const char* folder : {"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"}) {
    const std::string path = Cat(folder, "/faketime/libfaketimeMT.so.1");
    if (std::filesystem::exists(path)) return path;
  }
  return "";
}

TEST(Clock, AWallClockThatJumpsChangesNothing) {
  const std::string library = FakeTimeLibrary();
  if (library.empty()) GTEST_SKIP() << "libfaketime is not installed (Debian's package libfaketime)";
  const std::string now = FreshDir("clock-now");
  const auto set_clock = [&](const std::string& offset) { std::ofstream(now) << offset << "\n"; };
  set_clock("+0");
  Process::Options options;
  options.environment = {{"LD_PRELOAD", library},
                         {"FAKETIME_TIMESTAMP_FILE", now},
                         {"FAKETIME_NO_CACHE", "1"},
                         {"FAKETIME_DONT_FAKE_MONOTONIC", "1"}};
  Settings settings = SmallLedger();
  settings.push_back("env.step_wait_us=300");
  Learner learner(FreshDir("clock"), settings, options);
  Process actor({MILLRACE_BINARY, "actor", "--learner", learner.address(), "--name", "a", "--transport",
                 "grpc", "--threads", "1"},
                options);
  learner.WaitForUpdates(3);
  for (const char* offset : {"+7200", "-7200", "+400000000", "+0"}) {
    set_clock(offset);
    learner.WaitForUpdates(3);
  }
  EXPECT_EQ(learner.Counter("leases_expired"), 0u);
  EXPECT_EQ(learner.Counter("connections_lost"), 0u) << actor.output();
  learner.Stop();
  ExpectBitsOfTrain(learner.run_dir(), settings, kStepsPerUpdate);
}

}  // namespace
}  // namespace millrace
