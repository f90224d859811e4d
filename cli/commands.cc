#include "cli/commands.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "actor/env.h"
#include "actor/row_group.h"
#include "cli/bench.h"
#include "cli/evaluate.h"
#include "cli/presets.h"
#include "cli/run_state.h"
#include "cli/trainer.h"
#include "common/config/config.h"
#include "common/file_system.h"
#include "common/resource_usage.h"
#include "learner/make_learner.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

std::string Describe(const ArraySpec& array) {
  const char* type = array.dtype == DType::kF32 ? "f32" : array.dtype == DType::kU8 ? "u8" : "i32";
  return absl::StrCat(array.name, " ", type, "[", absl::StrJoin(array.shape, ","), "]");
}

std::string Describe(const ActionSpec& action) {
  switch (action.kind) {
    case ActionSpec::Kind::kDiscrete:
      return absl::StrCat("Discrete(", action.nvec[0], ")");
    case ActionSpec::Kind::kMultiDiscrete:
      return absl::StrCat("MultiDiscrete(", absl::StrJoin(action.nvec, ","), ")");
    case ActionSpec::Kind::kBox:
      return absl::StrFormat("Box(%d, %g..%g)", action.width(), action.low[0], action.high[0]);
  }
  return "";
}

std::string Describe(const std::vector<ArraySpec>& arrays) {
  return absl::StrJoin(arrays, " ",
                       [](std::string* out, const ArraySpec& a) { absl::StrAppend(out, Describe(a)); });
}

struct Evaluated {
  EvalResult result;
  std::string checkpoint;
  uint64_t update = 0;
};

StatusOr<Evaluated> EvaluateRun(const EvalCommand& command) {
  PosixFileSystem fs;
  std::vector<SkippedCheckpoint> skipped;
  const absl::Cleanup report = [&skipped] {
    for (const SkippedCheckpoint& s : skipped) std::fprintf(stderr, "skipped %s\n", s.reason.c_str());
  };
  MILL_ASSIGN_OR_RETURN(const Checkpoint checkpoint,
                        OpenCheckpoint(fs, command.run, command.checkpoint, &skipped));
  const auto config = checkpoint.content.metadata.find("config");
  if (config == checkpoint.content.metadata.end()) {
    return absl::InvalidArgumentError(absl::StrCat(checkpoint.path, ": no configuration in its metadata"));
  }
  MILL_ASSIGN_OR_RETURN(const RunOptions options, ParseConfig(config->second));
  ThreadPool threads(AvailableCpus());
  RunOptions small = options;
  small.env.rows = 1;
  small.replay.file.clear();  // nothing is stored
  small.replay.capacity =
      std::max(options.sac.batch_size, options.sac.batch_max) + options.replay.n_step + 4096;
  small.replay.min_size = 1;
  small.checkpoint.replay = false;
  MILL_ASSIGN_OR_RETURN(const auto group, RowGroup::Make(small.env, 1, 0, 1));
  MILL_ASSIGN_OR_RETURN(const auto learner, MakeLearner(small, group->spec(), {1}, threads));
  MILL_RETURN_IF_ERROR(RestoreWeights(checkpoint, *learner));
  Evaluated evaluated;
  MILL_ASSIGN_OR_RETURN(evaluated.result,
                        Evaluate(options.env, learner->policy(),
                                 static_cast<int>(command.episodes.value_or(options.eval.episodes)),
                                 command.seed.value_or(options.run.seed), threads));
  evaluated.checkpoint = checkpoint.path;
  evaluated.update = checkpoint.update;
  return evaluated;
}

}  // namespace

int Report(const Status& status) {
  std::fprintf(stderr, "millrace: %s\n", std::string(status.message()).c_str());
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAborted:
      return kExitUsage;
    default:
      return kExitFailed;
  }
}

