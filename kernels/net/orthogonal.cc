#include "kernels/net/orthogonal.h"

#include <algorithm>
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

// Matrices from this many entries on are orthonormalised by blocks: 1 GB of weights takes seconds and not
// minutes. Below, the sums stay in the order that seeds have always had.
constexpr size_t kLarge = size_t{1} << 22;
constexpr int kBlock = 512;  // entries of each vector that are worked on in the cache
constexpr int kLanes = 8;

// `count` vectors of `length` entries, block by block: `work` gets the block's entries as [count, kBlock],
// those beyond the end zero. With `back` what it leaves there replaces them.
template <typename Work>
void ForBlocks(int count, int length, std::vector<double>& v, bool back, Work&& work) {
  std::vector<double> block(static_cast<size_t>(count) * kBlock);
  for (int begin = 0; begin < length; begin += kBlock) {
    const int n = std::min(kBlock, length - begin);
    const auto at = [&](int i) {
      return v.begin() + static_cast<std::ptrdiff_t>(i) * length + static_cast<std::ptrdiff_t>(begin);
    };
    const auto here = [&](int i) { return block.begin() + static_cast<std::ptrdiff_t>(i) * kBlock; };
    if (n < kBlock) std::fill(block.begin(), block.end(), 0.0);
    for (int i = 0; i < count; ++i) std::copy_n(at(i), n, here(i));
    work(block.data());
    for (int i = 0; back && i < count; ++i) std::copy_n(here(i), n, at(i));
  }
}

double BlockDot(const double* a, const double* b) {
  double sums[kLanes] = {};
  for (int k = 0; k < kBlock; k += kLanes) {
    for (int l = 0; l < kLanes; ++l) sums[l] += a[k + l] * b[k + l];
  }
  double sum = 0;
  for (double part : sums) sum += part;
  return sum;
}

// One pass of orthonormalisation by Cholesky: with G = V V' = L L', the rows of inv(L) V are orthonormal, and
// they are those of Gram-Schmidt.
void CholeskyPass(int count, int length, std::vector<double>& v) {
  const auto n = static_cast<size_t>(count);
  std::vector<double> l(n * n);
  ForBlocks(count, length, v, false, [&](const double* block) {
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j <= i; ++j) l[i * n + j] += BlockDot(block + i * kBlock, block + j * kBlock);
    }
  });
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = l[i * n + j];
      for (size_t k = 0; k < j; ++k) sum -= l[i * n + k] * l[j * n + k];
      l[i * n + j] = i == j ? std::sqrt(sum) : sum / l[j * n + j];
    }
  }
  ForBlocks(count, length, v, true, [&](double* block) {
    for (size_t i = 0; i < n; ++i) {
      double* const row = block + i * kBlock;
      size_t j = 0;
      for (; j + 4 <= i; j += 4) {  // four at a time: a row is loaded and stored a quarter as often
        const double c0 = l[i * n + j], c1 = l[i * n + j + 1], c2 = l[i * n + j + 2], c3 = l[i * n + j + 3];
        const double *q0 = block + j * kBlock, *q1 = q0 + kBlock, *q2 = q1 + kBlock, *q3 = q2 + kBlock;
        for (int k = 0; k < kBlock; ++k) row[k] -= (c0 * q0[k] + c1 * q1[k]) + (c2 * q2[k] + c3 * q3[k]);
      }
      for (; j < i; ++j) {
        const double c = l[i * n + j], *q = block + j * kBlock;
        for (int k = 0; k < kBlock; ++k) row[k] -= c * q[k];
      }
      for (int k = 0; k < kBlock; ++k) row[k] /= l[i * n + i];
    }
  });
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
  if (v.size() > kLarge) {
    // Twice, as the other way: rounding costs the first pass what the matrix's condition squares to.
    for (int pass = 0; pass < 2; ++pass) CholeskyPass(count, length, v);
  } else {
    Orthonormalize(count, length, v);
  }
  // By some rows at a time, for a tall matrix is read across its vectors.
  constexpr int kRows = 64;
  for (int begin = 0; begin < rows; begin += kRows) {
    const int end = std::min(rows, begin + kRows);
    for (int c = 0; c < cols; ++c) {
      for (int r = begin; r < end; ++r) {
        const size_t at = tall
                              ? static_cast<size_t>(c) * static_cast<size_t>(length) + static_cast<size_t>(r)
                              : static_cast<size_t>(r) * static_cast<size_t>(length) + static_cast<size_t>(c);
        out[static_cast<size_t>(r) * static_cast<size_t>(ld) + static_cast<size_t>(c)] =
            static_cast<float>(gain * v[at]);
      }
    }
  }
}

}  // namespace millrace
