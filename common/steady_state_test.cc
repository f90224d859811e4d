// What runs at every update allocates nothing: metrics, events, progress, the curve and the look at
// resources.
#include <memory>
#include <string>

#include "common/curve.h"
#include "common/metrics.h"
#include "common/progress.h"
#include "common/resource_usage.h"
#include "common/tensorboard.h"
#include "common/testing/counting_new.h"
#include "common/testing/temp_dir.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

// Rows whose numbers print at many lengths.
MetricsRow RowOf(uint64_t update) {
  MetricsRow row;
  for (const MetricsField& field : kMetricsFields) {
    const double value = static_cast<double>(update) * 1234.56789;
    if (field.real != nullptr) row.*field.real = update % 7 == 0 ? MetricsRow::kUnknown : value / 1e3 - 1e5;
    if (field.count != nullptr) row.*field.count = static_cast<uint64_t>(value);
  }
  return row;
}

// The allocations of updates 100 to 1000.
template <typename F>
uint64_t Counted(const F& update) {
  for (uint64_t i = 0; i < 100; ++i) update(i);
  const uint64_t before = allocations_of_this_thread;
  for (uint64_t i = 100; i < 1000; ++i) update(i);
  return allocations_of_this_thread - before;
}

class SteadyState : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!kCountsAllocations) GTEST_SKIP() << "allocations are not counted in this build";
  }
};

TEST_F(SteadyState, TheCounterCounts) {
  EXPECT_EQ(Counted([](uint64_t) { delete std::make_unique<int>(1).release(); }), 900u);
}

TEST_F(SteadyState, Metrics) {
  TempDir dir;
  PosixFileSystem fs;
  auto writer = MetricsWriter::Open(fs, dir.File("metrics.jsonl"), 0);
  ASSERT_TRUE(writer.ok());
  EXPECT_EQ(Counted([&](uint64_t i) { ASSERT_TRUE(writer->Append(RowOf(i)).ok()); }), 0u);
}

TEST_F(SteadyState, TensorBoard) {
  TempDir dir;
  PosixFileSystem fs;
  auto writer = TensorBoardWriter::Open(fs, dir.path(), 0);
  ASSERT_TRUE(writer.ok());
  EXPECT_EQ(Counted([&](uint64_t i) { ASSERT_TRUE(writer->Append(RowOf(i), 1.0).ok()); }), 0u);
}

TEST_F(SteadyState, Progress) {
  for (const Terminal terminal :
       {Terminal{true, true, 200}, Terminal{true, false, 60}, Terminal{false, false, 80}}) {
    Progress progress(terminal, "cartpole", 0, 0.0);
    EXPECT_EQ(Counted([&](uint64_t i) {
                const double now = 3.0 * static_cast<double>(i);
                progress.Update({i * i * i, 1'000'000'000, now * 1.2345}, now);
              }),
              0u);
  }
}

TEST_F(SteadyState, CurveAndResources) {
  Curve curve(64);
  CpuShare share(2);
  EXPECT_EQ(Counted([&](uint64_t i) {
              const ResourceUsage usage = ReadResourceUsage();
              curve.Add(static_cast<double>(i), share.Update(static_cast<double>(i), usage.cpu_seconds));
            }),
            0u);
}

}  // namespace
}  // namespace millrace