int RunEval(const EvalCommand& command) {
  const StatusOr<Evaluated> evaluated = EvaluateRun(command);
  if (!evaluated.ok()) return Report(evaluated.status());
  const EvalResult& r = evaluated->result;
  if (command.json) {
    const Json json = {{"return_mean", r.return_mean},        {"return_std", r.return_std},
                       {"return_min", r.return_min},          {"return_max", r.return_max},
                       {"episodes", r.returns.size()},        {"length_mean", r.length_mean},
                       {"checkpoint", evaluated->checkpoint}, {"update", evaluated->update}};
    std::printf("%s\n", json.dump().c_str());
  } else {
    std::printf("return %.2f +- %.2f (%.2f to %.2f) over %zu episodes of %.1f steps, from %s\n",
                r.return_mean, r.return_std, r.return_min, r.return_max, r.returns.size(), r.length_mean,
                evaluated->checkpoint.c_str());
  }
  return 0;
}

int RunEnvs(const EnvsCommand& command) {
  Json list = Json::array();
  for (const std::string& id : EnvIds()) {
    const StatusOr<std::unique_ptr<Env>> env = MakeEnv(id, 1, {});
    if (!env.ok()) return Report(env.status());
    const EnvSpec& spec = (*env)->spec();
    if (command.json) {
      list.push_back({{"id", id},
                      {"observations", Describe(spec.observations)},
                      {"action", Describe(spec.action)},
                      {"action_mask", spec.action_mask},
                      {"max_episode_steps", spec.max_episode_steps},
                      {"summary", spec.summary}});
    } else {
      std::printf("%-26s %-20s %-20s %s\n", id.c_str(), Describe(spec.observations).c_str(),
                  Describe(spec.action).c_str(), spec.summary.c_str());
    }
  }
  if (command.json) std::printf("%s\n", list.dump().c_str());
  return 0;
}

int RunPresets(const PresetsCommand& command) {
  if (!command.show.empty()) {
    const StatusOr<Preset> preset = FindPreset(command.show);
    if (!preset.ok()) return Report(preset.status());
    if (command.json) {
      const Json json = {{"name", preset->name}, {"summary", preset->summary}, {"text", preset->text}};
      std::printf("%s\n", json.dump().c_str());
    } else {
      std::fputs(preset->text.c_str(), stdout);
    }
    return 0;
  }
  Json list = Json::array();
  for (const Preset& preset : Presets()) {
    if (command.json) {
      list.push_back({{"name", preset.name}, {"summary", preset.summary}});
    } else {
      std::printf("%-24s %s\n", preset.name.c_str(), preset.summary.c_str());
    }
  }
  if (command.json) std::printf("%s\n", list.dump().c_str());
  return 0;
}

int RunBenchCommand(const BenchCommand& command) {
  const std::vector<BenchWork> known = BenchWorks();
  if (command.list) {
    for (const BenchWork& work : known) std::printf("%-26s %s\n", work.name.c_str(), work.summary.c_str());
    return 0;
  }
  std::vector<std::string> works = command.works;
  if (works.empty()) {
    for (const BenchWork& work : known) works.push_back(work.name);
  }
  // `transport` is all of the works that begin with it.
  for (size_t i = 0; i < works.size(); ++i) {
    if (works[i] != "transport") continue;
    works.erase(works.begin() + static_cast<std::ptrdiff_t>(i));
    for (const BenchWork& work : known) {
      if (absl::StartsWith(work.name, "transport:"))
        works.insert(works.begin() + static_cast<std::ptrdiff_t>(i++), work.name);
    }
    --i;
  }
  BenchOptions options;
  if (command.seconds) options.seconds = *command.seconds;
  if (command.threads) options.threads = *command.threads;
  for (const std::string& work : works) {
    const StatusOr<BenchResult> result = RunBench(work, options);
    if (!result.ok()) return Report(result.status());
    std::printf("%s", command.json ? (ToJson(*result) + "\n").c_str() : ToText(*result).c_str());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace millrace
