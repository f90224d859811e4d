// A keyed permutation of [0, n) without memory, from which minibatches are drawn: each sample once an epoch,
// any slice by any thread. A Feistel network over the next power of two (Luby and Rackoff, 1988), its two
// halves changed in turn, so that odd widths need no padding; a value outside [0, n) walks on along its cycle
// until it is inside (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002), fewer than two walks
// on average. Station: batch_assembler. Pure; any thread.
#pragma once

#include "kernels/core/launch.h"
#include "kernels/ops/philox.h"
#include "kernels/ops/scalar.h"

namespace millrace {

struct Permutation {
  uint32_t n;               // [1, 2^31]
  int low_bits, high_bits;  // low + high: the width of the next power of two; each at least 1
  Philox4 key;
};

// A key is a Philox block, for instance PhiloxAt(seed, Purpose::kShuffle, epoch, update).
MILL_HD Permutation MakePermutation(uint32_t n, const Philox4& key) {
  int bits = 2;
  while (bits < 31 && (1u << bits) < n) ++bits;
  return Permutation{n, bits / 2, bits - bits / 2, key};
}

// One pass of the network: a bijection of [0, 2^(low_bits + high_bits)).
MILL_HD uint32_t FeistelPass(const Permutation& p, uint32_t x) {
  const uint32_t low_mask = (1u << p.low_bits) - 1u;
  const uint32_t high_mask = (1u << p.high_bits) - 1u;
  uint32_t low = x & low_mask;
  uint32_t high = x >> p.low_bits;
  for (int i = 0; i < 4; ++i) {
    uint32_t f = (low ^ p.key.v[i]) * 0x9E3779B1u;
    f = (f ^ (f >> 15)) * 0x85EBCA77u;
    high ^= (f >> 9) & high_mask;
    f = (high + p.key.v[3 - i]) * 0xC2B2AE3Du;
    f = (f ^ (f >> 13)) * 0x27D4EB2Fu;
    low ^= (f >> 9) & low_mask;
  }
  return (high << p.low_bits) | low;
}

// Where position i goes.
MILL_HD uint32_t Permute(const Permutation& p, uint32_t i) {
  uint32_t x = FeistelPass(p, i);
  while (x >= p.n) x = FeistelPass(p, x);
  return x;
}

MILL_HD uint32_t Permute(uint32_t i, uint32_t n, const Philox4& key) {
  return Permute(MakePermutation(n, key), i);
}

// out[i] = Permute(first + i): a slice of the epoch's order.
struct FillPermutation {
  static constexpr int kTile = 1024;

  struct Params {
    Permutation permutation;
    uint32_t first;
    int count;
    int32_t* out;  // [count]
  };
  struct Shared {};

  static int Tiles(const Params& p) { return CeilDiv(p.count, kTile); }

  template <class Team>
  MILL_HD void operator()(Team& team, int tile, const Params& p, Shared&) const {
    const Permutation permutation = p.permutation;
    const int begin = tile * kTile;
    const int n = MinOf(kTile, p.count - begin);
    const uint32_t first = p.first + static_cast<uint32_t>(begin);
    int32_t* out = p.out + begin;
    MILL_SIMD
    for (int i = team.rank(); i < n; i += team.size()) {
      out[i] = static_cast<int32_t>(FeistelPass(permutation, first + static_cast<uint32_t>(i)));
    }
    for (int i = team.rank(); i < n; i += team.size()) {
      uint32_t x = static_cast<uint32_t>(out[i]);
      while (x >= permutation.n) x = FeistelPass(permutation, x);
      out[i] = static_cast<int32_t>(x);
    }
  }
};

}  // namespace millrace
