// The command line by CLI11, whose headers are slow to compile: they are in no other file.
#include "cli/args.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/presets.h"
#include "common/config/config.h"
#include "common/config/scalar.h"
#include "common/nearest.h"

namespace millrace {
namespace {

// Usage lines that show what belongs together, which CLI11's own do not.
class Formatter : public CLI::Formatter {
 public:
  Formatter() {
    column_width(28);
    label("Positionals", "Arguments");
  }

  std::string make_usage(const CLI::App* app, std::string /*name*/) const override {
    static const std::map<std::string, std::string> usages = {
        {"millrace", "millrace COMMAND [ARGUMENTS]\n       millrace COMMAND --help"},
        {"train", "millrace train PRESET|FILE [--set KEY=VALUE]... [FLAGS]"},
        {"learner", "millrace learner PRESET|FILE --listen ADDR [--run DIR] [--set KEY=VALUE]... [FLAGS]"},
        {"actor", "millrace actor --learner ADDR [FLAGS]"},
        {"status", "millrace status ADDR [--watch] [--json]"},
        {"control",
         "millrace control ADDR checkpoint|pause|resume|drain|stop\n"
         "       millrace control ADDR set KEY=VALUE..."},
        {"eval", "millrace eval RUN [FLAGS]"},
        {"envs", "millrace envs [--json]"},
        {"presets", "millrace presets [--json]\n       millrace presets show NAME"},
        {"show", "millrace presets show NAME"},
        {"bench", "millrace bench [WORK]... [FLAGS]\n       millrace bench list"},
        {"tune", "millrace tune batch PRESET|FILE [--set KEY=VALUE]... [FLAGS]"},
        {"batch", "millrace tune batch PRESET|FILE [--set KEY=VALUE]... [FLAGS]"},
        {"version", "millrace version"},
    };
    return absl::StrCat("Usage: ", usages.at(app->get_name()), "\n");
  }
};

// The flags and values as typed; numbers are read by the same rules as in configuration files.
struct Raw {
  TrainCommand train;
  LearnerCommand learner;
  ActorCommand actor;
  StatusCommand status;
  ControlCommand control;
  EvalCommand eval;
  EnvsCommand envs;
  PresetsCommand presets;
  BenchCommand bench;
  TuneCommand tune;
  std::string seed, steps, threads, episodes, seconds, transport, action, sizes;
};

CLI::Option* Text(CLI::App* app, const std::string& name, std::string& value, const std::string& type,
                  const std::string& help) {
  return app->add_option(name, value, help)->type_name(type);
}

CLI::App* AddCommand(CLI::App* parent, const std::string& name, const std::string& summary) {
  CLI::App* app = parent->add_subcommand(name, summary);
  app->group("Commands");
  app->allow_extras();  // they are refused in CheckExtras, with the nearest name
  app->set_help_flag("-h,--help", "Print this help and exit");
  return app;
}

// A run's configuration.
void AddSource(CLI::App* app, TrainCommand& train) {
  Text(app, "PRESET|FILE", train.source, "", "A preset (`millrace presets` lists them) or a YAML file");
  app->add_option("--set", train.sets, "Override a setting, for example --set ppo.epochs=4; may be repeated")
      ->option_text("KEY=VALUE")
      ->allow_extra_args(false);
}

// What `train` and `learner` have in common.
void AddRunFlags(CLI::App* app, TrainCommand& train, Raw& raw) {
  AddSource(app, train);
  Text(app, "--seed", raw.seed, "N", "Seed of every random number (run.seed)");
  Text(app, "--steps", raw.steps, "N", "Environment steps of the run (run.steps)");
  Text(app, "--threads", raw.threads, "N",
       "Worker threads, 0 for all CPUs (run.threads); results do not change");
  app->add_flag("-q,--quiet", train.quiet, "No progress on the terminal");
}

void AddTrain(CLI::App* root, Raw& raw) {
  CLI::App* app =
      AddCommand(root, "train", "Train a policy until its steps are done or its target is reached");
  AddRunFlags(app, raw.train, raw);
  Text(app, "--run", raw.train.run_dir, "DIR", "The run's folder (run.dir); default: a new one under runs/");
  Text(app, "--resume", raw.train.resume, "DIR",
       "Go on with the run in this folder, from its latest good checkpoint");
}

void AddLearner(CLI::App* root, Raw& raw) {
  CLI::App* app = AddCommand(root, "learner", "Train by what actors send, which run elsewhere");
  AddRunFlags(app, raw.learner.train, raw);
  Text(app, "--listen", raw.learner.listen, "ADDR",
       "Where actors and others reach it, host:port; port 0 chooses one");
  Text(app, "--run", raw.learner.train.run_dir, "DIR",
       "The run's folder (run.dir); a run that is there goes on");
  Text(app, "--health-listen", raw.learner.health_listen, "ADDR",
       "A port that answers health checks alone, for probes that can't encrypt");
  app->add_flag("--insecure", raw.learner.insecure,
                "Allow an address that others can reach, without encryption");
}

void AddActor(CLI::App* root, Raw& raw) {
  CLI::App* app = AddCommand(root, "actor", "Run environments for a learner, which configures them");
  Text(app, "--learner", raw.actor.learner, "ADDR", "The learner's address, host:port");
  Text(app, "--threads", raw.threads, "N", "Worker threads; default: all CPUs");
  Text(app, "--name", raw.actor.name, "NAME",
       "A name of its own among the actors; default: of the host and the process");
  Text(app, "--transport", raw.transport, "HOW",
       "auto (default: shared memory on the learner's host), shm or grpc");
}

void AddAsking(CLI::App* root, Raw& raw) {
  CLI::App* status = AddCommand(root, "status", "Show what a learner is doing");
  Text(status, "ADDR", raw.status.learner, "", "The learner's address, host:port");
  status->add_flag("--watch", raw.status.watch, "Go on showing it, once a second");
  status->add_flag("--json", raw.status.json, "Print one JSON object; with --watch, one a line");

  CLI::App* control = AddCommand(root, "control", "Change what a learner is doing");
  Text(control, "ADDR", raw.control.learner, "", "The learner's address, host:port");
  Text(control, "ACTION", raw.action, "", "checkpoint, pause, resume, drain, stop or set");
  control
      ->add_option("SETTING", raw.control.settings,
                   "For `set`: KEY=VALUE, for example ppo.learning_rate=1e-4")
      ->type_name("");
  control->footer(
      "checkpoint  write one after the present update\n"
      "pause       begin no update, until resume\n"
      "drain       actors finish and leave, then the learner ends with a checkpoint\n"
      "stop        the learner ends with a checkpoint after the present update, and the actors with it\n"
      "set         change settings of the running run: ppo.learning_rate, ppo.entropy_coef,\n"
      "            ppo.clip_range, ppo.target_kl, ppo.max_grad_norm, learner.max_policy_lag, run.steps,\n"
      "            checkpoint.every");
}

void AddEval(CLI::App* root, Raw& raw) {
  CLI::App* app = AddCommand(root, "eval", "Evaluate a run's policy, deterministically");
  Text(app, "RUN", raw.eval.run, "", "The run's folder");
  Text(app, "--episodes", raw.episodes, "N", "Episodes; default: the run's eval.episodes");
  Text(app, "--seed", raw.seed, "N", "Seed of the episodes; default: the run's; never its training episodes");
  Text(app, "--checkpoint", raw.eval.checkpoint, "WHICH", "best (default), latest, or a checkpoint's file");
  app->add_flag("--json", raw.eval.json, "Print one JSON object");
}

void AddOthers(CLI::App* root, Raw& raw) {
  CLI::App* envs = AddCommand(root, "envs", "List the environments");
  envs->add_flag("--json", raw.envs.json, "Print a JSON list");

  CLI::App* presets = AddCommand(root, "presets", "List the presets, or show one");
  presets->add_flag("--json", raw.presets.json, "Print a JSON list");
  CLI::App* show = AddCommand(presets, "show", "Print a preset's YAML, to begin a file of your own with");
  Text(show, "NAME", raw.presets.show, "", "The preset's name");
  show->add_flag("--json", raw.presets.json, "Print one JSON object");

  CLI::App* bench =
      AddCommand(root, "bench", "Measure this machine's speed at a named work beside its floor");
  bench->add_option("WORK", raw.bench.works, "Works to measure, all when none is named; `list` lists them")
      ->type_name("");
  bench->add_flag("--json", raw.bench.json, "Print one JSON object a work");
  Text(bench, "--seconds", raw.seconds, "S", "Roughly how long each work is measured");
  Text(bench, "--threads", raw.threads, "N", "Worker threads, 0 for all CPUs");

  CLI::App* tune = AddCommand(root, "tune", "Measure which setting suits this machine");
  CLI::App* batch = AddCommand(tune, "batch", "Speed over batch sizes, and the size that it proposes");
  AddSource(batch, raw.tune.train);
  Text(batch, "--sizes", raw.sizes, "N,N,...",
       "Sizes to measure; default: powers of two around the configured one");
  Text(batch, "--seconds", raw.seconds, "S", "Roughly how long each size is measured; default: 1.5");
  Text(batch, "--threads", raw.threads, "N", "Worker threads, 0 for all CPUs (run.threads)");
  batch->add_flag("--json", raw.tune.json, "Print one JSON object");

  AddCommand(root, "version", "Print the version");
}

std::vector<std::string> CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(sub->get_name());
  }
  return names;
}

