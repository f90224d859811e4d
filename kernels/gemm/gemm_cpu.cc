// The CPU backend: walks the output in panels of 16 columns (B's panel stays in L1) and in tiles of up to 6
// rows. A narrow last panel has 8 or 4 columns, so that heads with few outputs cost little.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/core/activation.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/gemm_tile.h"

namespace millrace {
namespace {

using gemm::kTileRows;
using gemm::kTiles;
using gemm::NextRows;
using gemm::TileKind;

constexpr int kPanel = 16;

constexpr int PanelWidth(int columns) {
  return columns > 8 ? 16 : columns > 4 ? 8 : 4;
}

// f(width constant, first column, columns) for each panel of n columns.
template <class F>
void ForEachPanel(int n, F&& f) {
  for (int j = 0; j < n; j += kPanel) {
    const int columns = std::min(kPanel, n - j);
    switch (PanelWidth(columns)) {
      case 16:
        f(std::integral_constant<int, 16>{}, j, columns);
        break;
      case 8:
        f(std::integral_constant<int, 8>{}, j, columns);
        break;
      default:
        f(std::integral_constant<int, 4>{}, j, columns);
        break;
    }
  }
}

size_t PackedElements(int k, int n) {
  const int full = n / kPanel * kPanel;
  return static_cast<size_t>(k) * (full + (n > full ? PanelWidth(n - full) : 0));
}

// Panels of B, where B(s, j) = w[s * step_s + j * step_j]; missing columns of the last panel are zero.
void PackPanels(const float* w, ptrdiff_t step_s, ptrdiff_t step_j, int steps, int n, float* packed) {
  ForEachPanel(n, [&](auto width, int first, int columns) {
    for (int s = 0; s < steps; ++s, packed += width) {
      for (int j = 0; j < columns; ++j) packed[j] = w[s * step_s + (first + j) * step_j];
      for (int j = columns; j < width; ++j) packed[j] = 0.0f;
    }
  });
}

void Pack(const float* w, int ldw, int k, int n, float* packed) {
  PackPanels(w, ldw, 1, k, n, packed);
}

void PackTransposed(const float* w, int ldw, int k, int n, float* packed) {
  PackPanels(w, 1, ldw, n, k, packed);
}

template <int kWidth>
void CopyColumns(float* to, const float* from, int columns) {
  if (columns == kWidth) {
    std::memcpy(to, from, sizeof(float) * kWidth);
  } else {
    for (int j = 0; j < columns; ++j) to[j] = from[j];
  }
}

// What follows the chains, on one row of a tile: row i of the output, columns [first, first + columns). The
// columns of padding are computed like the others and not stored.

template <class A>
struct ForwardEpilogue {
  const ForwardArgs& g;

  template <int kWidth>
  void Row(float* tile, int i, int first, int columns) const {
    if (g.bias != nullptr) AddBias<kWidth>(tile, first, columns);
    if (g.pre != nullptr) {
      CopyColumns<kWidth>(g.pre + static_cast<ptrdiff_t>(i) * g.ldpre + first, tile, columns);
    }
    for (int j = 0; j < kWidth; ++j) tile[j] = A::Forward(tile[j]);
    CopyColumns<kWidth>(g.y + static_cast<ptrdiff_t>(i) * g.ldy + first, tile, columns);
  }

  template <int kWidth>
  void AddBias(float* tile, int first, int columns) const {
    if (columns == kWidth) {
      for (int j = 0; j < kWidth; ++j) tile[j] += g.bias[first + j];
    } else {
      for (int j = 0; j < columns; ++j) tile[j] += g.bias[first + j];
    }
  }
};

template <class A, bool kFactor>
struct GradInputEpilogue {
  const GradInputArgs& g;

