#include "cli/args.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "common/config/config.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

StatusOr<Command> Parse(const std::vector<std::string>& arguments) {
  std::vector<const char*> argv = {"/usr/bin/millrace"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  return ParseArgs(static_cast<int>(argv.size()), argv.data());
}

// The command as its type, which the test knows.
template <class T>
T As(const std::vector<std::string>& arguments) {
  const StatusOr<Command> command = Parse(arguments);
  EXPECT_TRUE(command.ok()) << command.status();
  if (!command.ok() || !std::holds_alternative<T>(*command)) {
    ADD_FAILURE() << "another command than expected";
    return T();
  }
  return std::get<T>(*command);
}

TEST(Args, TrainTakesEveryFlag) {
  const auto train = As<TrainCommand>({"train", "--set", "ppo.epochs=4", "cartpole", "--seed",
                                       "18446744073709551615", "--steps=1e6", "--run", "some where/[1]",
                                       "--threads", "2", "--quiet", "--set", "policy.hidden=[128,128]"});
  EXPECT_EQ(train.source, "cartpole");
  EXPECT_THAT(train.sets, ElementsAre("ppo.epochs=4", "policy.hidden=[128,128]"));
  EXPECT_EQ(train.seed, 18446744073709551615u);
  EXPECT_EQ(train.steps, 1'000'000u);
  EXPECT_EQ(train.threads, 2u);
  EXPECT_EQ(train.run_dir, "some where/[1]");
  EXPECT_TRUE(train.quiet);
  EXPECT_THAT(train.resume, "");
}

TEST(Args, TrainByDefaultChangesNothing) {
  const auto train = As<TrainCommand>({"train", "my.yaml"});
  EXPECT_TRUE(train.Overrides().empty());
  EXPECT_FALSE(train.quiet);
  EXPECT_EQ(As<TrainCommand>({"train", "--resume", "runs/a"}).resume, "runs/a");
  EXPECT_EQ(As<TrainCommand>({"train", "--", "--odd.yaml"}).source, "--odd.yaml");
}

// The flags win over --set, and odd paths survive the way through YAML.
TEST(Args, OverridesLoad) {
  const auto train = As<TrainCommand>({"train", "x", "--set", "run.seed=1", "--seed", "7", "--steps", "5",
                                       "--threads", "3", "--run", "a: [b] #c\\\"d"});
  const auto options = LoadConfig("env: {id: Null}", "x", train.Overrides());
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->run.seed, 7u);
  EXPECT_EQ(options->run.steps, 5u);
  EXPECT_EQ(options->run.threads, 3u);
  EXPECT_EQ(options->run.dir, "a: [b] #c\\\"d");
}

TEST(Args, TheOtherCommands) {
  const auto eval = As<EvalCommand>({"eval", "runs/a", "--episodes", "10", "--seed", "0", "--json"});
  EXPECT_EQ(eval.run, "runs/a");
  EXPECT_EQ(eval.episodes, 10u);
  EXPECT_EQ(eval.seed, 0u);
  EXPECT_TRUE(eval.json);
  EXPECT_EQ(eval.checkpoint, "best");
  EXPECT_EQ(As<EvalCommand>({"eval", "--checkpoint", "latest", "a"}).checkpoint, "latest");

  EXPECT_TRUE(As<EnvsCommand>({"envs", "--json"}).json);
  EXPECT_FALSE(As<EnvsCommand>({"envs"}).json);

  EXPECT_EQ(As<PresetsCommand>({"presets"}).show, "");
  EXPECT_EQ(As<PresetsCommand>({"presets", "show", "cartpole"}).show, "cartpole");
  EXPECT_TRUE(As<PresetsCommand>({"presets", "--json", "show", "cartpole"}).json);
  EXPECT_TRUE(As<PresetsCommand>({"presets", "show", "cartpole", "--json"}).json);

  const auto bench =
      As<BenchCommand>({"bench", "ppo-light", "--seconds", "0.5", "env:CartPole-v1", "--threads", "1"});
  EXPECT_THAT(bench.works, ElementsAre("ppo-light", "env:CartPole-v1"));
  EXPECT_EQ(bench.seconds, 0.5);
  EXPECT_EQ(bench.threads, 1u);
  EXPECT_FALSE(bench.list || bench.json);
  const auto list = As<BenchCommand>({"bench", "list", "--json"});
  EXPECT_TRUE(list.list && list.json);
  EXPECT_TRUE(list.works.empty());
  EXPECT_THAT(As<BenchCommand>({"bench", "train"}).works, ElementsAre("train"));

  const auto tune = As<TuneCommand>({"tune", "batch", "pendulum-sac", "--sizes", "64,16,1e3,16", "--seconds",
                                     "0.5", "--threads", "1", "--set", "policy.hidden=[8,8]", "--json"});
  EXPECT_EQ(tune.train.source, "pendulum-sac");
  EXPECT_THAT(tune.sizes, ElementsAre(16u, 64u, 1000u));
  EXPECT_EQ(tune.seconds, 0.5);
  EXPECT_THAT(tune.train.Overrides(), ElementsAre("policy.hidden=[8,8]", "run.threads=1"));
  EXPECT_TRUE(tune.json);
  const auto plain = As<TuneCommand>({"tune", "batch", "cartpole"});
  EXPECT_TRUE(plain.sizes.empty() && !plain.json && plain.train.Overrides().empty());

  As<VersionCommand>({"version"});
  As<VersionCommand>({"--version"});
}

