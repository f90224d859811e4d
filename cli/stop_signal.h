// SIGINT, SIGTERM and SIGHUP ask a run to stop after a checkpoint; a second one ends the process at once with
// code 130.
#pragma once

namespace millrace {

void InstallStopSignals();
bool StopRequested();

}  // namespace millrace
