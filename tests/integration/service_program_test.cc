// The service as its users run it: learner and actors as processes of the built binary, on loopback.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "tests/integration/program.h"

namespace millrace {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

// As program_test's: updates of 256 samples, without end, and 20 of them.
const std::string kEndless =
    " cartpole --set run.steps=100000000 --set env.rows=8 --set env.group_rows=2 --set ppo.horizon=32"
    " --set ppo.minibatch_size=128 --set run.stop_window=0 --set checkpoint.every=4"
    " --set ppo.lr_schedule=constant --set ppo.clip_schedule=constant --set actors.lease_seconds=1 ";
const std::string kSmall = kEndless + "--set run.steps=5120 ";

// A learner that listens where it was told to, and the address.
struct Learner {
  Program program;
  std::string address;

  explicit Learner(const std::string& arguments, const std::string& listen = "127.0.0.1:0")
      : Learner(Command{absl::StrCat("learner ", arguments, " --listen ", listen)}) {}
  struct Command {
    std::string line;
  };
  explicit Learner(const Command& command) : program(command.line) {
    constexpr char kBefore[] = "listening on ";
    if (!program.ReadUntil(kBefore) || !program.ReadUntil("; run ")) {
      ADD_FAILURE() << program.output();
      return;
    }
    const std::string& out = program.output();
    const size_t begin = out.find(kBefore) + sizeof kBefore - 1;
    address = out.substr(begin, out.find_first_of(";,", begin) - begin);
  }
  std::string Actor(const std::string& flags = "") const {
    return absl::StrCat("actor --learner ", address, " --threads 1 ", flags);
  }
  Json Status() const {
    const Result result = Mill("status " + address + " --json");
    EXPECT_EQ(result.code, 0) << result.output;
    const Json json = Json::parse(result.output, nullptr, false);
    EXPECT_TRUE(json.is_object()) << result.output;
    return json;
  }
  // The first status for which `holds`; a failure when there is none in good time.
  Json StatusWhere(const char* what, const std::function<bool(const Json&)>& holds) const {
    Json json;
    for (int i = 0; i < 300; ++i) {
      json = Status();
      if (!json.is_object() || holds(json)) return json;
      usleep(50'000);
    }
    ADD_FAILURE() << "never seen: " << what << "\n" << json.dump(1);
    return json;
  }
  Result Control(const std::string& action) const {
    return Mill(absl::StrCat("control ", address, " ", action));
  }
};

bool Advances(const Learner& learner) {
  const uint64_t before = learner.Status()["updates"];
  learner.StatusWhere("an update", [&](const Json& s) { return s["updates"].get<uint64_t>() > before; });
  return !testing::Test::HasFailure();
}

const Json* FindActor(const Json& status, const std::string& name) {
  for (const Json& actor : status["actors"]) {
    if (actor["name"] == name) return &actor;
  }
  return nullptr;
}

class OverEachTransport : public testing::TestWithParam<const char*> {
 protected:
  std::string transport() const { return absl::StrCat("--transport ", GetParam()); }
};

TEST_P(OverEachTransport, TwoActorsTrainCartpoleToItsTarget) {
  const std::string dir = FreshDir(absl::StrCat("target-", GetParam()));
  Learner learner("cartpole --run " + dir);
  Program a(learner.Actor(transport() + " --name a")), b(learner.Actor(transport() + " --name b"));
  const Json status = learner.StatusWhere("both actors at work", [](const Json& s) {
    return s["actors"].size() == 2 && s["updates"] > 3 && s["actors"][0]["steps"] > 0 &&
           s["actors"][1]["steps"] > 0;
  });
  EXPECT_EQ(status["preset"], "cartpole");
  EXPECT_EQ(status["env"], "CartPole-v1");
  EXPECT_EQ(status["mode"], "sync");
  EXPECT_EQ(status["run_dir"], dir);
  EXPECT_EQ(status["rows_missing"], 0);
  EXPECT_EQ(status["bit_exact"], true);
  EXPECT_GT(status["steps_per_second_run"], 0);
  EXPECT_GT(status["weights_bytes"], 1000);
  EXPECT_TRUE(status["policy_loss"].is_number());
  EXPECT_EQ(status["actors"][0]["transport"], GetParam() == std::string("shm") ? "shared_memory" : "grpc");
  const Result result = learner.program.Finish();
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_EQ(Json::parse(ReadText(dir + "/summary.json"))["end"], "target_reached");
  for (Program* actor : {&a, &b}) {
    const Result left = actor->Finish();
    EXPECT_EQ(left.code, 0) << left.output;
  }
}

TEST_P(OverEachTransport, SyncModeHasTheWeightsOfOneProcess) {
  const std::string one = FreshDir(absl::StrCat("one-", GetParam())),
                    many = FreshDir(absl::StrCat("many-", GetParam()));
  ASSERT_EQ(Mill("train" + kSmall + "--run " + one).code, 0);
  Learner learner(kSmall + "--run " + many);
  Program a(learner.Actor(transport())), b(learner.Actor(transport()));
  const Result result = learner.program.Finish();
  ASSERT_EQ(result.code, 0) << result.output;
  const std::string last = "/checkpoints/update-000000020.safetensors";
  EXPECT_TRUE(Tensors(one + last) == Tensors(many + last));
}

INSTANTIATE_TEST_SUITE_P(Transports, OverEachTransport, testing::Values("shm", "grpc"),
                         [](const auto& info) { return info.param; });

TEST(Service, ControlSavesPausesChangesAndStops) {
  const std::string dir = FreshDir("control");
  Learner learner(kEndless + "--run " + dir);
  EXPECT_EQ(learner.StatusWhere("waiting", [](const Json& s) { return s["state"] == "waiting"; })["updates"],
            0);
  learner.StatusWhere("an update that waits", [](const Json& s) {
    for (const Json& station : s["stations"]) {
      if (station["station"] == "update") return station["waiting"] > 0.5;
    }
    return false;
  });
  const Result saved = learner.Control("checkpoint");  // while it waits for actors
  EXPECT_EQ(saved.code, 0) << saved.output;
  EXPECT_THAT(saved.output, HasSubstr("update 0: " + dir));
  Program actor(learner.Actor());
  ASSERT_TRUE(Advances(learner));

  EXPECT_EQ(learner.Control("pause").output, "paused\n");
  const uint64_t paused_at =
      learner.StatusWhere("paused", [](const Json& s) { return s["state"] == "paused"; })["updates"];
  EXPECT_EQ(learner.Control("checkpoint").code, 0);
  EXPECT_LE(learner.Status()["updates"].get<uint64_t>(), paused_at + 1);
  EXPECT_EQ(learner.Control("resume").code, 0);
  ASSERT_TRUE(Advances(learner));

  EXPECT_EQ(learner.Control("set ppo.learning_rate=0.000125 checkpoint.every=7").code, 0);
  learner.StatusWhere("the new learning rate", [](const Json& s) { return s["learning_rate"] == 0.000125; });
  EXPECT_THAT(ReadText(dir + "/config.yaml"), HasSubstr("learning_rate: 0.000125"));
  const Result refused = learner.Control("set ppo.epochs=3 ppo.learning_rate=1");
  EXPECT_EQ(refused.code, 2) << refused.output;
  EXPECT_THAT(refused.output, HasSubstr("ppo.epochs: can't change"));
  EXPECT_EQ(learner.Status()["learning_rate"], 0.000125);

  EXPECT_EQ(learner.Control("stop").code, 0);
  const Result stopped = learner.program.Finish();
  EXPECT_EQ(stopped.code, 0) << stopped.output;
  EXPECT_EQ(Json::parse(ReadText(dir + "/summary.json"))["end"], "stopped");
  EXPECT_EQ(actor.Finish().code, 0);
}

TEST(Service, DrainLetsActorsLeaveAndEndsTheLearner) {
  const std::string dir = FreshDir("drain");
  Learner learner(kEndless + "--run " + dir);
  Program actor(learner.Actor());
  ASSERT_TRUE(Advances(learner));
  EXPECT_EQ(learner.Control("drain").code, 0);
  const Result left = actor.Finish();
  EXPECT_EQ(left.code, 0) << left.output;
  const Result result = learner.program.Finish();
  EXPECT_EQ(result.code, 0) << result.output;
}

TEST(Service, AKilledActorsRowsGoOnElsewhere) {
  Learner learner(kEndless + "--run " + FreshDir("killed-actor"));
  Program a(learner.Actor("--name a")), b(learner.Actor("--name b"));
  learner.StatusWhere("both at work", [](const Json& s) {
    return s["updates"] > 3 && s["actors"].size() == 2 && s["actors"][0]["rows"] > 0 &&
           s["actors"][1]["rows"] > 0;
  });
  a.Kill(SIGKILL);
  const Json status = learner.StatusWhere("b with all rows", [](const Json& s) {
    const Json* const b = FindActor(s, "b");
    return b != nullptr && (*b)["rows"] == 8 && s["rows_missing"] == 0;
  });
  EXPECT_EQ(status["bit_exact"], true);
  EXPECT_TRUE(Advances(learner));
  Program again(learner.Actor("--name a"));
  learner.StatusWhere("a again", [](const Json& s) {
    const Json* const a = FindActor(s, "a");
    return a != nullptr && (*a)["restarts"] == 1;
  });
  // An actor that is asked to leaves in good order, and is gone at once.
  b.Kill(SIGTERM);
  const Result left = b.Finish();
  EXPECT_EQ(left.code, 0) << left.output;
  EXPECT_TRUE(Advances(learner));
}

TEST(Service, ALearnerThatWasStoppedComesBackAndIsFound) {
  const std::string dir = FreshDir("comes-back");
  const std::string arguments = kEndless + "--run " + dir;
  std::string address, run_id;
  std::unique_ptr<Program> actor;
  {
    Learner learner(arguments);
    address = learner.address;
    actor = std::make_unique<Program>(learner.Actor());
    ASSERT_TRUE(Advances(learner));
    run_id = learner.Status()["run_id"];
    learner.program.Kill(SIGTERM);
    const Result stopped = learner.program.Finish();
    EXPECT_EQ(stopped.code, 130) << stopped.output;
    EXPECT_THAT(stopped.output, HasSubstr(absl::StrCat("learner --listen 127.0.0.1:0 --run ", dir)));
  }
  Learner learner(arguments, address);
  EXPECT_THAT(learner.program.output(), HasSubstr("resumed from " + dir));
  EXPECT_EQ(learner.Status()["run_id"], run_id);
  ASSERT_TRUE(Advances(learner)) << actor->output();
  learner.program.Kill(SIGKILL);  // and without a word
  learner.program.Finish();
  Learner third(arguments, address);
  EXPECT_EQ(third.Status()["run_id"], run_id);
  ASSERT_TRUE(Advances(third));
  EXPECT_EQ(third.Control("stop").code, 0);
  EXPECT_EQ(third.program.Finish().code, 0);
  const Result left = actor->Finish();
  EXPECT_EQ(left.code, 0) << left.output;
}

TEST(Service, WaitingForActorsEndsWithASignal) {
  Learner learner(kEndless + "--run " + FreshDir("waits"));
  EXPECT_TRUE(learner.program.ReadUntil("waiting for actors")) << learner.program.output();
  learner.program.Kill(SIGINT);
  const Result result = learner.program.Finish();
  EXPECT_EQ(result.code, 130) << result.output;
}

// A port that somebody listens on.
class BusyPort {
 public:
  BusyPort() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&at), size), 0);
    EXPECT_EQ(listen(fd_, 1), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &size), 0);
    address = absl::StrCat("127.0.0.1:", ntohs(at.sin_port));
  }
  ~BusyPort() { Free(); }
  void Free() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  std::string address;

 private:
  int fd_;
};

