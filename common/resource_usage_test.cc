#include "common/resource_usage.h"

#include <sched.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <vector>

#include "common/testing/temp_dir.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

TEST(ResourceUsage, SeesMemoryThatIsTouched) {
  constexpr size_t kBytes = 64 << 20;
  const ResourceUsage before = ReadResourceUsage();
  ASSERT_GT(before.resident_bytes, 0u);
  EXPECT_GE(before.peak_resident_bytes, before.resident_bytes / 2);
  auto block = std::make_unique<char[]>(kBytes);
  std::memset(block.get(), 1, kBytes);
  asm volatile("" : : "r"(block.get()) : "memory");  // a compiler may leave out what nobody reads
  const ResourceUsage during = ReadResourceUsage();
  EXPECT_GT(during.resident_bytes, before.resident_bytes + kBytes / 2);
  EXPECT_GE(during.peak_resident_bytes, during.resident_bytes / 2);
  EXPECT_GE(during.cpu_seconds, before.cpu_seconds);
}

TEST(CpuShare, IsOfTheIntervalAndOfAllCpus) {
  CpuShare share(4);
  EXPECT_EQ(share.Update(10.0, 3.0), 0.0);
  EXPECT_DOUBLE_EQ(share.Update(12.0, 7.0), 0.5);
  EXPECT_EQ(share.Update(12.0, 8.0), 0.0);
  EXPECT_DOUBLE_EQ(share.Update(13.0, 12.0), 1.0);
}

class CgroupTest : public ::testing::Test {
 protected:
  void Put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_.path() + path).parent_path());
    std::ofstream(root_.path() + path) << text << "\n";
  }
  int Limit() { return CgroupCpuLimit(root_.path()); }
  TempDir root_;
};

TEST_F(CgroupTest, NoneWithoutFiles) {
  EXPECT_EQ(Limit(), 0);
  Put("/proc/self/cgroup", "0::/a\nbroken\n:\n4:memory:/a");
  EXPECT_EQ(Limit(), 0);
}

TEST_F(CgroupTest, Version2) {
  Put("/proc/self/cgroup", "0::/a/b");
  Put("/sys/fs/cgroup/a/b/cpu.max", "max 100000");
  EXPECT_EQ(Limit(), 0);
  Put("/sys/fs/cgroup/a/cpu.max", "350000 100000");
  EXPECT_EQ(Limit(), 4) << "a group above, rounded up";
  Put("/sys/fs/cgroup/a/b/cpu.max", "50000 100000");
  EXPECT_EQ(Limit(), 1);
  Put("/sys/fs/cgroup/a/b/cpu.max", "nonsense");
  EXPECT_EQ(Limit(), 4);
}

TEST_F(CgroupTest, Version1) {
  Put("/proc/self/cgroup", "5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n0::/docker/x");
  Put("/sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "-1");
  Put("/sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000");
  EXPECT_EQ(Limit(), 0);
  Put("/sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "200000");
  EXPECT_EQ(Limit(), 2);
}

// In a container the path of /proc/self/cgroup is the host's, and the mount is the container's own group.
TEST_F(CgroupTest, Container) {
  Put("/proc/self/cgroup", "4:cpu,cpuacct:/docker/unseen");
  Put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000");
  Put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  EXPECT_EQ(Limit(), 2);
}

TEST_F(CgroupTest, MemoryIsTheMachinesWhereNoGroupHasALimit) {
  EXPECT_EQ(AvailableMemory(root_.path()), std::numeric_limits<uint64_t>::max()) << "nothing is known";
  Put("/proc/meminfo", "MemTotal:  9000 kB\nMemFree: 10 kB\nMemAvailable:   2000 kB\nBuffers: 1 kB");
  EXPECT_EQ(AvailableMemory(root_.path()), 2000u * 1024);
  Put("/proc/self/cgroup", "0::/a\n4:memory:/a");
  Put("/sys/fs/cgroup/a/memory.max", "max");
  Put("/sys/fs/cgroup/a/memory.current", "5000");
  Put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  Put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "5000");
  EXPECT_EQ(AvailableMemory(root_.path()), 2000u * 1024);
}

TEST_F(CgroupTest, MemoryVersion2) {
  Put("/proc/meminfo", "MemAvailable: 2000 kB");
  Put("/proc/self/cgroup", "0::/a/b");
  Put("/sys/fs/cgroup/a/memory.max", "100000");
  Put("/sys/fs/cgroup/a/memory.current", "70000");
  EXPECT_EQ(AvailableMemory(root_.path()), 30000u);
  Put("/sys/fs/cgroup/a/memory.stat", "file 60000\ninactive_file 25000\nactive_file 1");
  EXPECT_EQ(AvailableMemory(root_.path()), 55000u) << "cache can be given up";
  Put("/sys/fs/cgroup/a/memory.current", "170000");
  EXPECT_EQ(AvailableMemory(root_.path()), 0u);
}

TEST_F(CgroupTest, MemoryVersion1) {
  Put("/proc/meminfo", "MemAvailable: 2000 kB");
  Put("/proc/self/cgroup", "5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n0::/");
  Put("/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "100000");
  Put("/sys/fs/cgroup/memory/docker/x/memory.usage_in_bytes", "99000");
  Put("/sys/fs/cgroup/memory/docker/x/memory.stat", "inactive_file 7\ntotal_inactive_file 500");
  EXPECT_EQ(AvailableMemory(root_.path()), 1500u);
}

TEST(AvailableMemory, IsAFigureOfThisMachine) {
  const uint64_t before = AvailableMemory();
  ASSERT_GT(before, 0u);
  EXPECT_LT(before, uint64_t{1} << 50);
}

TEST(AvailableCpus, IsWithinTheAffinity) {
  cpu_set_t set;
  CPU_ZERO(&set);
  ASSERT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  EXPECT_GE(AvailableCpus(), 1);
  EXPECT_LE(AvailableCpus(), CPU_COUNT(&set));
}

}  // namespace
}  // namespace millrace