std::vector<std::string> FlagNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(absl::StrCat("--", name));
  }
  return names;
}

// "millrace presets show", as typed.
std::string FullName(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name()
                                     : absl::StrCat(FullName(*app.get_parent()), " ", app.get_name());
}

// "millrace train: what is wrong", and whose help to read unless the message itself says what to do.
Status Wrong(const CLI::App& app, const std::string& what) {
  const std::string help =
      absl::EndsWith(what, "?") ? "" : absl::StrCat("; see `", FullName(app), " --help`");
  return absl::InvalidArgumentError(absl::StrCat(FullName(app), ": ", what, help));
}

// CLI11 has two complaints left to it: a flag without its value, and one that stands there twice.
Status Mismatch(const CLI::App& app, const std::string& complaint) {
  const std::string flag = complaint.substr(0, complaint.find(':'));
  if (absl::StrContains(complaint, "missing")) return Wrong(app, absl::StrCat(flag, " needs a value"));
  return Wrong(app, absl::StrCat(flag, " may be given once only"));
}

Status UnknownFlag(const CLI::App& app, const std::string& argument) {
  const std::string flag = argument.substr(0, argument.find('='));
  if (app.get_parent() == nullptr) {
    return Wrong(app, absl::StrCat("unknown flag ", flag, " before the command; flags stand after it"));
  }
  return Wrong(app, absl::StrCat("unknown flag ", flag, DidYouMean(flag, FlagNames(app))));
}