TEST(Service, MistakesAreToldInOneLine) {
  const std::string dir = FreshDir("mistakes");
  Learner first(kEndless + "--run " + dir);
  const auto refused = [&](const std::string& arguments, int code, const std::string& text) {
    const Result result = Mill(arguments);
    EXPECT_EQ(result.code, code) << result.output;
    EXPECT_THAT(result.output, HasSubstr(text));
    const size_t at = result.output.find("millrace: ");
    ASSERT_NE(at, std::string::npos) << result.output;
    EXPECT_EQ(std::count(result.output.begin() + static_cast<std::ptrdiff_t>(at), result.output.end(), '\n'),
              1)
        << result.output;
  };
  refused("learner" + kEndless + "--listen 127.0.0.1:0 --run " + dir, 2, dir);
  BusyPort busy;
  refused("learner" + kEndless + "--listen " + busy.address + " --run " + FreshDir("busy"), 2, busy.address);
  refused("learner" + kEndless + "--listen nonsense --run " + FreshDir("nonsense"), 2, "nonsense");
  refused("learner" + kEndless + "--listen 0.0.0.0:0 --run " + FreshDir("open"), 2, "insecure");
  busy.Free();
  refused("status " + busy.address, 3, busy.address);
  refused("control " + busy.address + " pause", 3, busy.address);
  refused("status nowhere", 2, "nowhere");
  refused("actor --learner nowhere", 2, "nowhere");
  refused("train cartpole --set mode=async --run " + FreshDir("async"), 2, "actors.processes");
}

