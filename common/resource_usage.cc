#include "common/resource_usage.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <sstream>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "common/text.h"

namespace millrace {
namespace {

uint64_t ReadResidentBytes() {
  // "size resident shared ..." in pages. Read by hand: streams allocate, and this runs at every update.
  char text[128];
  const int fd = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t n = ::read(fd, text, sizeof(text));
  ::close(fd);
  const std::string_view line(text, n > 0 ? static_cast<size_t>(n) : 0);
  const size_t space = line.find(' ');
  uint64_t pages = 0;
  if (space != line.npos) std::from_chars(line.data() + space + 1, line.data() + line.size(), pages);
  return pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

double Seconds(const timeval& t) {
  return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
}

// The file's first line; empty where there is none.
std::string FirstLine(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

int RoundUp(int64_t quota, int64_t period) {
  if (quota <= 0 || period <= 0) return 0;
  return static_cast<int>(std::min<int64_t>((quota + period - 1) / period, 1 << 20));
}

// Version 2: "max 100000" or "150000 100000".
int LimitV2(const std::string& folder) {
  std::istringstream in(FirstLine(folder + "/cpu.max"));
  int64_t quota = 0, period = 0;
  return in >> quota >> period ? RoundUp(quota, period) : 0;
}

// Version 1: -1 is no limit.
int LimitV1(const std::string& folder) {
  std::istringstream quota_in(FirstLine(folder + "/cpu.cfs_quota_us"));
  std::istringstream period_in(FirstLine(folder + "/cpu.cfs_period_us"));
  int64_t quota = 0, period = 0;
  return quota_in >> quota && period_in >> period ? RoundUp(quota, period) : 0;
}

int Smaller(int a, int b) {
  return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b);
}

// Calls visit(folder) for `path` below `mount` and all folders above it. Inside a container the path may be
// the host's and not exist here; then the mount itself is the container's group.
template <typename Visit>
void VisitUpwards(const std::string& mount, std::string path, Visit visit) {
  visit(mount);
  while (!path.empty() && path != "/") {
    visit(mount + path);
    path.resize(path.rfind('/') == path.npos ? 0 : path.rfind('/'));
  }
}

// All groups that bound this process, with the controller's name for version 1: v1(folder) and v2(folder).
template <typename V1, typename V2>
void VisitCgroups(const std::string& root, const std::string& controller, V1 v1, V2 v2) {
  std::ifstream groups(root + "/proc/self/cgroup");
  // "0::/path" for version 2, "4:cpu,cpuacct:/path" for version 1.
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      for (const char* mount : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) {
        VisitUpwards(root + mount, path, v2);
      }
    } else if (Cat(",", controllers, ",").find(Cat(",", controller, ",")) != std::string::npos) {
      // Mounted under the list of its controllers, with a link for each; the link may be missing in a
      // container.
      for (const std::string& name : {controller, controllers}) {
        VisitUpwards(Cat(root, "/sys/fs/cgroup/", name), path, v1);
        if (controllers == controller) break;
      }
    }
  }
}

// The number behind `key` in a file of lines "key number"; 0 where it is missing.
uint64_t NumberOf(const std::string& path, std::string_view key) {
  std::ifstream in(path);
  std::string name;
  for (uint64_t value = 0; in >> name; in.ignore(std::numeric_limits<std::streamsize>::max(), '\n')) {
    if (name == key) return in >> value ? value : 0;
  }
  return 0;
}

// What a group's limit leaves; the largest number where there is no limit.
uint64_t MemoryLeft(const std::string& limit_file, const std::string& used_file, uint64_t reclaimable) {
  uint64_t limit = 0, used = 0;
  std::istringstream limit_in(FirstLine(limit_file)), used_in(FirstLine(used_file));
  if (!(limit_in >> limit) || !(used_in >> used)) return std::numeric_limits<uint64_t>::max();
  used -= std::min(used, reclaimable);
  return limit - std::min(limit, used);
}

}  // namespace

ResourceUsage ReadResourceUsage() {
  ResourceUsage usage;
  usage.resident_bytes = ReadResidentBytes();
  rusage self{};
  if (::getrusage(RUSAGE_SELF, &self) == 0) {
    usage.peak_resident_bytes = static_cast<uint64_t>(self.ru_maxrss) * 1024;
    usage.cpu_seconds = Seconds(self.ru_utime) + Seconds(self.ru_stime);
  }
  return usage;
}

double CpuShare::Update(double wall_seconds, double cpu_seconds) {
  const double wall = wall_seconds - wall_seconds_;
  const double cpu = cpu_seconds - cpu_seconds_;
  const bool measured = started_ && wall > 0;
  started_ = true;
  wall_seconds_ = wall_seconds;
  cpu_seconds_ = cpu_seconds;
  return measured ? cpu / (wall * cpus_) : 0.0;
}

int CgroupCpuLimit(const std::string& root) {
  int smallest = 0;
  VisitCgroups(
      root, "cpu", [&](const std::string& folder) { smallest = Smaller(smallest, LimitV1(folder)); },
      [&](const std::string& folder) { smallest = Smaller(smallest, LimitV2(folder)); });
  return smallest;
}

uint64_t AvailableMemory(const std::string& root) {
  constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();
  const uint64_t kib = NumberOf(root + "/proc/meminfo", "MemAvailable:");
  uint64_t least = kib == 0 ? kUnknown : kib * 1024;
  VisitCgroups(
      root, "memory",
      [&](const std::string& folder) {
        const uint64_t cache = NumberOf(folder + "/memory.stat", "total_inactive_file");
        least = std::min(
            least, MemoryLeft(folder + "/memory.limit_in_bytes", folder + "/memory.usage_in_bytes", cache));
      },
      [&](const std::string& folder) {
        const uint64_t cache = NumberOf(folder + "/memory.stat", "inactive_file");
        least = std::min(least, MemoryLeft(folder + "/memory.max", folder + "/memory.current", cache));
      });
  return least;
}

Status CheckMemory(std::string_view what, uint64_t bytes, uint64_t available, std::string_view remedy) {
  if (bytes <= available) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      Cat(what, " ", bytes, " bytes and ", available, " are available; ", remedy));
}

int AvailableCpus() {
  int cpus = static_cast<int>(std::thread::hardware_concurrency());
  // Sized at run time: cpu_set_t ends at 1024 CPUs.
  for (size_t bits = 1024; bits <= (1 << 16); bits *= 2) {
    std::vector<cpu_set_t> set(bits / (8 * sizeof(cpu_set_t)));
    if (::sched_getaffinity(0, set.size() * sizeof(cpu_set_t), set.data()) == 0) {
      cpus = CPU_COUNT_S(set.size() * sizeof(cpu_set_t), set.data());
      break;
    }
  }
  return std::max(1, Smaller(cpus, CgroupCpuLimit()));
}

}  // namespace millrace