Status UnknownCommand(const CLI::App& app, const std::string& name) {
  const std::vector<std::string> names = CommandNames(app);
  std::string hint = DidYouMean(name, names);
  if (FindPreset(name).ok()) {
    const std::string command = app.get_name() == "tune" ? "tune batch" : "train";
    hint = absl::StrCat("; did you mean `millrace ", command, " ", name, "`?");
  }
  return absl::InvalidArgumentError(absl::StrCat(FullName(app), ": no such command: ", Quoted(name), hint,
                                                 " (commands: ", absl::StrJoin(names, ", "), ")"));
}

// What no option took.
Status CheckExtras(const CLI::App& app) {
  std::vector<std::string> extras = app.remaining();
  extras.erase(std::remove(extras.begin(), extras.end(), "--"),
               extras.end());  // ends the flags, means nothing else
  for (const std::string& extra : extras) {
    if (extra.size() > 1 && extra[0] == '-') return UnknownFlag(app, extra);
  }
  if (extras.empty()) return absl::OkStatus();
  if (app.get_subcommands().empty() && !CommandNames(app).empty()) return UnknownCommand(app, extras[0]);
  return Wrong(app, absl::StrCat("one argument too many: ", Quoted(extras[0])));
}

template <class T>
Status Whole(const CLI::App& app, const char* flag, const std::string& text, uint64_t least,
             std::optional<T>& value, uint64_t most = std::numeric_limits<T>::max()) {
  if (app.count(flag) == 0) return absl::OkStatus();
  const StatusOr<absl::int128> whole = ParseWhole(text);
  if (!whole.ok()) return Wrong(app, absl::StrCat(flag, ": ", std::string(whole.status().message())));
  if (*whole < least || *whole > most) {
    return Wrong(app,
                 absl::StrCat(flag, ": ", text, " is out of range; must be between ", least, " and ", most));
  }
  value = static_cast<T>(*whole);
  return absl::OkStatus();
}

