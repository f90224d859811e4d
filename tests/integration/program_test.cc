// The built program as a user runs it: exit codes, messages, folders, signals, damage. Real processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/integration/program.h"

namespace millrace {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

// Updates of 256 samples, without end; and 20 of them.
const std::string kEndless =
    "train cartpole --set run.steps=100000000 --set env.rows=8 --set ppo.horizon=32 --set "
    "ppo.minibatch_size=128"
    " --set run.stop_window=0 --set checkpoint.every=4 --set ppo.lr_schedule=constant --set "
    "ppo.clip_schedule=constant ";
const std::string kSmall = kEndless + "--set run.steps=5120 ";

TEST(Program, TrainsAndLeavesACompleteFolder) {
  const std::string dir = FreshDir("folder");
  const Result result = Mill(kSmall + "--set eval.every=2000 --set eval.episodes=5 --run " + dir);
  ASSERT_EQ(result.code, 0) << result.output;
  const Json summary = Json::parse(ReadText(dir + "/summary.json"));
  EXPECT_EQ(summary["end"], "done");
  EXPECT_EQ(summary["steps"], 5120);
  EXPECT_EQ(summary["updates"], 20);
  const std::string config = ReadText(dir + "/config.yaml");
  EXPECT_THAT(config, HasSubstr("minibatch_size: 128"));
  std::ifstream metrics(dir + "/metrics.jsonl");
  std::string line;
  int lines = 0;
  for (; std::getline(metrics, line); ++lines) {
    const Json row = Json::parse(line);
    EXPECT_EQ(row["update"], lines + 1);
    EXPECT_GT(row["steps_per_second"], 0);
    EXPECT_TRUE(row["entropy"].is_number());
    EXPECT_NEAR(
        row["ms_rollout"].get<double>() + row["ms_update"].get<double>() + row["ms_rest"].get<double>(),
        row["ms_per_update"].get<double>(), 1e-6);
  }
  EXPECT_EQ(lines, 20);
  EXPECT_EQ(Checkpoints(dir).size(), 3u);  // keep: 3
  EXPECT_TRUE(stdfs::exists(dir + "/checkpoints/best.safetensors"));
  const Result eval = Mill("eval " + dir + " --episodes 7 --json");
  ASSERT_EQ(eval.code, 0) << eval.output;
  const Json json = Json::parse(eval.output);
  EXPECT_EQ(json["episodes"], 7);
  EXPECT_TRUE(json["return_mean"].is_number() && json["return_std"].is_number() &&
              json["length_mean"].is_number());
}

// Sac with its replay in the checkpoints, which are written beside training.
const std::string kEndlessSac =
    "train pendulum-sac --set run.steps=100000000 --set replay.min_size=60 --set replay.capacity=500 --set "
    "replay.prioritized=true --set replay.beta=0.4 --set replay.beta_end=0.4 --set policy.hidden=[32,32] "
    "--set sac.batch_size=32 --set sac.random_steps=50 "
    "--set checkpoint.every=40 --set checkpoint.keep=1000000 --set checkpoint.replay=true --set "
    "metrics.every=1 ";

TEST(Program, KilledAndResumedWithItsReplayEqualsARunThatNeverStopped) {
  const std::string whole = FreshDir("whole-sac"), killed = FreshDir("killed-sac");
  ASSERT_EQ(Mill(kEndlessSac + "--steps 900 --run " + whole).code, 0);
  Program program(kEndlessSac + "--run " + killed);
  ASSERT_TRUE(program.ReadUntil("writing to"));
  // In the midst of a write, where it is seen in time.
  const auto written = [&](const char* extension) {
    size_t count = 0;
    std::error_code gone;
    for (stdfs::directory_iterator it(killed + "/checkpoints", gone), end; !gone && it != end;
         it.increment(gone)) {
      count += it->path().extension() == extension ? 1 : 0;
    }
    return count;
  };
  for (int i = 0; i < 60000 && written(".safetensors") < 3; ++i) usleep(1000);
  for (int i = 0; i < 10000 && written(".tmp") == 0; ++i) {
  }
  program.Kill(SIGKILL);
  EXPECT_EQ(program.Finish().code, 128 + SIGKILL);
  for (const std::string& name : Checkpoints(killed)) {
    if (name > "update-000000880.safetensors") stdfs::remove(killed + "/checkpoints/" + name);
  }
  ASSERT_GE(Checkpoints(killed).size(), 2u);
  const Result resumed = Mill("train --resume " + killed + " --steps 900");
  ASSERT_EQ(resumed.code, 0) << resumed.output;
  EXPECT_EQ(written(".tmp"), 0u);
  EXPECT_TRUE(Tensors(whole + "/checkpoints/update-000000900.safetensors") ==
              Tensors(killed + "/checkpoints/update-000000900.safetensors"));
}

TEST(Program, AResumedRunThatCannotFillItsReplayAgainSaysSo) {
  const std::string dir = FreshDir("empty-replay"), idle = "too few for a gradient step";
  ASSERT_EQ(
      Mill("train pendulum-sac --set replay.min_size=50 --set sac.batch_size=8 --steps 60 --run " + dir).code,
      0);
  EXPECT_THAT(Mill("train --resume " + dir + " --steps 109").output, HasSubstr(idle));
  EXPECT_THAT(Mill("train --resume " + dir + " --steps 159").output, testing::Not(HasSubstr(idle)));
}

TEST(Program, AFullDiskEndsARunWhoseCheckpointsAreWrittenBeside) {
  const std::string dir = FreshDir("full-sac");
  ASSERT_EQ(Mill(kEndlessSac + "--steps 200 --run " + dir).code, 0);
  const auto before = Checkpoints(dir);
  // Metrics have room for some lines more; a checkpoint has none.
  const Result result =
      Program("train --resume " + dir + " --set metrics.every=1000000 --steps 100000", 20000).Finish();
  EXPECT_EQ(result.code, 3) << result.output;
  EXPECT_THAT(result.output, HasSubstr("checkpoints/update-"));
  EXPECT_EQ(Checkpoints(dir), before);
  const Result after = Mill("train --resume " + dir + " --steps 300");
  EXPECT_EQ(after.code, 0) << after.output;
}

TEST(Program, KilledAndResumedEqualsARunThatNeverStopped) {
  const std::string whole = FreshDir("whole"), killed = FreshDir("killed");
  ASSERT_EQ(Mill(kSmall + "--run " + whole).code, 0);
  // Long enough to be caught in the middle: the steps are set back when it resumes.
  Program program(kEndless + "--run " + killed);
  ASSERT_TRUE(program.ReadUntil("writing to"));
  for (int i = 0; i < 60000 && (!stdfs::exists(killed + "/checkpoints") || Checkpoints(killed).empty()); ++i)
    usleep(1000);
  program.Kill(SIGKILL);
  EXPECT_EQ(program.Finish().code, 128 + SIGKILL);
  // Whatever came after update 4 goes; that checkpoint is the one that the shorter run must reach, too.
  const auto names = Checkpoints(killed);
  ASSERT_FALSE(names.empty());
  for (const std::string& name : names) {
    if (name > "update-000000016.safetensors") stdfs::remove(killed + "/checkpoints/" + name);
  }
  if (Checkpoints(killed).empty()) {  // it was too fast: begin from nothing, which must be exact as well
    std::printf("all checkpoints were past update 16\n");
  }
  const Result resumed = Mill("train --resume " + killed + " --steps 5120");
  ASSERT_EQ(resumed.code, 0) << resumed.output;
  EXPECT_TRUE(Tensors(whole + "/checkpoints/update-000000020.safetensors") ==
              Tensors(killed + "/checkpoints/update-000000020.safetensors"));
  std::ifstream metrics(killed + "/metrics.jsonl");
  std::string line;
  for (int update = 1; std::getline(metrics, line); ++update) EXPECT_EQ(Json::parse(line)["update"], update);
}

TEST(Program, InterruptStopsAfterACheckpointAndTheRunGoesOn) {
  for (int signal_number : {SIGINT, SIGTERM, SIGHUP}) {
    const std::string dir = FreshDir("interrupted");
    Program program(kEndless + "--run " + dir);
    ASSERT_TRUE(program.ReadUntil("steps/s"));
    program.Kill(signal_number);
    program.Kill(signal_number);  // the same press
    const Result result = program.Finish();
    EXPECT_EQ(result.code, 130) << result.output;
    EXPECT_THAT(result.output, HasSubstr("stopping after this update"));
    EXPECT_THAT(result.output, HasSubstr("--resume " + dir));
    const Json summary = Json::parse(ReadText(dir + "/summary.json"));
    EXPECT_EQ(summary["end"], "stopped");
    const auto steps = summary["steps"].get<uint64_t>();
    const Result resumed = Mill(absl::StrCat("train --resume ", dir, " --steps ", steps + 256));
    EXPECT_EQ(resumed.code, 0) << resumed.output;
    EXPECT_EQ(Json::parse(ReadText(dir + "/summary.json"))["steps"], steps + 256);
  }
}

TEST(Program, ASecondProcessOnARunsFolderIsRefused) {
  const std::string dir = FreshDir("locked");
  Program first(kEndless + "--run " + dir);
  ASSERT_TRUE(first.ReadUntil("steps/s"));
  const Result second = Mill("train --resume " + dir);
  EXPECT_EQ(second.code, 2) << second.output;
  EXPECT_THAT(second.output, HasSubstr(dir));
  first.Kill(SIGKILL);
  first.Finish();
}

TEST(Program, ADamagedCheckpointIsSkippedForTheOneBefore) {
  const std::string dir = FreshDir("damaged");
  ASSERT_EQ(Mill(kSmall + "--run " + dir).code, 0);
  const auto names = Checkpoints(dir);
  ASSERT_EQ(names.size(), 3u);
  const std::string newest = dir + "/checkpoints/" + names[2], before = dir + "/checkpoints/" + names[1];
  {
    std::fstream file(newest, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(stdfs::file_size(newest) / 2));
    file.put('\x5a');
  }
  stdfs::resize_file(before, stdfs::file_size(before) - 1);
  const Result resumed = Mill("train --resume " + dir + " --steps 5120");
  EXPECT_EQ(resumed.code, 0) << resumed.output;
  EXPECT_THAT(resumed.output, HasSubstr("skipped " + newest));
  EXPECT_THAT(resumed.output, HasSubstr("skipped " + before));
  EXPECT_THAT(resumed.output, HasSubstr("resumed from " + dir + "/checkpoints/" + names[0]));
}

TEST(Program, AFullDiskKeepsWhatWasThere) {
  const std::string dir = FreshDir("full");
  ASSERT_EQ(Mill(kSmall + "--run " + dir).code, 0);
  const auto before = Checkpoints(dir);
  const Result result = Program("train --resume " + dir + " --steps 20000", 20000).Finish();
  EXPECT_EQ(result.code, 3) << result.output;
  EXPECT_THAT(result.output, HasSubstr("millrace: "));
  EXPECT_EQ(Checkpoints(dir), before);
  const Result after = Mill("train --resume " + dir + " --steps 6144");
  EXPECT_EQ(after.code, 0) << after.output;
}

TEST(Program, AnUpdateThatDivergesExitsWith3AndLeavesTheLastCheckpoint) {
  const std::string dir = FreshDir("diverges");
  const Result result = Mill(kSmall +
                             "--set ppo.learning_rate=1000 --set policy.activation=relu --set "
                             "ppo.max_grad_norm=0 --set checkpoint.every=1 --run " +
                             dir);
  EXPECT_EQ(result.code, 3) << result.output;
  EXPECT_THAT(result.output, HasSubstr("not finite"));
  ASSERT_TRUE(stdfs::exists(dir + "/summary.json"));
  EXPECT_EQ(Json::parse(ReadText(dir + "/summary.json"))["end"], "failed");
  const std::string skipping = FreshDir("skips");
  const Result skip = Mill(kSmall +
                           "--set ppo.learning_rate=1000 --set policy.activation=relu --set "
                           "ppo.max_grad_norm=0 --set run.on_nonfinite=skip --run " +
                           skipping);
  EXPECT_EQ(skip.code, 0) << skip.output;
  EXPECT_GT(Json::parse(ReadText(skipping + "/summary.json"))["updates_skipped"], 0);
}

TEST(Program, WarmStartTakesTheWeightsOnly) {
  const std::string dir = FreshDir("source"), warm = FreshDir("warm");
  ASSERT_EQ(Mill(kSmall + "--run " + dir).code, 0);
  const Result result = Mill(kSmall + "--seed 2 --set run.warm_start=" + dir + " --run " + warm);
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("weights from " + dir));
  EXPECT_EQ(Json::parse(ReadText(warm + "/summary.json"))["updates"], 20);
}

