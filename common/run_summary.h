// What is said about a run when it ends: a text for the person at the terminal, and summary.json for
// programs. Owner: the command that trains (cli). Pure functions from data to text, any thread.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "common/curve.h"

namespace millrace {

// NaN means not known: left out of the text, null in the JSON.
struct RunSummary {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

  enum class End : uint8_t { kDone, kTargetReached, kStopped, kFailed };
  End end = End::kDone;
  std::string error;  // of End::kFailed

  std::string name;  // of the preset or file
  std::string env, algorithm;
  uint64_t seed = 0;
  int threads = 0;

  uint64_t steps = 0, updates = 0, updates_skipped = 0;
  double seconds = 0;           // of training, resumed parts included
  double steps_per_second = 0;  // over all of it
  double peak_resident_mb = kUnknown;

  uint64_t episodes = 0;          // that ended in the run
  uint64_t window = 0;            // the last ones, over which the means are
  double return_mean = kUnknown;  // over the window
  double length_mean = kUnknown;
  double eval_return_mean = kUnknown;  // of the last evaluation
  double eval_return_std = kUnknown;
  uint64_t eval_episodes = 0;
  double best_return = kUnknown;  // of all evaluations; what best.safetensors holds

  double target_return = kUnknown;  // run.stop_at_return, where it is set
  bool target_reached = false;
  uint64_t target_steps = 0;  // when it was first reached
  double target_seconds = 0;

  std::string run_dir;
  std::string checkpoint;         // the last one; empty where none was written
  std::string best_checkpoint;    // empty where there is none
  std::vector<std::string> next;  // commands to go on with
};

// "done", "target_reached", "stopped", "failed": as in summary.json.
std::string NameOf(RunSummary::End end);

// Several lines; with the return over the steps as a picture where `curve` has two points or more.
std::string SummaryText(const RunSummary& summary, std::span<const CurvePoint> curve, bool unicode);
// One object, indented, with a newline at its end.
std::string SummaryJson(const RunSummary& summary);

}  // namespace millrace
