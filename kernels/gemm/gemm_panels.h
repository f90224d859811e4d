// The CPU's products: they walk the output in panels of columns (B's panel stays in L1) and in register tiles
// of a few rows. Panels have 16 columns, tiles up to 32; a narrow last panel has 8 or 4, so that heads with
// few outputs cost little. Packed weights look the same for all sets of kernels.
//
// Like gemm_tile.h, which says why, this is in an anonymous namespace and calls nothing of the standard
// library but memcpy; what it takes from core/ is always inlined. Owner: none. Any thread. Station: internal
// to gemm_cpu.cc and gemm_avx512.cc.
#pragma once

#include <cstring>
#include <type_traits>

#include "kernels/core/activation.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/gemm_tile.h"

namespace millrace {

extern const GemmBackend kAvx512Gemm;  // gemm_avx512.cc, where it is compiled

namespace {

using gemm::Constant;
using gemm::kPanel;
using gemm::kTileRows;
using gemm::kVectorLanes;
using gemm::kWidestTile;
using gemm::NextRows;
using gemm::TileKind;
using gemm::TileOf;
using gemm::TransposeBlock;

constexpr int Min(int a, int b) {
  return a < b ? a : b;
}

MILL_HD void CopyFloats(const float* from, int count, float* to) {
  std::memcpy(to, from, sizeof(float) * static_cast<size_t>(count));
}

constexpr int PanelWidth(int columns) {
  return columns > 8 ? 16 : columns > 4 ? 8 : 4;
}

// f(width constant, first column, columns) for each panel of n columns; kWidest: of as many panels at once as
// make that many columns, while there are full ones.
template <int kWidest, class F>
void ForEachPanel(int n, F&& f) {
  int j = 0;
  if constexpr (kWidest > kPanel) {
    for (; j + kWidest <= n; j += kWidest) f(Constant<kWidest>{}, j, kWidest);
  }
  for (; j < n; j += kPanel) {
    const int columns = Min(kPanel, n - j);
    switch (PanelWidth(columns)) {
      case 16:
        f(Constant<16>{}, j, columns);
        break;
      case 8:
        f(Constant<8>{}, j, columns);
        break;
      default:
        f(Constant<4>{}, j, columns);
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
  ForEachPanel<kPanel>(n, [&](auto width, int first, int columns) {
    for (int s = 0; s < steps; ++s, packed += width) {
      for (int j = 0; j < columns; ++j) packed[j] = w[s * step_s + (first + j) * step_j];
      for (int j = columns; j < width; ++j) packed[j] = 0.0f;
    }
  });
}

void Pack(const float* w, int ldw, int k, int n, float* packed) {
  const int full = n / kPanel * kPanel;
  for (int j = 0; j < full; j += kPanel) {
    for (int s = 0; s < k; ++s, packed += kPanel)
      CopyFloats(w + static_cast<ptrdiff_t>(s) * ldw + j, kPanel, packed);
  }
  PackPanels(w + full, ldw, 1, k, n - full, packed);
}

// Full panels by square blocks in registers: one element at a time this took 6 % of an update of SAC.
void PackTransposed(const float* w, int ldw, int k, int n, float* packed) {
  constexpr int kSide = kVectorLanes;
  const int full = k / kPanel * kPanel, blocks = n / kSide * kSide;
  for (int row = 0; row < full; row += kPanel, packed += static_cast<ptrdiff_t>(n) * kPanel) {
    const float* from = w + static_cast<ptrdiff_t>(row) * ldw;
    for (int j = 0; j < kPanel; j += kSide) {
      for (int s = 0; s < blocks; s += kSide)
        TransposeBlock<kSide>(from + static_cast<ptrdiff_t>(j) * ldw + s, ldw, packed + s * kPanel + j,
                              kPanel);
    }
    PackPanels(from + blocks, 1, ldw, n - blocks, kPanel, packed + static_cast<ptrdiff_t>(blocks) * kPanel);
  }
  PackPanels(w + static_cast<ptrdiff_t>(full) * ldw, 1, ldw, n, k - full, packed);
}

// rows x columns from one matrix to another; kWidth is the most columns there can be.
template <int kWidth>
MILL_HD void CopyBlock(const float* from, ptrdiff_t from_ld, float* to, ptrdiff_t to_ld, int rows,
                       int columns) {
  if (columns == kWidth) {
    for (int r = 0; r < rows; ++r) std::memcpy(to + r * to_ld, from + r * from_ld, sizeof(float) * kWidth);
  } else {
    for (int r = 0; r < rows; ++r) {
      for (int j = 0; j < columns; ++j) to[r * to_ld + j] = from[r * from_ld + j];
    }
  }
}

// What follows the chains, on a tile of rows x kWidth: rows row, row + 1 ... of the output, columns [first,
// first + columns). Columns of padding are computed like the others and not stored. Loops run over the whole
// tile, for they vectorize and overlap better than one a row.

template <class A, int kWidth>
struct ForwardEpilogue {
  const ForwardArgs& g;
  int first, columns;
  float bias[kWidth] = {};

  ForwardEpilogue(const ForwardArgs& args, int first, int columns) : g(args), first(first), columns(columns) {
    if (g.bias != nullptr) CopyFloats(g.bias + first, columns, bias);
  }

  MILL_HD void operator()(float* __restrict tile, int row, int rows) const {
    // A negative zero keeps its sign when there is no bias to add.
    if (g.bias != nullptr) {
      for (int r = 0; r < rows; ++r) {
        for (int j = 0; j < kWidth; ++j) tile[r * kWidth + j] += bias[j];
      }
    }
    if (g.pre != nullptr) {
      CopyBlock<kWidth>(tile, kWidth, g.pre + static_cast<ptrdiff_t>(row) * g.ldpre + first, g.ldpre, rows,
                        columns);
    }
    float* __restrict y = g.y + static_cast<ptrdiff_t>(row) * g.ldy + first;
    if (columns == kWidth) {
      for (int r = 0; r < rows; ++r) {
        for (int j = 0; j < kWidth; ++j)
          y[static_cast<ptrdiff_t>(r) * g.ldy + j] = A::Forward(tile[r * kWidth + j]);
      }
    } else {
      for (int r = 0; r < rows; ++r) {
        for (int j = 0; j < columns; ++j)
          y[static_cast<ptrdiff_t>(r) * g.ldy + j] = A::Forward(tile[r * kWidth + j]);
      }
    }
  }
};

template <class A, int kWidth>
struct GradInputEpilogue {
  const GradInputArgs& g;
  int first, columns;

  GradInputEpilogue(const GradInputArgs& args, int first, int columns)
      : g(args), first(first), columns(columns) {}

  MILL_HD void operator()(float* __restrict tile, int row, int rows) const {
    if constexpr (!std::is_same_v<A, Act<Activation::kNone>>) {
      const ptrdiff_t ld = A::kNeedsPre ? g.ldpre : g.ldx;
      const float* __restrict saved = (A::kNeedsPre ? g.pre : g.x) + row * ld + first;
      if (columns == kWidth) {
        for (int r = 0; r < rows; ++r) {
          for (int j = 0; j < kWidth; ++j)
            tile[r * kWidth + j] *= A::Grad(saved[r * ld + j], saved[r * ld + j]);
        }
      } else {
        for (int r = 0; r < rows; ++r) {
          for (int j = 0; j < columns; ++j)
            tile[r * kWidth + j] *= A::Grad(saved[r * ld + j], saved[r * ld + j]);
        }
      }
    }
    CopyBlock<kWidth>(tile, kWidth, g.dx + static_cast<ptrdiff_t>(row) * g.lddx + first, g.lddx, rows,
                      columns);
  }
};

// C[m, n] = A[m, steps] * packed, tile by tile through the epilogue of its panel.
template <template <class, int> class Epilogue, class A, class Args>
void Multiply(const Args& g, int m, int n, int steps, const float* a, ptrdiff_t lda, const float* packed) {
  ForEachPanel<kWidestTile>(n, [&](auto width, int first, int columns) {
    constexpr int kWidth = decltype(width)::value;
    const Epilogue<A, kWidth> epilogue(g, first, columns);
    alignas(64) float tile[kTileRows<kWidth> * kWidth];
    for (int row = 0, rows = 0; row < m; row += rows) {
      rows = NextRows<kWidth>(m - row);
      TileOf<TileKind::kFromZero, kWidth>(rows)(steps, a + row * lda, lda, packed, Min(kWidth, kPanel),
                                                static_cast<ptrdiff_t>(steps) * kPanel, tile, kWidth);
      epilogue(tile, row, rows);
    }
    packed += static_cast<size_t>(steps) * kWidth;
  });
}

void Forward(const ForwardArgs& g) {
  DispatchActivation(g.activation, [&](auto act) {
    Multiply<ForwardEpilogue, decltype(act)>(g, g.m, g.n, g.k, g.x, g.ldx, g.w);
  });
}

void GradInput(const GradInputArgs& g) {
  DispatchActivation(g.activation, [&](auto act) {
    Multiply<GradInputEpilogue, decltype(act)>(g, g.m, g.k, g.n, g.dy, g.lddy, g.wt);
  });
}

// db[j] += dy[0, j] + dy[1, j] + ..., in this order, a few vectors of columns at a time to hide the latency.
void AddColumnSums(const GradWeightArgs& g) {
  constexpr int kColumns = 64;
  for (int j = 0; j < g.n; j += kColumns) {
    const int columns = Min(kColumns, g.n - j);
    float sum[kColumns];
    CopyFloats(g.db + j, columns, sum);
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
    CopyFloats(sum, columns, g.db + j);
  }
}

// Rows of one pass of GradWeight: a panel of dY of that many rows is copied to the stack, where its rows are
// next to each other (in place, rows 512 bytes apart fall into few sets of L1). A pass takes the chains up
// where the last one left them.
constexpr int kChunk = 128;

// The panel's columns of dW, of rows [begin, k).
template <int kWidth>
void GradWeightPanel(const GradWeightArgs& g, const float* x, int rows, const float* panel, int begin,
                     int first, int columns) {
  constexpr int kStep = Min(kWidth, kPanel);
  const ptrdiff_t next_panel = static_cast<ptrdiff_t>(rows) * kPanel;
  alignas(64) float tile[kTileRows<kWidth> * kWidth] = {};
  for (int i = begin, tile_rows = 0; i < g.k; i += tile_rows) {
    tile_rows = NextRows<kWidth>(g.k - i);
    const auto run = TileOf<TileKind::kAccumulate, kWidth>(tile_rows);
    float* dw = g.dw + static_cast<ptrdiff_t>(i) * g.lddw + first;
    if (columns == kWidth) {
      run(rows, x + i, g.ldx, panel, kStep, next_panel, dw, g.lddw);
    } else {
      CopyBlock<kWidth>(dw, g.lddw, tile, kWidth, tile_rows, columns);
      run(rows, x + i, g.ldx, panel, kStep, next_panel, tile, kWidth);
      CopyBlock<kWidth>(tile, kWidth, dw, g.lddw, tile_rows, columns);
    }
  }
}

// Up to 4 columns of dW (a head's), kAlong of its rows at a time from row i: the tile is the transpose of
// dW's, for there the long side is along k. Returns the first row that is left.
template <int kAlong>
int GradWeightNarrow(const GradWeightArgs& g, const float* x, const float* dy, int rows, int i, int first,
                     int columns) {
  alignas(64) float tile[4 * kAlong];
  for (; i + kAlong <= g.k; i += kAlong) {
    float* dw = g.dw + static_cast<ptrdiff_t>(i) * g.lddw + first;
    for (int c = 0; c < columns; ++c) {
      for (int j = 0; j < kAlong; ++j) tile[c * kAlong + j] = dw[static_cast<ptrdiff_t>(j) * g.lddw + c];
    }
    TileOf<TileKind::kAccumulate, kAlong>(columns)(rows, dy + first, g.lddy, x + i, g.ldx, kPanel, tile,
                                                   kAlong);
    for (int j = 0; j < kAlong; ++j) {
      for (int c = 0; c < columns; ++c) dw[static_cast<ptrdiff_t>(j) * g.lddw + c] = tile[c * kAlong + j];
    }
  }
  return i;
}

void GradWeight(const GradWeightArgs& g) {
  if (g.db != nullptr) AddColumnSums(g);
  alignas(64) float panel[kChunk * kWidestTile];
  for (int row = 0; row < g.m; row += kChunk) {
    const int rows = Min(kChunk, g.m - row);
    const float* x = g.x + static_cast<ptrdiff_t>(row) * g.ldx;
    const float* dy = g.dy + static_cast<ptrdiff_t>(row) * g.lddy;
    ForEachPanel<kWidestTile>(g.n, [&](auto width, int first, int columns) {
      constexpr int kWidth = decltype(width)::value;
      int begin = 0;
      if constexpr (kWidth == 4) {
        // Few columns are few chains; with wide vectors it takes four along k to hide the latency.
        if constexpr (kVectorLanes == 16) begin = GradWeightNarrow<64>(g, x, dy, rows, begin, first, columns);
        begin = GradWeightNarrow<kPanel>(g, x, dy, rows, begin, first, columns);
      }
      if (begin == g.k) return;
      PackPanels(dy + first, g.lddy, 1, rows, columns, panel);
      GradWeightPanel<kWidth>(g, x, rows, panel, begin, first, columns);
    });
  }
}

constexpr GemmBackend TableNamed(const char* name) {
  return {name, PackedElements, Pack, PackTransposed, Forward, GradInput, GradWeight};
}

}  // namespace
}  // namespace millrace
