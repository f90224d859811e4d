// What the classic control tasks share: a block whose state lies in columns padded to whole vectors, stepped
// by the task's own loop over all lanes. Padding lanes run like any other, so no loop has a scalar remainder.
// Station: env_pool. Owner: whoever made it (MakeEnv); one thread at a time.
//
// A task is a struct of static members:
//   State                     plain doubles only, one column each
//   kObs                      observation values a row
//   Spec()                    its EnvSpec
//   Initial(seed)             the first state of an episode
//   Observe(state, obs)       one row's observation, [kObs] f32
//   Step(lanes)               one step of all lanes
#pragma once

#include <array>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "actor/env.h"
#include "actor/envs/params.h"

namespace millrace::classic {

// Lanes come in multiples of this: whole vectors of doubles, floats and of what a compiler unrolls.
inline constexpr int kLaneMultiple = 16;

// One step's columns, all [n]; they never overlap.
template <int kStateColumns, int kObsColumns>
struct Lanes {
  int n;
  std::array<double*, kStateColumns> state;  // read and written
  const double* action;                      // the discrete action, or the f32 value of a Box
  std::array<float*, kObsColumns> obs;       // written
  double* reward;                            // written
  uint64_t* terminated;                      // written, 0 or 1
  std::array<double*, 2> scratch;            // free to use
};

template <class Task>
class Block final : public Env {
  using State = typename Task::State;
  static_assert(std::is_trivially_copyable_v<State> && sizeof(State) % sizeof(double) == 0);
  static constexpr int kState = sizeof(State) / sizeof(double);
  static constexpr int kObs = Task::kObs;

 public:
  using LanesOf = Lanes<kState, kObs>;

  explicit Block(int rows)
      : spec_(Task::Spec()),
        rows_(rows),
        lanes_((rows + kLaneMultiple - 1) / kLaneMultiple * kLaneMultiple),
        doubles_(static_cast<size_t>(lanes_) * (kState + 4)),
        floats_(static_cast<size_t>(lanes_) * kObs),
        terminated_(static_cast<size_t>(lanes_)) {
    double* next = doubles_.data();
    const auto take = [&next, this] { return std::exchange(next, next + lanes_); };
    for (double*& column : state_) column = take();
    for (double*& column : scratch_) column = take();
    action_ = take();
    reward_ = take();
  }

  const EnvSpec& spec() const override { return spec_; }
  int rows() const override { return rows_; }

  void ResetRow(int row, uint64_t episode_seed, const ObsOut& obs, uint8_t*) override {
    const State state = Task::Initial(episode_seed);
    Put(row, state);
    Task::Observe(state, obs.row<float>(0, row));
  }

  void Step(const StepArgs& args) override {
    ReadActions(args.actions);
    LanesOf lanes{lanes_, state_, action_, {}, reward_, terminated_.data(), scratch_};
    for (int j = 0; j < kObs; ++j) lanes.obs[j] = floats_.data() + static_cast<size_t>(j) * lanes_;
    Task::Step(lanes);
    for (int row = rows_; row < lanes_; ++row) Put(row, State{});  // padding must not drift away
    WriteRows(lanes, args);
  }

  size_t row_state_bytes() const override { return sizeof(State); }
  void SaveRow(int row, std::byte* out) const override {
    for (int j = 0; j < kState; ++j) std::memcpy(out + j * sizeof(double), state_[j] + row, sizeof(double));
  }
  void LoadRow(int row, const std::byte* in) override {
    for (int j = 0; j < kState; ++j) std::memcpy(state_[j] + row, in + j * sizeof(double), sizeof(double));
  }

 private:
  void Put(int row, const State& state) { LoadRow(row, reinterpret_cast<const std::byte*>(&state)); }

  void ReadActions(const void* actions) {
    if (spec_.action.box()) {
      const float* values = static_cast<const float*>(actions);
      for (int row = 0; row < rows_; ++row) action_[row] = static_cast<double>(values[row]);
    } else {
      const int32_t* values = static_cast<const int32_t*>(actions);
      for (int row = 0; row < rows_; ++row) action_[row] = static_cast<double>(values[row]);
    }
  }

  void WriteRows(const LanesOf& lanes, const StepArgs& args) const {
    for (int row = 0; row < rows_; ++row) {
      float* obs = args.obs.row<float>(0, row);
      for (int j = 0; j < kObs; ++j) obs[j] = lanes.obs[j][row];
    }
    for (int row = 0; row < rows_; ++row) args.terminated[row] = static_cast<uint8_t>(lanes.terminated[row]);
    std::memcpy(args.reward, lanes.reward, static_cast<size_t>(rows_) * sizeof(double));
    std::memset(args.truncated, 0, static_cast<size_t>(rows_));
  }

  EnvSpec spec_;
  int rows_, lanes_;
  std::vector<double> doubles_;  // [kState + 4, lanes] f64, cut into the columns below
  std::vector<float> floats_;    // [kObs, lanes] f32
  std::vector<uint64_t> terminated_;
  std::array<double*, kState> state_{};
  std::array<double*, 2> scratch_{};
  double* action_ = nullptr;
  double* reward_ = nullptr;
};

// The tasks have no settings, and refuse any.
template <class Task>
StatusOr<std::unique_ptr<Env>> MakeBlock(int rows, const EnvParams& params) {
  MILL_RETURN_IF_ERROR(ParamReader(Task::Spec().id, params).status());
  return std::unique_ptr<Env>(std::make_unique<Block<Task>>(rows));
}

}  // namespace millrace::classic