TEST(Program, WithoutItsCheckpointsARunsHistoryIsNotOverwritten) {
  const std::string dir = FreshDir("lost");
  ASSERT_EQ(Mill(kSmall + "--run " + dir).code, 0);
  stdfs::remove_all(dir + "/checkpoints");
  const std::string metrics = ReadText(dir + "/metrics.jsonl");
  const Result result = Mill("train --resume " + dir + " --steps 6144");
  EXPECT_EQ(result.code, 2) << result.output;
  EXPECT_THAT(result.output, HasSubstr("no checkpoint of it can be read"));
  EXPECT_EQ(ReadText(dir + "/metrics.jsonl"), metrics);
}

TEST(Program, EvalRepeatsTheRunsOwnEvaluation) {
  const std::string dir = FreshDir("same-eval");
  ASSERT_EQ(Mill(kSmall + "--seed 7 --set eval.every=5000 --set eval.episodes=9 --run " + dir).code, 0);
  const Json summary = Json::parse(ReadText(dir + "/summary.json"));
  const Result eval = Mill("eval " + dir + " --checkpoint latest --json");
  EXPECT_EQ(Json::parse(eval.output)["return_mean"], summary["eval_return_mean"]) << eval.output;
}

TEST(Program, RunsThatBeginInTheSameSecondHaveFoldersOfTheirOwn) {
  const std::string dir = FreshDir("together");
  stdfs::create_directories(dir);
  const auto here = stdfs::current_path();
  stdfs::current_path(dir);
  Program a(kSmall), b(kSmall), c(kSmall);
  for (Program* program : {&a, &b, &c}) {
    const Result result = program->Finish();
    EXPECT_EQ(result.code, 0) << result.output;
  }
  stdfs::current_path(here);
}

