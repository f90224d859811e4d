// What follows a matrix product where the product cannot do it itself: the activation, its gradient, and
// column sums for the gradient of a bias. The CPU's GEMM has all of it in its store; these are passes of
// their own, for cuBLASLt. Elements, and columns of a block of rows, are independent. Station: policy_runner,
// train_step. Any thread.
#pragma once

#include "kernels/core/activation.h"
#include "kernels/core/launch.h"
#include "kernels/ops/scalar.h"

namespace millrace {

// f(Act<kind>{}); DispatchActivation for code that runs on a device too.
template <class F>
MILL_HD void WithActivation(Activation kind, F f) {
  switch (kind) {
    case Activation::kTanh:
      return f(Act<Activation::kTanh>{});
    case Activation::kRelu:
      return f(Act<Activation::kRelu>{});
    case Activation::kGelu:
      return f(Act<Activation::kGelu>{});
    case Activation::kSilu:
      return f(Act<Activation::kSilu>{});
    case Activation::kNone:
      return f(Act<Activation::kNone>{});
  }
}

// y = act(pre)
struct ApplyActivation {
  static constexpr int kElements = 1024;  // of a tile

  struct Params {
    int rows, cols;
    Activation activation;
    const float* pre;  // [rows, ldpre]
    int ldpre;
    float* y;  // [rows, ldy]; may be pre
    int ldy;
  };
  struct Shared {};

  static int Tiles(const Params& p) { return CeilDiv(p.rows * p.cols, kElements); }

  template <class Team>
  MILL_HD void operator()(Team& team, int tile, const Params& p, Shared&) const {
    const int first = tile * kElements;
    const int end = MinOf(first + kElements, p.rows * p.cols);
    WithActivation(p.activation, [&](auto act) {
      for (int i = first + team.rank(); i < end; i += team.size()) {
        const size_t row = static_cast<size_t>(i / p.cols), col = static_cast<size_t>(i % p.cols);
        p.y[row * p.ldy + col] = decltype(act)::Forward(p.pre[row * p.ldpre + col]);
      }
    });
  }
};

// dx *= act'
struct ActivationGrad {
  static constexpr int kElements = 1024;

  struct Params {
    int rows, cols;
    Activation activation;
    const float* y;  // [rows, ldy] the activation's result; read for tanh and relu
    int ldy;
    const float* pre;  // [rows, ldpre] its input; read for gelu and silu
    int ldpre;
    float* dx;  // [rows, lddx]
    int lddx;
  };
  struct Shared {};

  static int Tiles(const Params& p) { return CeilDiv(p.rows * p.cols, kElements); }

  template <class Team>
  MILL_HD void operator()(Team& team, int tile, const Params& p, Shared&) const {
    const int first = tile * kElements;
    const int end = MinOf(first + kElements, p.rows * p.cols);
    WithActivation(p.activation, [&](auto act) {
      for (int i = first + team.rank(); i < end; i += team.size()) {
        const size_t row = static_cast<size_t>(i / p.cols), col = static_cast<size_t>(i % p.cols);
        const float y = p.y == nullptr ? 0.0f : p.y[row * p.ldy + col];
        const float pre = p.pre == nullptr ? 0.0f : p.pre[row * p.ldpre + col];
        p.dx[row * p.lddx + col] *= decltype(act)::Grad(y, pre);
      }
    });
  }
};

// Sums of columns over blocks of kRows rows, each one chain in row order; AddColumnSums makes one of them.
// Two steps, for one chain over all rows would leave a device idle.
struct ColumnSums {
  static constexpr int kRows = 128;
  static constexpr int kColumns = 128;

  struct Params {
    int rows, cols;
    const float* x;  // [rows, ldx]
    int ldx;
    float* partial;  // [Blocks(rows), cols]
  };
  struct Shared {};

  static MILL_HD int Blocks(int rows) { return CeilDiv(rows, kRows); }
  static int Tiles(const Params& p) { return Blocks(p.rows) * CeilDiv(p.cols, kColumns); }

  template <class Team>
  MILL_HD void operator()(Team& team, int tile, const Params& p, Shared&) const {
    const int blocks = Blocks(p.rows);
    const int block = tile % blocks;
    const int first_column = tile / blocks * kColumns;
    const int end_column = MinOf(first_column + kColumns, p.cols);
    const int end_row = MinOf((block + 1) * kRows, p.rows);
    for (int c = first_column + team.rank(); c < end_column; c += team.size()) {
      float sum = 0.0f;
      for (int r = block * kRows; r < end_row; ++r) sum += p.x[static_cast<size_t>(r) * p.ldx + c];
      p.partial[static_cast<size_t>(block) * p.cols + c] = sum;
    }
  }
};

// sum += partial[0] + partial[1] + ..., in this order.
struct AddColumnSums {
  static constexpr int kColumns = 128;

  struct Params {
    int blocks, cols;
    const float* partial;  // [blocks, cols]
    float* sum;            // [cols] added to
  };
  struct Shared {};

  static int Tiles(const Params& p) { return CeilDiv(p.cols, kColumns); }

  template <class Team>
  MILL_HD void operator()(Team& team, int tile, const Params& p, Shared&) const {
    const int first = tile * kColumns;
    const int end = MinOf(first + kColumns, p.cols);
    for (int c = first + team.rank(); c < end; c += team.size()) {
      float sum = p.sum[c];
      for (int b = 0; b < p.blocks; ++b) sum += p.partial[static_cast<size_t>(b) * p.cols + c];
      p.sum[c] = sum;
    }
  }
};

}  // namespace millrace