TEST(Service, AnotherPresetOrModeInTheFolderIsRefused) {
  const std::string dir = FreshDir("other");
  ASSERT_EQ(Mill("train" + kSmall + "--run " + dir).code, 0);
  const Result preset = Mill("learner pendulum --listen 127.0.0.1:0 --run " + dir);
  EXPECT_EQ(preset.code, 2) << preset.output;
  EXPECT_THAT(preset.output, HasSubstr("holds a run of cartpole"));
  const Result mode = Mill("learner --listen 127.0.0.1:0 --steps 6000 --set mode=async --run " + dir);
  EXPECT_EQ(mode.code, 2) << mode.output;
  EXPECT_THAT(mode.output, HasSubstr("mode: a resumed run keeps its sync"));
}

TEST(Service, AnActorTooManyForTheReplayWaitsForAnotherToLeave) {
  Learner learner(
      "pendulum-sac --set mode=async --set env.rows=8 --set sac.batch_size=8 --set replay.min_size=8"
      " --set replay.capacity=16 --set run.steps=100000000 --set actors.lease_seconds=1 --run " +
      FreshDir("full"));
  const auto works = [&](const std::string& name) {
    learner.StatusWhere(name.c_str(), [&](const Json& s) {
      const Json* actor = FindActor(s, name);
      return actor != nullptr && (*actor)["steps"] > 0;
    });
  };
  Program first(learner.Actor("--name first"));
  works("first");
  Program second(learner.Actor("--name second"));
  EXPECT_TRUE(second.ReadUntil("replay.capacity 16 has no room for the 8 rows (env.rows) of one more actor"))
      << second.output();
  EXPECT_TRUE(Advances(learner));
  EXPECT_THAT(learner.Status()["counters"].dump(), HasSubstr("refused_full"));
  first.Kill(SIGKILL);
  first.Finish();
  works("second");
  learner.program.Kill(SIGINT);
  EXPECT_EQ(learner.program.Finish().code, 130);
}

