#include "actor/envs/null/null.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "actor/envs/params.h"
#include "kernels/ops/philox.h"

namespace millrace {
namespace {

constexpr uint64_t kWindows = 1024;  // places in the pool where an observation may begin
constexpr uint64_t kStride = 97;     // from one step's to the next; odd, so that all windows are visited

struct Settings {
  EnvSpec spec;
  uint64_t episode_length = 0;
  std::chrono::microseconds wait{0};
};

class Null final : public Env {
 public:
  Null(int rows, Settings settings) : settings_(std::move(settings)), states_(rows) {
    const ArraySpec& array = settings_.spec.observations[0];
    element_bytes_ = SizeOf(array.dtype);
    obs_bytes_ = array.bytes();
    const size_t elements = kWindows + static_cast<size_t>(array.elements());
    pool_.resize(elements * element_bytes_);
    for (size_t i = 0; i < elements; ++i) {
      const uint32_t word = PhiloxAt(0, Purpose::kEnv, 0, i).v[0];
      const float value = 2.0f * UniformFloat(word) - 1.0f;
      std::memcpy(pool_.data() + i * element_bytes_,
                  array.dtype == DType::kU8 ? static_cast<const void*>(&word) : &value, element_bytes_);
    }
  }

  const EnvSpec& spec() const override { return settings_.spec; }
  int rows() const override { return static_cast<int>(states_.size()); }

  void ResetRow(int row, uint64_t episode_seed, const ObsOut& obs, uint8_t*) override {
    states_[row] = {PhiloxAt(episode_seed, Purpose::kEnv, 0, 0).v[0] % kWindows, 0};
    Observe(row, obs);
  }

  void Step(const StepArgs& args) override {
    const uint64_t last = settings_.episode_length == 0 ? ~uint64_t{0} : settings_.episode_length;
    for (int row = 0; row < rows(); ++row) {
      NullState& state = states_[row];
      state.window += kStride;
      args.terminated[row] = ++state.steps >= last;
      Observe(row, args.obs);
    }
    std::fill_n(args.reward, rows(), 1.0);
    std::memset(args.truncated, 0, states_.size());
    if (settings_.wait.count() > 0) std::this_thread::sleep_for(settings_.wait);
  }

  size_t row_state_bytes() const override { return sizeof(NullState); }
  void SaveRow(int row, std::byte* out) const override { std::memcpy(out, &states_[row], sizeof(NullState)); }
  void LoadRow(int row, const std::byte* in) override { std::memcpy(&states_[row], in, sizeof(NullState)); }

 private:
  void Observe(int row, const ObsOut& obs) const {
    const size_t begin = states_[row].window % kWindows * element_bytes_;
    std::memcpy(obs.row<std::byte>(0, row), pool_.data() + begin, obs_bytes_);
  }

  Settings settings_;
  size_t element_bytes_ = 0, obs_bytes_ = 0;
  std::vector<std::byte> pool_;  // [kWindows + elements] f32 in [-1, 1) or u8
  std::vector<NullState> states_;
};

}  // namespace

StatusOr<std::unique_ptr<Env>> MakeNull(int rows, const EnvParams& params) {
  ParamReader reader("Null", params);
  Settings settings;
  EnvSpec& spec = settings.spec;
  spec.id = "Null";
  spec.summary = "observations of any shape at next to no cost, for benchmarks";
  const std::vector<int> shape = reader.Ints("obs", {118}, 1, 1 << 20);
  int64_t elements = 1;
  for (int dim : shape) elements = std::min(elements * dim, int64_t{1} << 30);
  if (elements > 1 << 24) reader.Fail("obs", "more than 16,777,216 values a row");
  spec.observations = {{"obs", reader.Bool("u8", false) ? DType::kU8 : DType::kF32, shape}};
  if (reader.has("box") && reader.has("actions")) reader.Fail("box", "excludes env.params.actions");
  const int64_t actions = reader.Int("actions", 3, 1, 1 << 16);
  const int64_t box = reader.Int("box", 0, 1, 1 << 16);
  if (box > 0) {
    spec.action.kind = ActionSpec::Kind::kBox;
    spec.action.low.assign(static_cast<size_t>(box), -1.0f);
    spec.action.high.assign(static_cast<size_t>(box), 1.0f);
  } else {
    spec.action.kind = ActionSpec::Kind::kDiscrete;
    spec.action.nvec = {static_cast<int32_t>(actions)};
  }
  settings.episode_length = static_cast<uint64_t>(reader.Int("episode_length", 1000, 0, int64_t{1} << 40));
  settings.wait = std::chrono::microseconds(reader.Int("wait_us", 0, 0, 1'000'000));
  MILL_RETURN_IF_ERROR(reader.status());
  return std::unique_ptr<Env>(std::make_unique<Null>(rows, std::move(settings)));
}

}  // namespace millrace