constexpr uint64_t kMaxThreads = 1024;        // as run.threads
constexpr uint64_t kMaxEpisodes = 1'000'000;  // as eval.episodes

Status RunNumbers(const CLI::App& app, const Raw& raw, TrainCommand& train) {
  MILL_RETURN_IF_ERROR(Whole(app, "--seed", raw.seed, 0, train.seed));
  MILL_RETURN_IF_ERROR(Whole(app, "--steps", raw.steps, 1, train.steps));
  return Whole(app, "--threads", raw.threads, 0, train.threads, kMaxThreads);
}

StatusOr<Command> FinishTrain(const CLI::App& app, Raw& raw) {
  TrainCommand& train = raw.train;
  if (train.source.empty() && train.resume.empty()) {
    return Wrong(app, "name a preset (`millrace presets` lists them) or a YAML file");
  }
  if (!train.resume.empty() && !(train.source.empty() && train.run_dir.empty())) {
    return Wrong(
        app,
        "--resume goes on in its own folder by its own configuration: no preset, file or --run beside it");
  }
  MILL_RETURN_IF_ERROR(RunNumbers(app, raw, train));
  return Command(std::move(train));
}

StatusOr<Command> FinishLearner(const CLI::App& app, Raw& raw) {
  LearnerCommand& learner = raw.learner;
  if (learner.train.source.empty() && learner.train.run_dir.empty()) {
    return Wrong(app, "name a preset (`millrace presets` lists them) or a YAML file");
  }
  if (learner.listen.empty()) {
    return Wrong(app, "--listen ADDR is missing: where actors reach it, for example 127.0.0.1:7070");
  }
  MILL_RETURN_IF_ERROR(RunNumbers(app, raw, learner.train));
  return Command(std::move(learner));
}

// The value of `names` that `text` is one of; for `what` see Wrong.
template <class T>
StatusOr<T> OneOf(const CLI::App& app, const std::string& what, const std::string& text,
                  const std::vector<std::pair<std::string, T>>& names) {
  std::vector<std::string> known;
  for (const auto& [name, value] : names) {
    if (name == text) return value;
    known.push_back(name);
  }
  std::string hint = DidYouMean(text, known);
  if (hint.empty()) hint = absl::StrCat("; one of ", absl::StrJoin(known, ", "));
  return Wrong(app, absl::StrCat(what, " ", Quoted(text), hint));
}

StatusOr<Command> FinishActor(const CLI::App& app, Raw& raw) {
  ActorCommand& actor = raw.actor;
  if (actor.learner.empty())
    return Wrong(app, "--learner ADDR is missing: the address that the learner prints");
  MILL_RETURN_IF_ERROR(Whole(app, "--threads", raw.threads, 0, actor.threads, kMaxThreads));
  if (app.count("--transport") == 0) return Command(std::move(actor));
  MILL_ASSIGN_OR_RETURN(actor.transport, OneOf<TransportChoice>(app, "--transport:", raw.transport,
                                                                {{"auto", TransportChoice::kAuto},
                                                                 {"shm", TransportChoice::kShm},
                                                                 {"grpc", TransportChoice::kGrpc}}));
  return Command(std::move(actor));
}

