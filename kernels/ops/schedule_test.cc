#include "kernels/ops/schedule.h"

#include <gtest/gtest.h>

#include "kernels/testing/golden.h"

namespace millrace {
namespace {

TEST(Schedule, FirstUpdateHasTheStart) {
  const auto& g = Golden("lr_schedule");
  const double lr0 = g.at("lr0").get<double>();
  const int n = g.at("iterations").get<int>();
  for (int i = 0; i < n; ++i) {
    const double lr = Scheduled(Schedule::kLinear, lr0, static_cast<double>(i) / n);
    EXPECT_NEAR(lr, g.at("start")[static_cast<size_t>(i)].get<double>(), 1e-15);
    EXPECT_GT(std::abs(lr - g.at("after_rollout")[static_cast<size_t>(i)].get<double>()), 1e-5);
  }
}

TEST(Schedule, Shapes) {
  EXPECT_EQ(Scheduled(Schedule::kConstant, 0.2, 0.7), 0.2);
  EXPECT_EQ(Scheduled(Schedule::kCosine, 0.2, 0.0), 0.2);
  EXPECT_NEAR(Scheduled(Schedule::kCosine, 0.2, 0.5), 0.1, 1e-15);
  EXPECT_NEAR(Scheduled(Schedule::kCosine, 0.2, 0.25), 0.1 * (1.0 + std::sqrt(0.5)), 1e-15);
  EXPECT_NEAR(Scheduled(Schedule::kCosine, 1.0, 0.5, 0.5), 0.75, 1e-15);
  EXPECT_NEAR(Scheduled(Schedule::kLinear, 1.0, 0.5, 0.5), 0.75, 1e-15);
  for (Schedule kind : {Schedule::kLinear, Schedule::kCosine}) {
    EXPECT_NEAR(Scheduled(kind, 0.2, 1.0), 0.0, 1e-15);
    EXPECT_EQ(Scheduled(kind, 0.2, 1.5), Scheduled(kind, 0.2, 1.0));
    EXPECT_EQ(Scheduled(kind, 0.2, -1.0), 0.2);
  }
}

}  // namespace
}  // namespace millrace
