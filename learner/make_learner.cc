#include "learner/make_learner.h"

#include "absl/strings/str_cat.h"
#include "learner/ppo.h"
#include "learner/sac.h"

namespace millrace {

StatusOr<std::unique_ptr<Learner>> MakeLearner(const RunOptions& options, const EnvSpec& spec,
                                               const std::vector<int>& group_rows, ThreadPool& threads) {
  if (options.algorithm == "ppo") return PpoLearner::Make(options, spec, group_rows, threads);
  if (options.algorithm == "sac") return SacLearner::Make(options, spec, group_rows, threads);
  return absl::UnimplementedError(absl::StrCat("algorithm: ", options.algorithm, " has no learner here"));
}

}  // namespace millrace