TEST(Program, AnEvaluationThatDoesNotEndCostsNothingButAWarning) {
  const std::string dir = FreshDir("endless-eval");
  const Result result =
      Mill(kSmall + "--set env.id=Null --set env.params.episode_length=0 --set env.params.obs=4" +
           " --set env.params.actions=2 --set eval.every=2000 --set eval.episodes=1 --run " + dir);
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("evaluation failed: "));
  EXPECT_FALSE(Checkpoints(dir).empty());
}

TEST(Program, AResumedRunKeepsItsCourseAndItsConfigSaysWhatWasChanged) {
  const std::string dir = FreshDir("course");
  ASSERT_EQ(Mill(kSmall + "--set eval.every=5000 --set eval.episodes=3 --run " + dir).code, 0);
  const Json before = Json::parse(ReadText(dir + "/summary.json"));
  const Result nothing = Mill("train --resume " + dir);
  EXPECT_EQ(nothing.code, 0) << nothing.output;
  EXPECT_THAT(nothing.output, HasSubstr("nothing to do"));
  EXPECT_EQ(Json::parse(ReadText(dir + "/summary.json")), before);
  const Result seed = Mill("train --resume " + dir + " --seed 9 --steps 6144");
  EXPECT_EQ(seed.code, 2) << seed.output;
  EXPECT_THAT(seed.output, HasSubstr("run.seed: a resumed run keeps its 1"));
  EXPECT_EQ(Mill("train --resume " + dir + " --set env.group_rows=2 --steps 6144").code, 2);
  ASSERT_EQ(Mill("train --resume " + dir + " --steps 6144 --set run.stop_window=7").code, 0);
  EXPECT_THAT(ReadText(dir + "/config.yaml"), HasSubstr("steps: 6144"));
  const Json after = Json::parse(ReadText(dir + "/summary.json"));
  EXPECT_EQ(after["steps"], 6144);
  EXPECT_TRUE(after["eval_return_mean"].is_number());
}