StatusOr<Command> FinishStatus(const CLI::App& app, Raw& raw) {
  if (raw.status.learner.empty()) return Wrong(app, "name the learner's address, for example 127.0.0.1:7070");
  return Command(std::move(raw.status));
}

StatusOr<Command> FinishControl(const CLI::App& app, Raw& raw) {
  using Action = ControlCommand::Action;
  ControlCommand& control = raw.control;
  if (control.learner.empty()) return Wrong(app, "name the learner's address, for example 127.0.0.1:7070");
  if (raw.action.empty()) return Wrong(app, "say what to do");
  MILL_ASSIGN_OR_RETURN(control.action, OneOf<Action>(app, "no such action:", raw.action,
                                                      {{"checkpoint", Action::kCheckpoint},
                                                       {"pause", Action::kPause},
                                                       {"resume", Action::kResume},
                                                       {"drain", Action::kDrain},
                                                       {"stop", Action::kStop},
                                                       {"set", Action::kSet}}));
  if ((control.action == Action::kSet) == control.settings.empty()) {
    return Wrong(app, control.settings.empty() ? "set needs one KEY=VALUE at least"
                                               : absl::StrCat("only `set` takes ", control.settings[0]));
  }
  return Command(std::move(control));
}

StatusOr<Command> FinishEval(const CLI::App& app, Raw& raw) {
  if (raw.eval.run.empty()) return Wrong(app, "name the run's folder");
  MILL_RETURN_IF_ERROR(Whole(app, "--episodes", raw.episodes, 1, raw.eval.episodes, kMaxEpisodes));
  MILL_RETURN_IF_ERROR(Whole(app, "--seed", raw.seed, 0, raw.eval.seed));
  return Command(std::move(raw.eval));
}

StatusOr<Command> FinishPresets(const CLI::App& app, Raw& raw) {
  for (const CLI::App* show : app.get_subcommands()) {
    MILL_RETURN_IF_ERROR(CheckExtras(*show));
    if (raw.presets.show.empty()) return Wrong(*show, "name a preset (`millrace presets` lists them)");
  }
  return Command(std::move(raw.presets));
}

// --seconds, where it is given.
Status Seconds(const CLI::App& app, const std::string& text, std::optional<double>& value) {
  if (app.count("--seconds") == 0) return absl::OkStatus();
  const StatusOr<double> seconds = ParseReal(text);
  if (!seconds.ok()) return Wrong(app, absl::StrCat("--seconds: ", std::string(seconds.status().message())));
  if (*seconds <= 0) {
    return Wrong(app, absl::StrCat("--seconds: ", text, " is out of range; must be above 0"));
  }
  value = *seconds;
  return absl::OkStatus();
}

StatusOr<Command> FinishBench(const CLI::App& app, Raw& raw) {
  BenchCommand& bench = raw.bench;
  MILL_RETURN_IF_ERROR(Whole(app, "--threads", raw.threads, 0, bench.threads, kMaxThreads));
  MILL_RETURN_IF_ERROR(Seconds(app, raw.seconds, bench.seconds));
  bench.list = std::find(bench.works.begin(), bench.works.end(), "list") != bench.works.end();
  if (bench.list && bench.works.size() > 1) return Wrong(app, "`list` stands alone");
  if (bench.list) bench.works.clear();
  return Command(std::move(bench));
}

