#include "common/messages.h"

namespace millrace {

std::string_view TransportName(TransportKind kind) {
  switch (kind) {
    case TransportKind::kInProcess:
      return "in_process";
    case TransportKind::kSharedMemory:
      return "shared_memory";
    case TransportKind::kGrpc:
      return "grpc";
  }
  return "";
}

}  // namespace millrace
