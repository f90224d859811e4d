#include "tests/faults/run_under_test.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/numbers.h"
#include "common/checkpoint.h"
#include "common/rpc/address.h"
#include "common/rpc/client_grpc.h"
#include "common/text.h"

namespace millrace {
namespace {

namespace stdfs = std::filesystem;
using std::chrono_literals::operator""ms;
using Clock = std::chrono::steady_clock;

constexpr auto kLook = 20ms;  // between two looks at a status

// Takes the folders away at the end of the program; after a failure they stay, to be looked into.
class Folders final : public testing::Environment {
 public:
  static Folders& Get() {
    static auto* const folders =
        static_cast<Folders*>(testing::AddGlobalTestEnvironment(new Folders));  // which owns it
    return *folders;
  }
  void Add(const std::string& dir) { dirs_.push_back(dir); }
  void TearDown() override {
    if (testing::UnitTest::GetInstance()->Failed()) return;
    std::error_code ignored;
    for (const std::string& dir : dirs_) stdfs::remove_all(dir, ignored);
  }

 private:
  std::vector<std::string> dirs_;
};
[[maybe_unused]] const Folders& registered = Folders::Get();  // before the tests begin

std::vector<std::string> Command(const std::string& command, const Settings& settings) {
  std::vector<std::string> words = {MILLRACE_BINARY, command, "cartpole"};
  for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
  return words;
}

}  // namespace

bool LongForm() {
  const char* wanted = std::getenv("MILLRACE_FAULTS_LONG");
  return wanted != nullptr && std::string(wanted) == "1";
}

std::string FreshDir(const std::string& name) {
  const std::string dir = Cat(testing::TempDir(), "faults-", ::getpid(), "-", name);
  stdfs::remove_all(dir);
  Folders::Get().Add(dir);
  return dir;
}

std::string ReadText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Settings SmallRun() {
  return {"run.steps=1000000000",
          "run.stop_window=0",
          "run.threads=1",
          "env.rows=8",
          "env.group_rows=2",
          "ppo.horizon=32",
          "ppo.minibatch_size=128",
          "ppo.epochs=2",
          "ppo.lr_schedule=constant",
          "ppo.clip_schedule=constant",
          "checkpoint.every=20",
          "eval.every=0",
          "metrics.tensorboard=false",
          "actors.lease_seconds=2"};
}

Settings SmallLedger() {
  Settings settings = SmallRun();
  settings.insert(settings.end(), {"env.id=Ledger", "metrics.segments=true"});
  return settings;
}

Learner::Learner(const std::string& run_dir, const Settings& settings, const Process::Options& options,
                 const std::string& listen)
    : run_dir_(run_dir) {
  std::vector<std::string> words = Command("learner", settings);
  words.insert(words.end(), {"--listen", listen, "--run", run_dir});
  process_ = std::make_unique<Process>(std::move(words), options);
}

std::string Learner::address(std::chrono::milliseconds deadline) {
  if (!address_.empty()) return address_;
  const std::string mark = "listening on ";
  const auto line = process_->WaitForLine(mark, deadline);
  EXPECT_TRUE(line) << process_->output();
  if (!line) return "";
  const size_t begin = line->find(mark) + mark.size();
  address_ = line->substr(begin, line->find_first_of(",; \n", begin) - begin);
  return address_;
}

uint16_t Learner::port() {
  const auto parsed = ParseAddress(address());
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? parsed->port : 0;
}

RunStatus Learner::Status() {
  const auto client = LearnerClient::Make(address());
  if (!client.ok()) return {};
  return (*client)->GetStatus(5000ms).value_or(RunStatus());
}

uint64_t Learner::Counter(const std::string& name) {
  for (const auto& counter : Status().counters) {
    if (counter.name == name) return counter.value;
  }
  return 0;
}

bool Learner::WaitFor(const std::function<bool(const RunStatus&)>& what, std::chrono::milliseconds deadline) {
  const auto until = Clock::now() + deadline;
  const auto client = LearnerClient::Make(address());
  if (!client.ok()) return false;
  while (process_->running() && Clock::now() < until) {
    const auto status = (*client)->GetStatus(5000ms);
    if (status.ok() && what(*status)) return true;
    process_->WaitForEnd(kLook);
  }
  return false;
}

void Learner::WaitForUpdates(uint64_t more, std::chrono::milliseconds deadline) {
  bool known = false;
  uint64_t goal = 0;
  RunStatus last;
  const bool there = WaitFor(
      [&](const RunStatus& status) {
        if (!known) goal = status.updates + more;
        known = true;
        last = status;
        return status.updates >= goal;
      },
      deadline);
  EXPECT_TRUE(there) << "update " << last.updates << " instead of " << goal << ", state " << last.state
                     << "\nlearner:\n"
                     << process_->output();
}

void Learner::Stop() {
  process_->Signal(SIGTERM);
  const auto code = process_->WaitForEnd();
  ASSERT_TRUE(code) << "the learner did not end\n" << process_->output();
  EXPECT_EQ(*code, 130) << process_->output();
}

std::unique_ptr<Process> StartActor(const std::string& learner, const std::string& name,
                                    const std::string& transport) {
  return std::make_unique<Process>(std::vector<std::string>{MILLRACE_BINARY, "actor", "--learner", learner,
                                                            "--name", name, "--transport", transport,
                                                            "--threads", "1"});
}

std::vector<std::string> Checkpoints(const std::string& run_dir) {
  std::vector<std::string> names;
  if (!stdfs::exists(run_dir + "/checkpoints")) return names;
  for (const auto& entry : stdfs::directory_iterator(run_dir + "/checkpoints")) {
    const std::string name = entry.path().filename();
    if (name.starts_with("update-") && name.ends_with(".safetensors")) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

uint64_t UpdateOf(const std::string& checkpoint_name) {
  uint64_t update = 0;
  EXPECT_EQ(std::sscanf(checkpoint_name.c_str(), "update-%lu", &update), 1) << checkpoint_name;
  return update;
}

std::string Tensors(const std::string& run_dir, const std::string& checkpoint_name) {
  PosixFileSystem fs;
  const auto checkpoint = LoadCheckpoint(fs, Cat(run_dir, "/checkpoints/", checkpoint_name));
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  std::string all;
  if (!checkpoint.ok()) return all;
  for (const NamedTensor& tensor : checkpoint->content.tensors) {
    CatTo(all, tensor.name, " ");
    all.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  }
  return all;
}

void ExpectBitsOfTrain(const std::string& run_dir, const Settings& settings, uint64_t steps,
                       std::chrono::milliseconds deadline) {
  const std::vector<std::string> there = Checkpoints(run_dir);
  ASSERT_FALSE(there.empty());
  const uint64_t updates = UpdateOf(there.back());
  EXPECT_GT(updates, 0u);
  const std::string reference = FreshDir(Cat(stdfs::path(run_dir).filename().string(), "-reference"));
  Settings whole = settings;
  whole.insert(whole.end(), {Cat("run.steps=", updates * steps), "env.step_wait_us=0"});
  std::vector<std::string> words = Command("train", whole);
  words.insert(words.end(), {"--run", reference});
  Process train(words);
  ASSERT_EQ(train.WaitForEnd(deadline), 0) << train.output();
  const std::vector<std::string> names = Checkpoints(reference);
  ASSERT_FALSE(names.empty());
  ASSERT_EQ(names.back(), there.back());
  EXPECT_TRUE(Tensors(run_dir, there.back()) == Tensors(reference, names.back()))
      << "after " << updates << " updates the state differs from that of one process";
}

}  // namespace millrace
