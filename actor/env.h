// Env: a block of rows of one environment, stepped together so that a family can vectorize its step.
// Station: env_pool. Owner: the pool; one thread at a time steps a block. An Env holds only its dynamics: the
// pool applies time limits, action repeat, auto-reset in the same step, and wrappers.
//
// Adding an environment is one folder under actor/envs and one line in actor/envs/registry.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/spec.h"
#include "common/status.h"

namespace millrace {

// Where a block's observations go: pointers[i] is the first row of array i of the spec, stride_bytes[i]
// apart.
struct ObsOut {
  std::byte* const* pointers;
  const size_t* stride_bytes;

  template <class T>
  T* row(int array, int r) const {
    return reinterpret_cast<T*>(pointers[array] + static_cast<size_t>(r) * stride_bytes[array]);
  }
};

// One step of all rows of a block. Actions are already inside the bounds of a Box.
struct StepArgs {
  const void* actions;  // [rows, action.width()] i32 (discrete kinds) or f32 (Box), contiguous
  ObsOut obs;           // written: the observation after the step (of an ended episode: its final one)
  double* reward;       // [rows] written
  uint8_t* terminated;  // [rows] written, 0 or 1
  uint8_t* truncated;  // [rows] written, 0 or 1: the environment's own truncation; time limits are the pool's
  uint8_t* mask;       // [rows, action.outputs()] written when the spec has a mask, else null
};

class Env {
 public:
  virtual ~Env() = default;

  virtual const EnvSpec& spec() const = 0;
  virtual int rows() const = 0;

  // Starts a new episode in `row`. All its randomness must come from `episode_seed`, through Philox.
  // Writes the first observation (and mask, if any) of that row.
  virtual void ResetRow(int row, uint64_t episode_seed, const ObsOut& obs, uint8_t* mask) = 0;

  // Steps every row once, without resetting. A row whose episode has ended may be stepped again before its
  // reset (action repeat does that, and throws the result away): it must not fault.
  virtual void Step(const StepArgs& args) = 0;

  // One row's whole state as bytes, for exact resume and hand-over. The same bytes go back into any block.
  virtual size_t row_state_bytes() const = 0;
  virtual void SaveRow(int row, std::byte* out) const = 0;
  virtual void LoadRow(int row, const std::byte* in) = 0;
};

// The environment's own settings (env.params); a factory refuses what it does not know by name.
using EnvParams = std::map<std::string, std::string>;
using EnvFactory = std::function<StatusOr<std::unique_ptr<Env>>(int rows, const EnvParams& params)>;

// The registry is the table in actor/envs/registry.cc; thread-safe.
std::vector<std::string> EnvIds();  // sorted
// InvalidArgument with the nearest name when the id is unknown or a parameter is wrong.
StatusOr<std::unique_ptr<Env>> MakeEnv(const std::string& id, int rows, const EnvParams& params);

}  // namespace millrace