struct Bad {
  const char* arguments;  // RUN stands for a finished run's folder, FILE for a file in its way
  const char* message;
};

const Bad kBadInput[] = {Bad{"trane cartpole", "train"},
                         Bad{"train", "train"},
                         Bad{"train cartpol", "cartpole"},
                         Bad{"train cartpole --set ppo.clip_rnage=0.1", "did you mean ppo.clip_range?"},
                         Bad{"train cartpole --set ppo.epochs=many", "ppo.epochs"},
                         Bad{"train cartpole --set ppo.epochs=-1", "ppo.epochs"},
                         Bad{"train cartpole --set env.rows=0", "env.rows"},
                         Bad{"train cartpole --set ppo.minibatch_size=99999999", "ppo.minibatch_size"},
                         Bad{"train cartpole --set ppo.gamma=1.5", "ppo.gamma"},
                         Bad{"train cartpole --set ppo.learning_rate=nan", "ppo.learning_rate"},
                         Bad{"train cartpole --set env.id=CartPole-v2", "CartPole-v1"},
                         Bad{"train breakout --set env.params.frame_skp=4", "frame_skip"},
                         Bad{"train breakout --set env.params.frame_skip=0", "frame_skip"},
                         Bad{"train cartpole --set algorithm=sac", "algorithm"},
                         Bad{"train cartpole --set policy.activation=thanh", "tanh"},
                         Bad{"train cartpole --set policy.hidden=[64,0]", "policy.hidden"},
                         Bad{"train cartpole --set env.group_rows=4000", "env.group_rows"},
                         Bad{"train cartpole --steps many", "--steps"},
                         Bad{"train /nowhere/at/all.yaml", "/nowhere/at/all.yaml"},
                         Bad{"train cartpole --run FILE", "FILE"},
                         Bad{"train cartpole --run RUN", "--resume"},
                         Bad{"train cartpole --run /proc/millrace", "/proc/millrace"},
                         Bad{"train --resume /nowhere/run", "/nowhere/run"},
                         Bad{"train --resume FILE", "FILE"},
                         Bad{"train --resume RUN --set policy.hidden=[32]", "another network"},
                         Bad{"train --resume RUN --set env.rows=16 --set env.group_rows=0", "env"},
                         Bad{"train pendulum --set run.warm_start=RUN --run RUN-new", "another network"},
                         Bad{"train cartpole --set run.warm_start=/nowhere --run RUN-new", "/nowhere"},
                         Bad{"eval /nowhere/run", "/nowhere/run"},
                         Bad{"eval FILE", "FILE"},
                         Bad{"eval RUN --episodes 0", "--episodes"},
                         Bad{"eval RUN --episodes 3000000000", "1000000"},
                         Bad{"eval RUN --checkpoint bset", "must be best, latest"},
                         Bad{"train pendulum --resume RUN", "--resume"},
                         Bad{"train --resume RUN --run RUN-new", "--run"},
                         Bad{"train --resume RUN --threads 5000", "1024"},
                         Bad{"train cartpole --set env.time_limit=2147483647", "env.time_limit"},
                         Bad{"eval RUN --checkpoint /nowhere.safetensors", "/nowhere.safetensors"},
                         Bad{"bench ppo-hevy", "ppo-heavy"},
                         Bad{"bench env:CartPol-v1", "CartPole-v1"},
                         Bad{"presets show cartpol", "cartpole"},
                         Bad{"tune batch pendulum-sca", "did you mean pendulum-sac?"},
                         Bad{"tune batch cartpole --sizes 256,4096", "--sizes 4096: ppo.minibatch_size"},
                         Bad{"tune batch pendulum-sac --sizes 30000", "--sizes 30000: replay.capacity"},
                         Bad{"tune batch pendulum-sac --set env.id=Breakot", "Breakout"},
                         Bad{"tune batch pendulum-sac --set sac.batch_size=0", "sac.batch_size"},
                         Bad{"envs --jsn", "--json"}};

