#include "cli/tune.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/human.h"
#include "common/status.h"

namespace millrace {
namespace {

constexpr int kTextWidth = 78;

double MillisecondsOf(const TunedSize& size) {
  return 1000 / size.updates_per_second;
}

// Rounded down, so that what falls short of the knee's share does not read as if it reached it.
std::string Percent(double share) {
  return absl::StrFormat("%.0f%%", std::floor(100 * share + 1e-9));
}

// Three figures, also where there are few a second.
std::string Rate(double rate) {
  return rate < 999.5 ? absl::StrFormat("%.3g", rate) : FormatCount(rate);
}

// What stands behind a size's line.
std::string NoteOf(const BatchTuning& tuning, size_t i) {
  const bool now = tuning.sizes[i].batch == tuning.configured, proposed = i == KneeSize(tuning.sizes);
  return now && proposed ? "now and proposed" : now ? "now" : proposed ? "proposed" : "";
}

std::string Table(const BatchTuning& tuning) {
  const double best = tuning.sizes[BestSize(tuning.sizes)].samples_per_second;
  std::string text = absl::StrFormat("%9s %11s %11s %11s %8s %8s\n", "batch", "updates/s", "samples/s",
                                     "ms/update", "of best", "spread");
  for (size_t i = 0; i < tuning.sizes.size(); ++i) {
    const TunedSize& size = tuning.sizes[i];
    const std::string note = NoteOf(tuning, i);
    absl::StrAppendFormat(&text, "%9d %11s %11s %11s %8s %8s%s\n", size.batch, Rate(size.updates_per_second),
                          Rate(size.samples_per_second), FormatReal(MillisecondsOf(size)),
                          Percent(size.samples_per_second / best), Percent(size.spread),
                          note.empty() ? "" : absl::StrCat("  ", note));
  }
  return text;
}

// Where the rates do not agree, the proposal is a guess.
std::string Doubt(const BatchTuning& tuning) {
  double most = 0;
  for (const TunedSize& size : tuning.sizes) most = std::max(most, size.spread);
  if (most <= kMostSpread) return "";
  return absl::StrCat("The rates of a size spread by ", Percent(most),
                      ": the machine has other work. Measure again when\nit has not, or with a larger "
                      "--seconds.\n");
}

// The proposed size against the present one, where that was measured: what changes for the learner.
std::string Comparison(const BatchTuning& tuning) {
  const TunedSize& knee = tuning.sizes[KneeSize(tuning.sizes)];
  for (const TunedSize& now : tuning.sizes) {
    if (now.batch != tuning.configured) continue;
    if (now.batch == knee.batch) return absl::StrCat("It is the present size.\n");
    return absl::StrFormat("Against %d: %s times the samples an update, in %s times the time.\n", now.batch,
                           FormatReal(static_cast<double>(knee.batch) / now.batch),
                           absl::StrFormat("%.2f", MillisecondsOf(knee) / MillisecondsOf(now)));
  }
  return "";
}

// The knee of the sizes measured need not be that of all.
std::string Edge(const BatchTuning& tuning) {
  const size_t knee = KneeSize(tuning.sizes);
  const uint32_t batch = tuning.sizes[knee].batch;
  if (knee + 1 == tuning.sizes.size() && knee > 0 && !tuning.larger.empty()) {
    return absl::StrCat("It is the largest size measured, and larger ones may be faster still:\n  --sizes ",
                        batch, ",", absl::StrJoin(tuning.larger, ","), "\n");
  }
  if (knee == 0 && !tuning.smaller.empty()) {
    return absl::StrCat("It is the smallest size measured, and a smaller one may do as well:\n  --sizes ",
                        absl::StrJoin(tuning.smaller, ","), ",", batch, "\n");
  }
  return "";
}

std::string Proposal(const BatchTuning& tuning) {
  const TunedSize& knee = tuning.sizes[KneeSize(tuning.sizes)];
  return absl::StrCat("Proposed: ", knee.batch, ", the smallest size with at least ", Percent(kKneeShare),
                      " of the best samples/s.\n", Edge(tuning), Comparison(tuning), Doubt(tuning),
                      "This is of speed alone; how a size learns, only training tells.\n\n  --set ",
                      tuning.setting, "=", knee.batch, "\n");
}

}  // namespace

const char* BatchSetting(const RunOptions& options) {
  return IsSac(options) ? "sac.batch_size" : "ppo.minibatch_size";
}

uint32_t BatchSize(const RunOptions& options) {
  return IsSac(options) ? options.sac.batch_size : options.ppo.minibatch_size;
}

RunOptions WithBatchSize(const RunOptions& options, uint32_t size) {
  RunOptions changed = options;
  (IsSac(options) ? changed.sac.batch_size : changed.ppo.minibatch_size) = size;
  return changed;
}

std::vector<uint32_t> SizesAround(uint32_t configured) {
  std::vector<uint32_t> sizes = {configured};
  for (uint64_t size = 1; size <= uint64_t{configured} * 8 && size <= UINT32_MAX; size *= 2) {
    if (size * 8 >= configured) sizes.push_back(static_cast<uint32_t>(size));
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

size_t BestSize(std::span<const TunedSize> sizes) {
  MILL_CHECK(!sizes.empty());
  const auto best = std::max_element(sizes.begin(), sizes.end(), [](const TunedSize& a, const TunedSize& b) {
    return a.samples_per_second < b.samples_per_second;
  });
  return static_cast<size_t>(best - sizes.begin());
}

size_t KneeSize(std::span<const TunedSize> sizes) {
  const double enough = kKneeShare * sizes[BestSize(sizes)].samples_per_second;
  size_t i = 0;
  while (sizes[i].samples_per_second < enough) ++i;
  return i;
}

std::string PlotSizes(const BatchTuning& tuning, int width) {
  const double best = tuning.sizes[BestSize(tuning.sizes)].samples_per_second;
  constexpr int kLabel = 10;  // the size and its line
  constexpr int kNote = 18;   // two spaces and the longest note
  const int bar = std::max(40, width) - kLabel - 1 - kNote;
  const auto mark = static_cast<size_t>(std::ceil(kKneeShare * bar)) - 1;
  std::string text;
  for (size_t i = 0; i < tuning.sizes.size(); ++i) {
    const auto filled = static_cast<size_t>(std::lround(bar * tuning.sizes[i].samples_per_second / best));
    std::string line(static_cast<size_t>(bar), ' ');
    line[mark] = ':';
    std::fill_n(line.begin(), filled, '#');
    const std::string note = NoteOf(tuning, i);
    absl::StrAppendFormat(&line, "%s", note.empty() ? "" : absl::StrCat("  ", note));
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppendFormat(&text, "%9d |%s\n", tuning.sizes[i].batch, line);
  }
  return text;
}

std::string ToText(const BatchTuning& tuning) {
  const double best = tuning.sizes[BestSize(tuning.sizes)].samples_per_second;
  return absl::StrCat(Table(tuning), "\nSamples/s; the longest bar is ", FormatCount(best), ", ':' is ",
                      Percent(kKneeShare), " of it\n", PlotSizes(tuning, kTextWidth), "\n", Proposal(tuning));
}

std::string ToJson(const BatchTuning& tuning) {
  const double best = tuning.sizes[BestSize(tuning.sizes)].samples_per_second;
  nlohmann::ordered_json sizes = nlohmann::ordered_json::array();
  for (const TunedSize& size : tuning.sizes) {
    sizes.push_back({{"batch", size.batch},
                     {"updates_per_second", size.updates_per_second},
                     {"samples_per_second", size.samples_per_second},
                     {"ms_per_update", MillisecondsOf(size)},
                     {"spread", size.spread},
                     {"share_of_best", size.samples_per_second / best}});
  }
  const uint32_t knee = tuning.sizes[KneeSize(tuning.sizes)].batch;
  const nlohmann::ordered_json json = {
      {"source", tuning.source},           {"setting", tuning.setting},
      {"configured", tuning.configured},   {"threads", tuning.threads},
      {"cpu_kernels", tuning.cpu_kernels}, {"sizes", sizes},
      {"knee_share", kKneeShare},          {"proposed", knee},
      {"at_edge", Edge(tuning) != ""},     {"set", absl::StrCat(tuning.setting, "=", knee)}};
  return json.dump();
}

}  // namespace millrace
