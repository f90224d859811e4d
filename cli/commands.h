// The commands of the program. Each returns the exit code: 0 done, 2 a mistake in the command or the
// configuration, 3 the run failed, 130 stopped by the user after a checkpoint. Errors go to standard error,
// one line each.
#pragma once

#include <chrono>

#include "cli/args.h"

namespace millrace {

inline constexpr int kExitUsage = 2;
inline constexpr int kExitFailed = 3;
inline constexpr int kExitStopped = 130;

// `started`: when the process began, so that a run's summary can count from the command's start.
int RunTrain(const TrainCommand& command, std::chrono::steady_clock::time_point started);
int RunLearner(const LearnerCommand& command, std::chrono::steady_clock::time_point started);
int RunActor(const ActorCommand& command);
int RunStatusCommand(const StatusCommand& command);
int RunControlCommand(const ControlCommand& command);
int RunEval(const EvalCommand& command);
int RunEnvs(const EnvsCommand& command);
int RunPresets(const PresetsCommand& command);
int RunBenchCommand(const BenchCommand& command);
int RunTune(const TuneCommand& command);

// Prints `millrace: <message>` and returns the exit code that fits: 2 for what the user can correct, else 3.
int Report(const Status& status);

}  // namespace millrace