TEST(Args, TheCommandsOfTheService) {
  const auto learner =
      As<LearnerCommand>({"learner", "cartpole", "--listen", "127.0.0.1:0", "--run", "r", "--health-listen",
                          "[::1]:1", "--insecure", "--seed", "3", "--set", "mode=async", "-q"});
  EXPECT_EQ(learner.train.source, "cartpole");
  EXPECT_EQ(learner.listen, "127.0.0.1:0");
  EXPECT_EQ(learner.health_listen, "[::1]:1");
  EXPECT_TRUE(learner.insecure && learner.train.quiet);
  EXPECT_EQ(learner.train.run_dir, "r");
  EXPECT_EQ(learner.train.seed, 3u);
  EXPECT_THAT(learner.train.sets, ElementsAre("mode=async"));
  EXPECT_EQ(As<LearnerCommand>({"learner", "--listen", "x:1", "--run", "r"}).train.source, "");

  const auto actor = As<ActorCommand>(
      {"actor", "--learner", "host:7070", "--threads", "2", "--name", "a", "--transport", "grpc"});
  EXPECT_EQ(actor.learner, "host:7070");
  EXPECT_EQ(actor.threads, 2u);
  EXPECT_EQ(actor.name, "a");
  EXPECT_EQ(actor.transport, TransportChoice::kGrpc);
  EXPECT_EQ(As<ActorCommand>({"actor", "--learner", "x:1"}).transport, TransportChoice::kAuto);

  const auto status = As<StatusCommand>({"status", "host:7070", "--watch", "--json"});
  EXPECT_EQ(status.learner, "host:7070");
  EXPECT_TRUE(status.watch && status.json);

  const auto set = As<ControlCommand>({"control", "host:7070", "set", "a.b=1", "c.d=2"});
  EXPECT_EQ(set.learner, "host:7070");
  EXPECT_EQ(set.action, ControlCommand::Action::kSet);
  EXPECT_THAT(set.settings, ElementsAre("a.b=1", "c.d=2"));
  EXPECT_EQ(As<ControlCommand>({"control", "x:1", "drain"}).action, ControlCommand::Action::kDrain);
}

