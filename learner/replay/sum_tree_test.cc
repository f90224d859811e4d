#include "learner/replay/sum_tree.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <memory>
#include <random>

#include "common/aligned_bytes.h"
#include "kernels/testing/golden.h"

namespace millrace {
namespace {

struct Tree {
  explicit Tree(uint32_t leaves)
      : memory(*AlignedBytes::Make(SumTree::Bytes(leaves))), tree(memory.data(), leaves) {}
  explicit Tree(const std::vector<float>& priorities) : Tree(static_cast<uint32_t>(priorities.size())) {
    for (uint32_t i = 0; i < tree.leaves(); ++i) tree.Put(i, priorities[i]);
    tree.Refresh();
  }
  uint32_t Find(double mass) const {
    uint32_t leaf = 0;
    tree.Find(&mass, &leaf, 1);
    return leaf;
  }
  AlignedBytes memory;
  SumTree tree;
};

TEST(SumTree, Golden) {
  const auto& golden = Golden("sum_tree");
  Tree t(Flat<float>(golden.at("priorities")));
  EXPECT_EQ(t.tree.total(), golden.at("total").get<double>());
  EXPECT_EQ(t.tree.least(), 0.5f) << "of those above zero";
  for (const auto& query : golden.at("queries")) {
    EXPECT_EQ(t.Find(query.at("mass").get<double>()), query.at("index").get<uint32_t>()) << query;
  }
  const auto& at_total = golden.at("mass_equal_total");
  EXPECT_EQ(t.Find(at_total.at("mass").get<double>()), at_total.at("index").get<uint32_t>());
  const auto& middle = golden.at("stratified_4_midpoints");
  auto masses = Flat<double>(middle.at("masses"));
  std::vector<uint32_t> found(masses.size());
  t.tree.Find(masses.data(), found.data(), static_cast<int>(masses.size()));
  EXPECT_EQ(found, Flat<uint32_t>(middle.at("indices")));

  const auto& twice = golden.at("duplicate_update_in_one_batch");
  const auto indices = Flat<uint32_t>(twice.at("indices"));
  const auto values = Flat<float>(twice.at("values"));
  for (size_t i = 0; i < indices.size(); ++i) t.tree.Put(indices[i], values[i]);
  t.tree.Refresh();
  EXPECT_EQ(t.tree.total(), twice.at("total_after").get<double>());

  Tree u(Flat<float>(golden.at("priorities")));
  const auto& update = golden.at("update");
  u.tree.Put(update.at("index").get<uint32_t>(), update.at("value").get<float>());
  u.tree.Refresh();
  EXPECT_EQ(u.tree.total(), update.at("total_after").get<double>());
}

TEST(SumTree, GoldenOfFive) {
  const auto& golden = Golden("sum_tree").at("non_power_of_two");
  Tree t(Flat<float>(golden.at("priorities")));
  for (const auto& query : golden.at("queries")) {
    EXPECT_EQ(t.Find(query.at("mass").get<double>()), query.at("index").get<uint32_t>()) << query;
  }
  EXPECT_EQ(t.Find(5.0), 4u);
}

TEST(SumTree, EverySizeFindsWhatALoopFinds) {
  std::mt19937 random(1);
  for (uint32_t leaves : {1u, 2u, 15u, 16u, 17u, 255u, 256u, 257u, 4095u, 4097u, 70000u}) {
    // Multiples of a quarter: sums are exact in any order.
    std::vector<float> priorities(leaves);
    for (float& p : priorities) p = static_cast<float>(random() % 5) / 4;
    priorities[leaves / 2] = 0.25f;
    const Tree t(priorities);
    double total = 0;
    for (float p : priorities) total += p;
    ASSERT_EQ(t.tree.total(), total) << leaves;
    std::vector<uint32_t> leaf_at;  // of each quarter of the mass
    for (uint32_t i = 0; i < leaves; ++i) {
      for (float p = 0; p < priorities[i]; p += 0.25f) leaf_at.push_back(i);
    }
    for (int i = 0; i < 200; ++i) {
      const size_t quarter = random() % leaf_at.size();
      ASSERT_EQ(t.Find(0.25 * static_cast<double>(quarter)), leaf_at[quarter]) << leaves;
      ASSERT_EQ(t.Find(0.25 * static_cast<double>(quarter) + 0.2), leaf_at[quarter]) << leaves;
    }
    EXPECT_EQ(t.Find(total), leaf_at.back());
    EXPECT_EQ(t.Find(1e300), leaf_at.back());
  }
}

// The golden data's own story: a tree that adds differences in float32 is off by 0.009 after these updates.
TEST(SumTree, DoesNotDrift) {
  const auto& golden = Golden("sum_tree").at("float32_delta_update_drift");
  const auto leaves = golden.at("leaves").get<uint32_t>();
  Tree t(leaves);
  std::mt19937 random(golden.at("lcg_seed").get<uint32_t>());
  std::uniform_real_distribution<float> priority(1e-6f, 5.0f);
  for (int i = 0; i < golden.at("updates").get<int>(); ++i) {
    t.tree.Put(random() % leaves, priority(random));
    t.tree.Refresh();
  }
  double sum = 0;
  float least = std::numeric_limits<float>::infinity();
  for (uint32_t i = 0; i < leaves; ++i) {
    sum += t.tree[i];
    if (t.tree[i] > 0) least = std::min(least, t.tree[i]);
  }
  EXPECT_NEAR(t.tree.total(), sum, 1e-9);
  EXPECT_EQ(t.tree.least(), least);
  Tree loaded(leaves);
  std::memcpy(loaded.memory.data(), t.tree.data(), leaves * sizeof(float));
  loaded.tree.MakeSums();
  EXPECT_EQ(loaded.tree.total(), t.tree.total()) << "to the bit";
}

TEST(SumTree, EmptyHasNoLeast) {
  Tree t(uint32_t{100});
  t.tree.Put(7, 2.0f);
  t.tree.Refresh();
  EXPECT_EQ(t.tree.least(), 2.0f);
  t.tree.Clear();
  EXPECT_EQ(t.tree.total(), 0);
  EXPECT_EQ(t.tree.least(), std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace millrace