// What one process has begun, the service goes on with, to the same bits.
TEST(Service, GoesOnWithARunOfTrain) {
  const std::string dir = FreshDir("begun"), whole = FreshDir("begun-whole");
  ASSERT_EQ(Mill("train" + kSmall + "--steps 2560 --run " + dir).code, 0);
  ASSERT_EQ(Mill("train" + kSmall + "--run " + whole).code, 0);
  Learner learner("--steps 5120 --run " + dir);
  Program actor(learner.Actor());
  EXPECT_EQ(learner.program.Finish().code, 0);
  const std::string last = "/checkpoints/update-000000020.safetensors";
  EXPECT_TRUE(Tensors(whole + last) == Tensors(dir + last));
}

// ---- train with processes ----

TEST(TrainWithProcesses, AnAsynchronousRunGoesOnAfterAKill) {
  const std::string dir = FreshDir("supervised-async");
  Program program("train" + kEndless +
                  "--set mode=async --set actors.processes=2 --set metrics.segments=true --run " + dir);
  for (int i = 0; i < 60000 && (!stdfs::exists(dir + "/checkpoints") || Checkpoints(dir).size() < 3); ++i)
    usleep(1000);
  program.Kill(SIGKILL);
  program.Finish();
  ASSERT_EQ(Checkpoints(dir).size(), 3u);
  const Result resumed = Mill("train --resume " + dir + " --steps 30000");
  EXPECT_EQ(resumed.code, 0) << resumed.output;
  EXPECT_THAT(resumed.output, HasSubstr("resumed from"));
  // Each group's segments follow one another without a gap, over the kill.
  std::map<int, uint64_t> next;
  std::ifstream segments(dir + "/segments.jsonl");
  for (std::string line; std::getline(segments, line);) {
    const Json segment = Json::parse(line);
    uint64_t& expected = next[segment["group"]];
    EXPECT_EQ(segment["first_step"], expected) << line;
    expected += segment["steps"].get<uint64_t>();
  }
  EXPECT_GE(next.size(), 8u);
}