Status Sizes(const CLI::App& app, const std::string& text, std::vector<uint32_t>& sizes) {
  for (const auto part : absl::StrSplit(text, ',')) {
    std::optional<uint32_t> size;
    MILL_RETURN_IF_ERROR(Whole(app, "--sizes", std::string(part), 1, size));
    sizes.push_back(*size);
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return absl::OkStatus();
}

StatusOr<Command> FinishTune(const CLI::App& tune, Raw& raw) {
  if (tune.get_subcommands().empty()) {
    return Wrong(tune, absl::StrCat("say what to tune: ", absl::StrJoin(CommandNames(tune), ", ")));
  }
  const CLI::App& app = *tune.get_subcommands()[0];
  MILL_RETURN_IF_ERROR(CheckExtras(app));
  if (raw.tune.train.source.empty()) {
    return Wrong(app, "name a preset (`millrace presets` lists them) or a YAML file");
  }
  MILL_RETURN_IF_ERROR(Whole(app, "--threads", raw.threads, 0, raw.tune.train.threads, kMaxThreads));
  std::optional<double> seconds;
  MILL_RETURN_IF_ERROR(Seconds(app, raw.seconds, seconds));
  raw.tune.seconds = seconds.value_or(raw.tune.seconds);
  if (app.count("--sizes") > 0) MILL_RETURN_IF_ERROR(Sizes(app, raw.sizes, raw.tune.sizes));
  return Command(std::move(raw.tune));
}

StatusOr<Command> Finish(const CLI::App& root, bool version, Raw& raw) {
  MILL_RETURN_IF_ERROR(CheckExtras(root));
  if (version) return Command(VersionCommand());
  const std::vector<CLI::App*> chosen = root.get_subcommands();
  if (chosen.empty()) {
    return Wrong(root, absl::StrCat("no command; one of ", absl::StrJoin(CommandNames(root), ", ")));
  }
  const CLI::App& app = *chosen[0];
  MILL_RETURN_IF_ERROR(CheckExtras(app));
  if (app.get_name() == "train") return FinishTrain(app, raw);
  if (app.get_name() == "learner") return FinishLearner(app, raw);
  if (app.get_name() == "actor") return FinishActor(app, raw);
  if (app.get_name() == "status") return FinishStatus(app, raw);
  if (app.get_name() == "control") return FinishControl(app, raw);
  if (app.get_name() == "eval") return FinishEval(app, raw);
  if (app.get_name() == "envs") return Command(raw.envs);
  if (app.get_name() == "presets") return FinishPresets(app, raw);
  if (app.get_name() == "bench") return FinishBench(app, raw);
  if (app.get_name() == "tune") return FinishTune(app, raw);
  return Command(VersionCommand());
}

// The command that the user was in, for messages about a flag's value.
const CLI::App& Deepest(const CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  return chosen.empty() ? app : Deepest(*chosen[0]);
}

}  // namespace

std::vector<std::string> TrainCommand::Overrides() const {
  std::vector<std::string> all = sets;
  if (seed) all.push_back(absl::StrCat("run.seed=", *seed));
  if (steps) all.push_back(absl::StrCat("run.steps=", *steps));
  if (threads) all.push_back(absl::StrCat("run.threads=", *threads));
  if (!run_dir.empty()) all.push_back(absl::StrCat("run.dir=", YamlText(run_dir)));
  return all;
}

StatusOr<Command> ParseArgs(int argc, const char* const* argv) {
  CLI::App root("Millrace trains reinforcement-learning policies.", "millrace");
  root.formatter(std::make_shared<Formatter>());
  root.set_help_flag("-h,--help", "Print this help and exit");
  root.allow_extras();
  root.require_subcommand(0, 1);
  bool version = false;
  root.add_flag("--version", version, "Print the version and exit");
  Raw raw;
  AddTrain(&root, raw);
  AddLearner(&root, raw);
  AddActor(&root, raw);
  AddAsking(&root, raw);
  AddEval(&root, raw);
  AddOthers(&root, raw);

  std::vector<std::string> arguments;  // CLI11 takes them last first
  for (int i = argc - 1; i >= 1; --i) arguments.emplace_back(argv[i]);
  try {
    root.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    return Command(HelpCommand{root.help()});
  } catch (const CLI::ArgumentMismatch& e) {
    return Mismatch(Deepest(root), e.what());
  } catch (const CLI::ParseError& e) {
    return Wrong(Deepest(root), e.what());
  }
  const std::vector<std::string> extras = root.remaining();
  if (!extras.empty() && extras[0] == "help") return Command(HelpCommand{root.help()});
  return Finish(root, version, raw);
}

}  // namespace millrace
