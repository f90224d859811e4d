#include "kernels/net/orthogonal.h"

#include <cmath>
#include <cstddef>
#include <numbers>
#include <vector>

#include "kernels/ops/philox.h"

namespace millrace {
namespace {

// Two independent standard normals (Box and Muller 1958) for entry pair `index` of a stream.
void NormalPair(uint64_t seed, uint32_t stream, uint64_t index, double* out) {
  const Philox4 words = PhiloxAt(seed, Purpose::kInit, stream, index);
  const double u = 1.0 - UniformDouble(words.v[0], words.v[1]);  // (0, 1]
  const double angle = 2 * std::numbers::pi * UniformDouble(words.v[2], words.v[3]);
  const double radius = std::sqrt(-2 * std::log(u));
  out[0] = radius * std::cos(angle);
  out[1] = radius * std::sin(angle);
}

// Modified Gram-Schmidt over `count` vectors of `length` >= count entries, done twice: once loses
// orthogonality.
void Orthonormalize(int count, int length, std::vector<double>& v) {
  const auto row = [&](int i) { return v.data() + static_cast<size_t>(i) * static_cast<size_t>(length); };
  for (int i = 0; i < count; ++i) {
    for (int pass = 0; pass < 2; ++pass) {
      for (int j = 0; j < i; ++j) {
        double dot = 0;
        for (int k = 0; k < length; ++k) dot += row(i)[k] * row(j)[k];
        for (int k = 0; k < length; ++k) row(i)[k] -= dot * row(j)[k];
      }
    }
    double norm = 0;
    for (int k = 0; k < length; ++k) norm += row(i)[k] * row(i)[k];
    norm = std::sqrt(norm);
    for (int k = 0; k < length; ++k) row(i)[k] /= norm;
  }
}

}  // namespace

void OrthogonalInit(uint64_t seed, uint32_t stream, int rows, int cols, int ld, double gain, float* out) {
  const bool tall = rows >= cols;
  const int count = tall ? cols : rows, length = tall ? rows : cols;
  std::vector<double> v(static_cast<size_t>(count) * static_cast<size_t>(length) + 1);
  for (size_t i = 0; i + 1 < v.size(); i += 2) NormalPair(seed, stream, i / 2, &v[i]);
  if ((v.size() - 1) % 2 == 1) {
    double pair[2];
    NormalPair(seed, stream, v.size() / 2, pair);
    v[v.size() - 2] = pair[0];
  }
  Orthonormalize(count, length, v);
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < cols; ++c) {
      const size_t at = tall ? static_cast<size_t>(c) * static_cast<size_t>(length) + static_cast<size_t>(r)
                             : static_cast<size_t>(r) * static_cast<size_t>(length) + static_cast<size_t>(c);
      out[static_cast<size_t>(r) * static_cast<size_t>(ld) + static_cast<size_t>(c)] =
          static_cast<float>(gain * v[at]);
    }
  }
}

}  // namespace millrace