  template <int kWidth>
  void Row(float* tile, int i, int first, int columns) const {
    if constexpr (kFactor) {
      // One of the two is read, as A has it.
      const float* saved = A::kNeedsPre ? g.pre + static_cast<ptrdiff_t>(i) * g.ldpre
                                        : g.x + static_cast<ptrdiff_t>(i) * g.ldx;
      float s[kWidth] = {};
      CopyColumns<kWidth>(s, saved + first, columns);
      for (int j = 0; j < kWidth; ++j) tile[j] *= A::Grad(s[j], s[j]);
    }
    CopyColumns<kWidth>(g.dx + static_cast<ptrdiff_t>(i) * g.lddx + first, tile, columns);
  }
};

// C[m, n] = A[m, steps] * packed, row by row through the epilogue.
template <class Epilogue>
void Multiply(int m, int n, int steps, const float* a, int lda, const float* packed,
              const Epilogue& epilogue) {
  ForEachPanel(n, [&](auto width, int first, int columns) {
    constexpr int kWidth = width;
    alignas(64) float tile[kTileRows<kWidth> * kWidth];
    for (int i = 0, rows = 0; i < m; i += rows) {
      rows = NextRows<kWidth>(m - i);
      kTiles<TileKind::kFromZero, kWidth>[rows - 1](steps, a + static_cast<ptrdiff_t>(i) * lda, lda, packed,
                                                    tile, kWidth);
      for (int r = 0; r < rows; ++r) {
        epilogue.template Row<kWidth>(tile + r * kWidth, i + r, first, columns);
      }
    }
    packed += static_cast<size_t>(steps) * kWidth;
  });
}

void Forward(const ForwardArgs& g) {
  DispatchActivation(g.activation, [&](auto act) {
    Multiply(g.m, g.n, g.k, g.x, g.ldx, g.w, ForwardEpilogue<decltype(act)>{g});
  });
}

void GradInput(const GradInputArgs& g) {
  DispatchActivation(g.activation, [&](auto act) {
    using A = decltype(act);
    constexpr bool kFactor = !std::is_same_v<A, Act<Activation::kNone>>;
    Multiply(g.m, g.k, g.n, g.dy, g.lddy, g.wt, GradInputEpilogue<A, kFactor>{g});
  });
}

// db[j] += dy[0, j] + dy[1, j] + ..., in this order, a few vectors of columns at a time to hide the latency.
void AddColumnSums(const GradWeightArgs& g) {
  constexpr int kColumns = 64;
  for (int j = 0; j < g.n; j += kColumns) {
    const int columns = std::min(kColumns, g.n - j);
    float sum[kColumns];
    std::copy_n(g.db + j, columns, sum);
    const float* row = g.dy + j;
    if (columns == kColumns) {
      for (int r = 0; r < g.m; ++r, row += g.lddy) {
        for (int c = 0; c < kColumns; ++c) sum[c] += row[c];
      }
    } else {
      for (int r = 0; r < g.m; ++r, row += g.lddy) {
        for (int c = 0; c < columns; ++c) sum[c] += row[c];
      }
    }
    std::copy_n(sum, columns, g.db + j);
  }
}

// Rows of one pass of GradWeight: a panel of dY of that many rows is copied to the stack, where its rows are
// next to each other (in place, rows 512 bytes apart fall into few sets of L1). A pass takes the chains up
// where the last one left them.
constexpr int kChunk = 128;

// The panel's columns of dW, of all k rows.
template <int kWidth>
void GradWeightPanel(const GradWeightArgs& g, const float* x, int rows, const float* panel, int first,
                     int columns) {
  alignas(64) float tile[kTileRows<kWidth> * kWidth] = {};
  for (int i = 0, tile_rows = 0; i < g.k; i += tile_rows) {
    tile_rows = NextRows<kWidth>(g.k - i);
    const auto run = kTiles<TileKind::kAccumulate, kWidth>[tile_rows - 1];
    float* dw = g.dw + static_cast<ptrdiff_t>(i) * g.lddw + first;
    if (columns == kWidth) {
      run(rows, x + i, g.ldx, panel, dw, g.lddw);
      continue;
    }
    for (int r = 0; r < tile_rows; ++r)
      CopyColumns<kWidth>(tile + r * kWidth, dw + static_cast<ptrdiff_t>(r) * g.lddw, columns);
    run(rows, x + i, g.ldx, panel, tile, kWidth);
    for (int r = 0; r < tile_rows; ++r)
      CopyColumns<kWidth>(dw + static_cast<ptrdiff_t>(r) * g.lddw, tile + r * kWidth, columns);
  }
}

void GradWeight(const GradWeightArgs& g) {
  if (g.db != nullptr) AddColumnSums(g);
  alignas(64) float panel[kChunk * kPanel];
  for (int row = 0; row < g.m; row += kChunk) {
    const int rows = std::min(kChunk, g.m - row);
    const float* x = g.x + static_cast<ptrdiff_t>(row) * g.ldx;
    const float* dy = g.dy + static_cast<ptrdiff_t>(row) * g.lddy;
    ForEachPanel(g.n, [&](auto width, int first, int columns) {
      constexpr int kWidth = width;
      PackPanels(dy + first, g.lddy, 1, rows, columns, panel);
      GradWeightPanel<kWidth>(g, x, rows, panel, first, columns);
    });
  }
}

}  // namespace

const GemmBackend kCpuGemm = {"cpu", PackedElements, Pack, PackTransposed, Forward, GradInput, GradWeight};

}  // namespace millrace