TEST(Args, HelpAtEveryLevelNamesEveryFlag) {
  const std::string root = As<HelpCommand>({"--help"}).text;
  for (const char* name : {"train", "learner", "actor", "status", "control", "eval", "envs", "presets",
                           "bench", "tune", "version"}) {
    EXPECT_THAT(root, HasSubstr(name));
    EXPECT_THAT(As<HelpCommand>({name, "--help"}).text, HasSubstr(std::string("Usage: millrace ") + name));
    EXPECT_EQ(As<HelpCommand>({name, "-h"}).text, As<HelpCommand>({"help", name}).text);
  }
  EXPECT_EQ(As<HelpCommand>({"help"}).text, root);
  const std::string train = As<HelpCommand>({"train", "x", "--help"}).text;
  for (const char* flag : {"PRESET|FILE", "--set KEY=VALUE", "--seed N", "--steps N", "--run DIR",
                           "--resume DIR", "--threads N", "-q,--quiet"}) {
    EXPECT_THAT(train, HasSubstr(flag));
  }
  EXPECT_THAT(As<HelpCommand>({"presets", "show", "--help"}).text,
              HasSubstr("Usage: millrace presets show NAME"));
  std::vector<std::string> texts = {root, train};
  texts.push_back(As<HelpCommand>({"tune", "batch", "--help"}).text);
  EXPECT_THAT(texts.back(), HasSubstr("Usage: millrace tune batch PRESET|FILE"));
  for (const char* flag : {"--set KEY=VALUE", "--sizes N,N,...", "--seconds S", "--threads N", "--json"}) {
    EXPECT_THAT(texts.back(), HasSubstr(flag));
  }
  for (const char* name : {"learner", "actor", "status", "control"}) {
    texts.push_back(As<HelpCommand>({name, "--help"}).text);
  }
  for (const std::string& text : texts) {
    EXPECT_THAT(text, Not(HasSubstr("TEXT")));
    std::string line;
    for (std::istringstream lines(text); std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  }
}

struct Wrong {
  std::vector<std::string> arguments;
  const char* message;
};

const Wrong kWrong[] = {
    {{},
     "millrace: no command; one of train, learner, actor, status, control, eval, envs, presets, bench, "
     "tune, version; see `millrace --help`"},
    {{"trian", "cartpole"},
     "millrace: no such command: \"trian\"; did you mean train? (commands: train, learner, actor, "
     "status, control, eval, envs, presets, bench, tune, version)"},
    {{"cartpole"},
     "millrace: no such command: \"cartpole\"; did you mean `millrace train cartpole`? (commands: train, "
     "learner, actor, status, control, eval, envs, presets, bench, tune, version)"},
    {{""},
     "millrace: no such command: \"\" (commands: train, learner, actor, status, control, eval, envs, "
     "presets, "
     "bench, tune, version)"},
    {{"--quiet", "train", "x"},
     "millrace: unknown flag --quiet before the command; flags stand after it; see `millrace --help`"},
    {{"train"},
     "millrace train: name a preset (`millrace presets` lists them) or a YAML file; see `millrace train "
     "--help`"},
    {{"train", "a", "b"}, "millrace train: one argument too many: \"b\"; see `millrace train --help`"},
    {{"train", "a", "eval", "b"},
     "millrace train: one argument too many: \"eval\"; see `millrace train --help`"},
    {{"train", "a", "--sede", "5"}, "millrace train: unknown flag --sede; did you mean --seed?"},
    {{"train", "--sede=5"}, "millrace train: unknown flag --sede; did you mean --seed?"},
    {{"train", "a", "--zzzzzzzz"}, "millrace train: unknown flag --zzzzzzzz; see `millrace train --help`"},
    {{"train", "a", "-x"}, "millrace train: unknown flag -x; see `millrace train --help`"},
    {{"train", "a", "--seed"}, "millrace train: --seed needs a value; see `millrace train --help`"},
    {{"train", "a", "--set"}, "millrace train: --set needs a value; see `millrace train --help`"},
    {{"train", "a", "--seed", "1", "--seed", "2"},
     "millrace train: --seed may be given once only; see `millrace train --help`"},
    {{"train", "a", "--seed", "x"},
     "millrace train: --seed: expected a whole number, got \"x\"; see `millrace train --help`"},
    {{"train", "a", "--seed", ""},
     "millrace train: --seed: expected a whole number, got \"\"; see `millrace train --help`"},
    {{"train", "a", "--seed", "-1"},
     "millrace train: --seed: -1 is out of range; must be between 0 and 18446744073709551615; see `millrace "
     "train "
     "--help`"},
    {{"train", "a", "--threads", "4294967296"},
     "millrace train: --threads: 4294967296 is out of range; must be between 0 and 1024; see `millrace "
     "train "
     "--help`"},
    {{"train", "a", "--steps", "0"},
     "millrace train: --steps: 0 is out of range; must be between 1 and 18446744073709551615; see `millrace "
     "train "
     "--help`"},
    {{"learner", "cartpole"},
     "millrace learner: --listen ADDR is missing: where actors reach it, for example 127.0.0.1:7070; see "
     "`millrace learner --help`"},
    {{"learner", "--listen", "x:1"},
     "millrace learner: name a preset (`millrace presets` lists them) or a YAML file; see `millrace learner "
     "--help`"},
    {{"learner", "a", "--listen", "x:1", "--resume", "r"},
     "millrace learner: unknown flag --resume; see `millrace learner --help`"},
    {{"actor"},
     "millrace actor: --learner ADDR is missing: the address that the learner prints; see `millrace actor "
     "--help`"},
    {{"actor", "--learner", "x:1", "--transport", "smh"},
     "millrace actor: --transport: \"smh\"; did you mean shm?"},
    {{"actor", "--learner", "x:1", "--transport", "carrier-pigeon"},
     "millrace actor: --transport: \"carrier-pigeon\"; one of auto, shm, grpc; see `millrace actor --help`"},
    {{"status"},
     "millrace status: name the learner's address, for example 127.0.0.1:7070; see `millrace status --help`"},
    {{"control", "x:1"}, "millrace control: say what to do; see `millrace control --help`"},
    {{"control", "x:1", "puase"}, "millrace control: no such action: \"puase\"; did you mean pause?"},
    {{"control", "x:1", "set"},
     "millrace control: set needs one KEY=VALUE at least; see `millrace control --help`"},
    {{"control", "x:1", "stop", "now"},
     "millrace control: only `set` takes now; see `millrace control --help`"},
    {{"eval"}, "millrace eval: name the run's folder; see `millrace eval --help`"},
    {{"eval", "a", "--episodes", "0"},
     "millrace eval: --episodes: 0 is out of range; must be between 1 and 1000000; see `millrace eval "
     "--help`"},
    {{"eval", "a", "--jsn"}, "millrace eval: unknown flag --jsn; did you mean --json?"},
    {{"envs", "x"}, "millrace envs: one argument too many: \"x\"; see `millrace envs --help`"},
    {{"presets", "shwo", "a"},
     "millrace presets: no such command: \"shwo\"; did you mean show? (commands: show)"},
    {{"presets", "show"},
     "millrace presets show: name a preset (`millrace presets` lists them); see `millrace presets show "
     "--help`"},
    {{"presets", "show", "a", "b"},
     "millrace presets show: one argument too many: \"b\"; see `millrace presets show --help`"},
    {{"bench", "list", "x"}, "millrace bench: `list` stands alone; see `millrace bench --help`"},
    {{"bench", "--seconds", "soon"},
     "millrace bench: --seconds: expected a number, got \"soon\"; see `millrace bench --help`"},
    {{"bench", "--seconds", "0"},
     "millrace bench: --seconds: 0 is out of range; must be above 0; see `millrace bench --help`"},
    {{"tune"}, "millrace tune: say what to tune: batch; see `millrace tune --help`"},
    {{"tune", "pendulum-sac"},
     "millrace tune: no such command: \"pendulum-sac\"; did you mean `millrace tune batch pendulum-sac`? "
     "(commands: batch)"},
    {{"tune", "batch"},
     "millrace tune batch: name a preset (`millrace presets` lists them) or a YAML file; see `millrace tune "
     "batch --help`"},
    {{"tune", "batch", "a", "b"},
     "millrace tune batch: one argument too many: \"b\"; see `millrace tune batch --help`"},
    {{"tune", "batch", "a", "--size", "8"},
     "millrace tune batch: unknown flag --size; did you mean --sizes?"},
    {{"tune", "batch", "a", "--sizes", "8,,16"},
     "millrace tune batch: --sizes: expected a whole number, got \"\"; see `millrace tune batch --help`"},
    {{"tune", "batch", "a", "--sizes", "0"},
     "millrace tune batch: --sizes: 0 is out of range; must be between 1 and 4294967295; see `millrace tune "
     "batch --help`"},
    {{"tune", "batch", "a", "--seconds", "-1"},
     "millrace tune batch: --seconds: -1 is out of range; must be above 0; see `millrace tune batch --help`"},
    {{"version", "x"}, "millrace version: one argument too many: \"x\"; see `millrace version --help`"},
};

TEST(Args, WrongUsageIsToldInOneLine) {
  for (const Wrong& wrong : kWrong) {
    const StatusOr<Command> command = Parse(wrong.arguments);
    ASSERT_FALSE(command.ok()) << wrong.message;
    EXPECT_EQ(command.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(command.status().message()), wrong.message);
  }
}

}  // namespace
}  // namespace millrace
