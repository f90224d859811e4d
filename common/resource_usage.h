// What the process uses of the machine, and what it may use: CPUs and memory. Linux: /proc, getrusage,
// cgroups. Threads: the functions, any; a CpuShare belongs to one. Only what asks cgroups allocates.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/status.h"

namespace millrace {

struct ResourceUsage {
  uint64_t resident_bytes = 0;       // 0 where /proc does not tell
  uint64_t peak_resident_bytes = 0;  // the most since the process began
  double cpu_seconds = 0;            // user and system, all threads, since the process began
};
ResourceUsage ReadResourceUsage();

// The share of the usable CPUs that the process kept busy between two calls.
class CpuShare {
 public:
  explicit CpuShare(int cpus) : cpus_(cpus) {}
  // 0 to about 1; 0 at the first call and where no time has passed.
  double Update(double wall_seconds, double cpu_seconds);

 private:
  int cpus_;
  bool started_ = false;
  double wall_seconds_ = 0, cpu_seconds_ = 0;
};

// CPUs that this process may use: those of its affinity, or fewer where a cgroup's quota allows less (rounded
// up). At least 1. What `run.threads: 0` means.
int AvailableCpus();

// The smallest CPU quota over the process's cgroup and those above it, version 1 and 2, rounded up to whole
// CPUs; 0 where there is none. `root` is where /proc and /sys lie; tests give a folder of their own.
int CgroupCpuLimit(const std::string& root = "");

// Bytes that the process can still touch before the machine, or a cgroup above the process, runs out: the
// least of MemAvailable and of what each group's limit, version 1 and 2, leaves. Page cache that can be given
// up counts as free. The largest number where nothing is known.
uint64_t AvailableMemory(const std::string& root = "");

// Before something large is allocated: ResourceExhausted with both figures where it does not fit. `what` is
// the subject and its verb ("the replay takes"), `remedy` ends the sentence.
Status CheckMemory(std::string_view what, uint64_t bytes, uint64_t available, std::string_view remedy);

}  // namespace millrace
