#include "common/resource_usage.h"

#include <sched.h>

#include <cstring>
#include <filesystem>
#include <fstream>
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

TEST(AvailableCpus, IsWithinTheAffinity) {
  cpu_set_t set;
  CPU_ZERO(&set);
  ASSERT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  EXPECT_GE(AvailableCpus(), 1);
  EXPECT_LE(AvailableCpus(), CPU_COUNT(&set));
}

}  // namespace
}  // namespace millrace
