// RunStatus to the message of proto/millrace/v1/status.proto and back. Station: status_service and its
// clients. Owner: none, these are functions; any thread.
#pragma once

#include "common/run_status.h"
#include "millrace/v1/status.pb.h"

namespace millrace {

void ToProto(const RunStatus& from, v1::RunStatus& to);
RunStatus FromProto(const v1::RunStatus& from);

}  // namespace millrace
