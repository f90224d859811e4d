// For tests: a block of an environment with the memory that its steps write. Owner: the test; one thread.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "actor/env.h"
#include "gtest/gtest.h"

namespace millrace::testing_support {

class TestBlock {
 public:
  TestBlock(const std::string& id, int rows, const EnvParams& params = {}) {
    auto made = MakeEnv(id, rows, params);
    if (!made.ok()) {
      ADD_FAILURE() << made.status();
      std::abort();
    }
    env = *std::move(made);
    obs_bytes = env->spec().observations[0].bytes();
    observations.resize(rows * obs_bytes);
    pointer_ = observations.data();
    reward.resize(rows);
    terminated.resize(rows);
    truncated.resize(rows);
  }

  const EnvSpec& spec() const { return env->spec(); }
  ObsOut out() const { return {&pointer_, &obs_bytes}; }
  void Reset(int row, uint64_t seed) { env->ResetRow(row, seed, out(), nullptr); }
  void Step(const void* actions) {
    env->Step({actions, out(), reward.data(), terminated.data(), truncated.data(), nullptr});
  }
  // One row's observation.
  const float* obs(int row) const {
    return reinterpret_cast<const float*>(observations.data() + row * obs_bytes);
  }
  std::vector<std::byte> obs_of(int row) const {
    return {observations.begin() + row * obs_bytes, observations.begin() + (row + 1) * obs_bytes};
  }
  std::vector<std::byte> Save(int row) const {
    std::vector<std::byte> bytes(env->row_state_bytes());
    env->SaveRow(row, bytes.data());
    return bytes;
  }
  template <class State>
  State SaveAs(int row) const {
    EXPECT_EQ(env->row_state_bytes(), sizeof(State));
    State state;
    env->SaveRow(row, reinterpret_cast<std::byte*>(&state));
    return state;
  }
  template <class State>
  void LoadFrom(int row, const State& state) {
    EXPECT_EQ(env->row_state_bytes(), sizeof(State));
    env->LoadRow(row, reinterpret_cast<const std::byte*>(&state));
  }

  std::unique_ptr<Env> env;
  size_t obs_bytes = 0;
  std::vector<std::byte> observations;  // [rows, obs_bytes]
  std::vector<double> reward;           // [rows]
  std::vector<uint8_t> terminated, truncated;

 private:
  std::byte* pointer_ = nullptr;
};

}  // namespace millrace::testing_support
