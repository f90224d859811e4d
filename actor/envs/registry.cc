// The table of environments: one line each.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "actor/env.h"
#include "actor/envs/breakout/breakout.h"
#include "actor/envs/classic_control/classic_control.h"
#include "actor/envs/ledger/ledger.h"
#include "actor/envs/null/null.h"
#include "common/nearest.h"

namespace millrace {
namespace {

using Factory = StatusOr<std::unique_ptr<Env>> (*)(int rows, const EnvParams& params);

const std::map<std::string, Factory>& Table() {
  static const auto& table = *new std::map<std::string, Factory>{
      {"Acrobot-v1", MakeAcrobot},
      {"Breakout", MakeBreakout},
      {"CartPole-v1", MakeCartPole},
      {"Ledger", MakeLedger},
      {"MountainCar-v0", MakeMountainCar},
      {"MountainCarContinuous-v0", MakeMountainCarContinuous},
      {"Null", MakeNull},
      {"Pendulum-v1", MakePendulum},
  };
  return table;
}

}  // namespace

std::vector<std::string> EnvIds() {
  std::vector<std::string> ids;
  for (const auto& entry : Table()) ids.push_back(entry.first);
  return ids;
}

StatusOr<std::unique_ptr<Env>> MakeEnv(const std::string& id, int rows, const EnvParams& params) {
  const auto found = Table().find(id);
  if (found == Table().end()) {
    const std::string near = DidYouMean(id, EnvIds());
    return absl::InvalidArgumentError(
        absl::StrCat("env.id: unknown environment '", id, "'",
                     near.empty() ? absl::StrCat("; there are ", absl::StrJoin(EnvIds(), ", ")) : near));
  }
  if (rows < 1) return absl::InvalidArgumentError(absl::StrCat("env.rows: must be at least 1, not ", rows));
  return found->second(rows, params);
}

}  // namespace millrace
