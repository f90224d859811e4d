// The random numbers of one episode: Philox keyed by its seed, drawn in order. Copy-free and allocation-free,
// made anew in ResetRow; an environment that draws later in an episode keeps a counter in its row state and
// passes it as `step`. Station: env_pool. One thread.
#pragma once

#include <cstdint>

#include "kernels/ops/philox.h"

namespace millrace {

class EpisodeRandom {
 public:
  explicit EpisodeRandom(uint64_t episode_seed, uint64_t step = 0) : seed_(episode_seed), step_(step) {}

  // [low, high) with 53 bits of the unit interval, as a generator of doubles would give.
  double Uniform(double low, double high) {
    if (half_ == 0) words_ = PhiloxAt(seed_, Purpose::kEnv, 0, step_, block_++);
    const double unit = UniformDouble(words_.v[2 * half_], words_.v[2 * half_ + 1]);
    half_ ^= 1;
    return low + (high - low) * unit;
  }

 private:
  uint64_t seed_, step_;
  uint32_t block_ = 0;
  uint32_t half_ = 0;  // of words_, which the next draw takes
  Philox4 words_{};
};

}  // namespace millrace
