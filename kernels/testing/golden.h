// The golden data of tests/golden as tests use it, and the tolerances it suggests for float32. Test code
// only.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace millrace {

// One group of golden.json by its name.
inline const nlohmann::json& Golden(const std::string& group) {
  static const nlohmann::json all = [] {
    std::ifstream in(std::string(MILLRACE_GOLDEN_DIR) + "/golden.json");
    return nlohmann::json::parse(in);
  }();
  return all.at(group);
}

// A list of numbers or flags, flattened when nested.
template <class T>
std::vector<T> Flat(const nlohmann::json& j) {
  if (!j.is_array()) return {j.is_boolean() ? static_cast<T>(j.get<bool>()) : j.get<T>()};
  std::vector<T> out;
  for (const auto& item : j) {
    const std::vector<T> part = Flat<T>(item);
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

// rtol 2e-5, atol 1e-6: the data's own suggestion for float32.
inline bool CloseF32(double got, double want) {
  return std::abs(got - want) <= 1e-6 + 2e-5 * std::abs(want);
}

template <class T>
void ExpectCloseF32(const std::vector<T>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(CloseF32(static_cast<double>(got[i]), want[i]))
        << "at " << i << ": " << got[i] << " for " << want[i];
  }
}

// The largest difference; a result must stay far from a known mistake's values.
template <class T>
double Distance(const std::vector<T>& got, const std::vector<double>& other) {
  double most = 0.0;
  for (size_t i = 0; i < got.size() && i < other.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(got[i]) - other[i]));
  }
  return most;
}

}  // namespace millrace
