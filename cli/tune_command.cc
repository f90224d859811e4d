// `millrace tune batch`: loads the configuration, chooses the sizes, measures and prints.
#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "actor/row_group.h"
#include "cli/commands.h"
#include "cli/presets.h"
#include "cli/trainer.h"
#include "cli/tune.h"
#include "cli/tune_measure.h"
#include "common/config/config.h"
#include "common/human.h"
#include "common/resource_usage.h"
#include "kernels/core/cpu_kernel_set.h"

namespace millrace {
namespace {

// The sizes asked for, each of which the configuration must allow; or of those around the configured one,
// the ones that it allows.
StatusOr<std::vector<uint32_t>> ChooseSizes(const TuneCommand& command, const RunOptions& options) {
  const bool asked = !command.sizes.empty();
  std::vector<uint32_t> sizes;
  for (const uint32_t size : asked ? command.sizes : SizesAround(BatchSize(options))) {
    const Status valid = Validate(WithBatchSize(options, size));
    if (valid.ok()) {
      sizes.push_back(size);
    } else if (asked) {
      return absl::InvalidArgumentError(absl::StrCat("--sizes ", size, ": ", std::string(valid.message())));
    }
  }
  return sizes;
}

// Of these sizes, those that the configuration allows.
std::vector<uint32_t> Allowed(const RunOptions& options, std::initializer_list<uint64_t> sizes) {
  std::vector<uint32_t> allowed;
  for (const uint64_t size : sizes) {
    const auto batch = static_cast<uint32_t>(size);
    if (size > 0 && size <= UINT32_MAX && Validate(WithBatchSize(options, batch)).ok())
      allowed.push_back(batch);
  }
  return allowed;
}

Status TuneBatch(const TuneCommand& command) {
  const std::string& source = command.train.source;
  MILL_ASSIGN_OR_RETURN(const RunOptions options, LoadPresetOrFile(source, command.train.Overrides()));
  MILL_ASSIGN_OR_RETURN(const std::vector<uint32_t> sizes, ChooseSizes(command, options));
  // A wrong environment is told before anything else is.
  MILL_ASSIGN_OR_RETURN(const auto group, RowGroup::Make(options.env, options.run.seed, 0, 1));
  MILL_RETURN_IF_ERROR(ValidateForEnv(options, group->spec()));
  ThreadPool threads(static_cast<int>(options.run.threads > 0 ? options.run.threads : AvailableCpus()));
  BatchTuning tuning{source,
                     BatchSetting(options),
                     BatchSize(options),
                     threads.threads(),
                     CpuKernelSet(),
                     {},
                     Allowed(options, {sizes.front() / 4, sizes.front() / 2}),
                     Allowed(options, {uint64_t{sizes.back()} * 2, uint64_t{sizes.back()} * 4})};
  if (!command.json) {
    std::printf("%s: %s at %zu sizes, %d threads, %s; about %s\n\n", source.c_str(), tuning.setting.c_str(),
                sizes.size(), tuning.threads, tuning.cpu_kernels.c_str(),
                FormatDuration(command.seconds * static_cast<double>(sizes.size())).c_str());
    std::fflush(stdout);
  }
  MILL_ASSIGN_OR_RETURN(tuning.sizes, MeasureSizes(options, sizes, command.seconds, threads));
  std::fputs(command.json ? (ToJson(tuning) + "\n").c_str() : ToText(tuning).c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace

int RunTune(const TuneCommand& command) {
  const Status status = TuneBatch(command);
  return status.ok() ? 0 : Report(status);
}

}  // namespace millrace
