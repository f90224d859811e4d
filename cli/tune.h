// `millrace tune batch`: what is made of the speeds that were measured over batch sizes - which sizes, the
// knee, and how it is shown. Owner: none, these are pure functions; any thread. Station: none, it is beside a
// run. The measuring itself is in cli/tune_measure.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/options.h"

namespace millrace {

// A proposed size has at least this share of the samples/s of the best one.
inline constexpr double kKneeShare = 0.9;

struct TunedSize {
  uint32_t batch = 0;             // samples of an update
  double updates_per_second = 0;  // gradient steps; reached by a quarter of the measurements
  double samples_per_second = 0;  // trained on
  double spread = 0;              // of the measurements: how wide their middle half is, over that rate
};

struct BatchTuning {
  std::string source;       // the preset or file
  std::string setting;      // whose value the sizes are, "sac.batch_size"
  uint32_t configured = 0;  // its value as it is
  int threads = 1;
  std::string cpu_kernels;       // of the matrix products
  std::vector<TunedSize> sizes;  // rising; at least one
  // Beyond these, what else the configuration allows; rising.
  std::vector<uint32_t> smaller, larger;
};

// The setting that holds the samples of a gradient step.
const char* BatchSetting(const RunOptions& options);
uint32_t BatchSize(const RunOptions& options);
RunOptions WithBatchSize(const RunOptions& options, uint32_t size);

// Powers of two from an eighth of `configured` to eight times as many, and itself; rising.
std::vector<uint32_t> SizesAround(uint32_t configured);

// Above it a measurement is called unsure.
inline constexpr double kMostSpread = 0.15;

// Indices into the sizes: of the most samples/s; and of the smallest size with kKneeShare of them.
size_t BestSize(std::span<const TunedSize> sizes);
size_t KneeSize(std::span<const TunedSize> sizes);

// Samples/s as a bar a size, in ASCII: lines of at most `width` characters, each with its newline; a column
// of ':' where kKneeShare of the best is. At least 40 characters are taken.
std::string PlotSizes(const BatchTuning& tuning, int width);

// Table, plot and proposal.
std::string ToText(const BatchTuning& tuning);
// One object.
std::string ToJson(const BatchTuning& tuning);

}  // namespace millrace
