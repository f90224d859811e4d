// Philox4x32-10, the counter-based generator of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"
// (SC 2011). Every random number of Millrace is Philox of (seed, purpose, global row, step), so neither
// threads nor batch shapes change a stream. Host and device, no state.
#pragma once

#include "kernels/core/target.h"

namespace millrace {

// What a stream is for: part of the key, so streams never overlap.
enum class Purpose : uint32_t {
  kAction = 1,
  kEpisode = 2,
  kInit = 3,
  kShuffle = 4,
  kEnv = 5,
  kEval = 6,
  kTest = 7,
  kReplay = 8,
  kSacTarget = 9,   // the next action, of which the target is made
  kSacPolicy = 10,  // the action that the policy is improved by
  kSacCritics = 11
};

struct Philox4 {
  uint32_t v[4];
};

MILL_HD Philox4 Philox(Philox4 c, uint32_t k0, uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = 0xD2511F53ull * c.v[0];
    const uint64_t p1 = 0xCD9E8D57ull * c.v[2];
    c = Philox4{{static_cast<uint32_t>(p1 >> 32) ^ c.v[1] ^ k0, static_cast<uint32_t>(p1),
                 static_cast<uint32_t>(p0 >> 32) ^ c.v[3] ^ k1, static_cast<uint32_t>(p0)}};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// The block of four words for (seed, purpose, row, step); `block` numbers further blocks of the same step.
MILL_HD Philox4 PhiloxAt(uint64_t seed, Purpose purpose, uint32_t row, uint64_t step, uint32_t block = 0) {
  const Philox4 counter{{static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32), row, block}};
  return Philox(counter, static_cast<uint32_t>(seed),
                static_cast<uint32_t>(seed >> 32) ^ (static_cast<uint32_t>(purpose) * 0x9E3779B9u));
}

// [0, 1) with 24 bits.
MILL_HD float UniformFloat(uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}
// [0, 1) with 53 bits.
MILL_HD double UniformDouble(uint32_t hi, uint32_t lo) {
  return static_cast<double>((static_cast<uint64_t>(hi) << 21) ^ (lo >> 11)) * 0x1p-53;
}

}  // namespace millrace