std::vector<pid_t> ChildrenOf(pid_t parent) {
  std::vector<pid_t> children;
  for (const auto& task : stdfs::directory_iterator(absl::StrCat("/proc/", parent, "/task"))) {
    std::ifstream in(task.path() / "children");
    for (pid_t pid; in >> pid;) children.push_back(pid);
  }
  return children;
}

// Nobody may be there to reap what has ended.
bool Alive(pid_t pid) {
  const std::string stat = ReadText(absl::StrCat("/proc/", pid, "/stat"));
  const size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && stat.substr(name_end, 4) != ") Z ";
}

TEST(TrainWithProcesses, ReachesTheTarget) {
  const std::string dir = FreshDir("supervised");
  const Result result = Mill("train cartpole --set actors.processes=2 --run " + dir);
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_EQ(Json::parse(ReadText(dir + "/summary.json"))["end"], "target_reached");
  EXPECT_TRUE(stdfs::exists(dir + "/actor-0.log") && stdfs::exists(dir + "/actor-1.log"));
}

TEST(TrainWithProcesses, ACrashedActorStartsAgainAndAllDieWithTheLearner) {
  const std::string dir = FreshDir("supervised-crash");
  Program program("train" + kEndless + "--set actors.processes=2 --run " + dir);
  ASSERT_TRUE(program.ReadUntil("steps/s"));
  std::vector<pid_t> children = ChildrenOf(program.pid());
  ASSERT_EQ(children.size(), 2u);
  kill(children[0], SIGKILL);
  EXPECT_TRUE(program.ReadUntil("ended by signal 9")) << program.output();
  for (int i = 0; i < 10000 && ChildrenOf(program.pid()).size() < 2; ++i) usleep(1000);
  children = ChildrenOf(program.pid());
  EXPECT_EQ(children.size(), 2u);
  program.Kill(SIGKILL);
  program.Finish();
  for (const pid_t child : children) {
    for (int i = 0; i < 20000 && Alive(child); ++i) usleep(1000);
    EXPECT_FALSE(Alive(child)) << "it outlived the learner";
  }
  // The run's lock went with the learner, and the run goes on.
  Program again("train --resume " + dir);
  ASSERT_TRUE(again.ReadUntil("steps/s")) << again.output();
  again.Kill(SIGTERM);
  const Result stopped = again.Finish();
  EXPECT_EQ(stopped.code, 130) << stopped.output;
}

TEST(TrainWithProcesses, ADrainIsNoFailure) {
  Learner learner(Learner::Command{"train" + kEndless + "--set actors.processes=2 --run " +
                                   FreshDir("supervised-drain")});
  ASSERT_TRUE(Advances(learner));
  EXPECT_EQ(learner.Control("drain").code, 0);
  const Result result = learner.program.Finish();
  EXPECT_EQ(result.code, 0) << result.output;
}

TEST(TrainWithProcesses, ARefusalThatWouldComeAgainEndsTheRun) {
  const std::string dir = FreshDir("supervised-refused");
  const Result result =
      Mill("train" + kEndless + "--set actors.processes=1 --set actors.transport=shm" +
           " --set learner.queue_mib=1 --set env.rows=4096 --set env.group_rows=0 --run " + dir);
  EXPECT_EQ(result.code, 2) << result.output;
  EXPECT_THAT(result.output, HasSubstr("learner.queue_mib"));
}

}  // namespace
}  // namespace millrace