TEST(Program, BadInputExitsWith2AndSaysWhatToDo) {
  const std::string run = FreshDir("good"), file = run + "-file";
  ASSERT_EQ(Mill(kSmall + "--run " + run).code, 0);
  std::ofstream(file) << "not a run\n";
  const auto before = Checkpoints(run);
  for (const Bad& bad : kBadInput) {
    SCOPED_TRACE(bad.arguments);
    std::string arguments = bad.arguments, message = bad.message;
    for (std::string* text : {&arguments, &message}) {
      for (const auto& [name, value] : {std::pair{"RUN", run}, {"FILE", file}}) {
        for (size_t at = 0; (at = text->find(name, at)) != std::string::npos; at += value.size()) {
          text->replace(at, strlen(name), value);
        }
      }
    }
    const Result result = Mill(arguments);
    EXPECT_EQ(result.code, 2) << result.output;
    EXPECT_THAT(result.output, HasSubstr(message));
    EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 1) << result.output;
    EXPECT_EQ(Checkpoints(run), before);
  }
}

TEST(Program, ABatchThatNoMachineHoldsIsRefusedWithItsBytes) {
  const std::string dir = FreshDir("large");
  const Result result = Mill(
      "train pendulum-sac --set replay.capacity=1048576 --set sac.batch_size=1048576 --set "
      "sac.updates_per_step=0.5 --set policy.hidden=[65536] --set sac.critics=64 --run " +
      dir);
  EXPECT_EQ(result.code, 3) << result.output;
  EXPECT_THAT(result.output,
              testing::ContainsRegex("activations of a batch take [0-9]+ bytes and [0-9]+ are"));
  EXPECT_THAT(result.output, HasSubstr("a smaller policy.hidden, sac.critics or sac.batch_size needs less"));
  EXPECT_FALSE(stdfs::exists(dir));
}

