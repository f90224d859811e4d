#include "actor/envs/ledger/ledger.h"

#include <cstring>
#include <utility>
#include <vector>

#include "actor/envs/params.h"

namespace millrace {
namespace {

class Ledger final : public Env {
 public:
  Ledger(int rows, EnvSpec spec, uint64_t episode_length)
      : spec_(std::move(spec)), last_(episode_length), states_(static_cast<size_t>(rows)) {}

  const EnvSpec& spec() const override { return spec_; }
  int rows() const override { return static_cast<int>(states_.size()); }

  void ResetRow(int row, uint64_t, const ObsOut& obs, uint8_t*) override {
    states_[static_cast<size_t>(row)].steps = 0;
    Observe(row, obs);
  }

  void Step(const StepArgs& args) override {
    for (int row = 0; row < rows(); ++row) {
      LedgerState& state = states_[static_cast<size_t>(row)];
      ++state.steps;
      args.reward[row] = static_cast<double>(++state.transitions);
      args.terminated[row] = last_ > 0 && state.steps >= last_;
      args.truncated[row] = 0;
      Observe(row, args.obs);
    }
  }

  size_t row_state_bytes() const override { return sizeof(LedgerState); }
  void SaveRow(int row, std::byte* out) const override {
    std::memcpy(out, &states_[static_cast<size_t>(row)], sizeof(LedgerState));
  }
  void LoadRow(int row, const std::byte* in) override {
    std::memcpy(&states_[static_cast<size_t>(row)], in, sizeof(LedgerState));
  }

 private:
  void Observe(int row, const ObsOut& obs) const {
    float* to = obs.row<float>(0, row);
    to[0] = static_cast<float>(states_[static_cast<size_t>(row)].transitions % 1024) / 1024.0f;
    to[1] = 1.0f;
  }

  EnvSpec spec_;
  uint64_t last_;  // step of an episode; 0: none
  std::vector<LedgerState> states_;
};

}  // namespace

StatusOr<std::unique_ptr<Env>> MakeLedger(int rows, const EnvParams& params) {
  ParamReader reader("Ledger", params);
  EnvSpec spec;
  spec.id = "Ledger";
  spec.summary = "rewards number each row's transitions, for tests that nothing is lost or taken twice";
  spec.observations = {{"count", DType::kF32, {2}}};
  spec.action.kind = ActionSpec::Kind::kDiscrete;
  spec.action.nvec = {2};
  const auto length = static_cast<uint64_t>(reader.Int("episode_length", 50, 0, int64_t{1} << 40));
  MILL_RETURN_IF_ERROR(reader.status());
  return std::unique_ptr<Env>(std::make_unique<Ledger>(rows, std::move(spec), length));
}

}  // namespace millrace