#ifndef MILLRACE_SANITIZED  // sanitizers need an address space of terabytes
// Of an address space the system says nothing before it is used up.
TEST(Program, WhereMemoryEndsItSaysSo) {
  const Result result = Program(
                            "train pendulum-sac --threads 1 --set replay.capacity=1048576 --set "
                            "sac.batch_size=1048576 --set sac.updates_per_step=0.5 --run " +
                                FreshDir("no-memory"),
                            RLIM_INFINITY, rlim_t{1} << 30)
                            .Finish();
  EXPECT_EQ(result.code, 3) << result.output;
  // Where less than it needs is free, the figures come first.
  EXPECT_THAT(result.output, testing::AnyOf(HasSubstr("millrace: out of memory; give the program more"),
                                            HasSubstr(" are available")));
}
#endif

TEST(Program, ListsEnvironmentsPresetsAndWorks) {
  EXPECT_THAT(Mill("envs").output, HasSubstr("MountainCarContinuous-v0"));
  EXPECT_GE(Json::parse(Mill("envs --json").output).size(), 7u);
  EXPECT_THAT(Mill("presets").output, HasSubstr("cartpole"));
  EXPECT_THAT(Mill("presets show pendulum").output, HasSubstr("Pendulum-v1"));
  EXPECT_THAT(Mill("bench list").output, HasSubstr("ppo-heavy"));
  EXPECT_THAT(Mill("--help").output, HasSubstr("train"));
  EXPECT_THAT(Mill("version").output, HasSubstr("millrace "));
}

TEST(Program, BenchPrintsOneObjectAWork) {
  // Works that a sanitized build can do in a moment; a repetition of ppo-light takes it a minute.
  const Result result = Mill("bench env:Acrobot-v1 env:CartPole-v1 --json --seconds 0.2");
  ASSERT_EQ(result.code, 0) << result.output;
  std::vector<std::string> lines = absl::StrSplit(result.output, '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 2u);
  for (const std::string& line : lines) {
    const Json json = Json::parse(line);
    EXPECT_GT(json["rate"], 0);
    EXPECT_GT(json["floor"], 0);
    EXPECT_NEAR(json["rate"].get<double>() / json["floor"].get<double>(), json["fraction"].get<double>(),
                1e-9);
    EXPECT_EQ(json["unit"], "steps/s");
  }
}

TEST(Program, TuneMeasuresBatchSizesOfAPresetAndProposesOne) {
  const std::string quick = " --set policy.hidden=[8] --seconds 0.001";
  const Result sac = Mill("tune batch pendulum-sac --sizes 32,8,100" + quick);
  ASSERT_EQ(sac.code, 0) << sac.output;
  EXPECT_THAT(sac.output, HasSubstr("pendulum-sac: sac.batch_size at 3 sizes"));
  EXPECT_THAT(sac.output, HasSubstr("samples/s"));
  EXPECT_THAT(sac.output, HasSubstr("\n        8 |#"));
  EXPECT_THAT(sac.output, HasSubstr("\n  --set sac.batch_size="));

  const Result ppo = Mill("tune batch cartpole --json" + quick);
  ASSERT_EQ(ppo.code, 0) << ppo.output;
  const Json json = Json::parse(ppo.output);
  EXPECT_EQ(json["setting"], "ppo.minibatch_size");
  EXPECT_EQ(json["configured"], 256);
  std::vector<int> sizes;
  for (const Json& size : json["sizes"]) {
    sizes.push_back(size["batch"]);
    EXPECT_GT(size["samples_per_second"], 0);
    EXPECT_LE(size["share_of_best"], 1);
  }
  EXPECT_THAT(sizes, testing::ElementsAre(32, 64, 128, 256, 512, 1024)) << "up to the rollout";
  EXPECT_THAT(sizes, testing::Contains(json["proposed"].get<int>()));
}

}  // namespace
}  // namespace millrace
