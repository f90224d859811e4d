// What a run measures at each update, and the file metrics.jsonl that keeps it: one JSON object a line.
// Owner: the run's loop. Threads: one. Station: behind the update.
// In the steady state nothing is allocated, and nothing grows but the file.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "common/file_system.h"
#include "common/status.h"
#include "common/update_lines.h"

namespace millrace {

// One update. A NaN is "not known" (no episode ended yet): null in the file, no point in TensorBoard.
struct MetricsRow {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

  uint64_t update = 0;
  uint64_t steps = 0;           // environment steps since the run began
  double seconds = 0;           // since the run began, resumed parts included
  double steps_per_second = 0;  // of this update
  double ms_per_update = 0;     // wall time, the sum of rollout, update and rest
  double ms_rollout = 0;        // environments and inference
  double ms_inference = 0;      // the part of ms_rollout that was spent in the network
  double ms_update = 0;
  double ms_rest = 0;
  double return_mean = kUnknown;  // of the episodes in the window of recent ones
  double return_min = kUnknown;
  double return_max = kUnknown;
  double length_mean = kUnknown;
  uint64_t episodes = 0;  // that ended in this update
  double policy_loss = kUnknown;
  double value_loss = kUnknown;
  double entropy = kUnknown;
  double approx_kl = kUnknown;
  double approx_kl_k1 = kUnknown;
  double clip_fraction = kUnknown;
  double rho_clip_fraction = kUnknown;  // mode: async with V-trace, as are the lags (mode: async)
  double policy_lag_mean = kUnknown;
  double policy_lag_max = kUnknown;
  double explained_variance = kUnknown;
  double grad_norm = kUnknown;  // before clipping
  double learning_rate = 0;
  double clip_range = 0;
  double resident_mb = 0;              // MiB
  double cpu_share = 0;                // CPU seconds a second of wall time and usable CPU: 0 to 1
  uint64_t updates_skipped = 0;        // since the run began, by on_nonfinite: skip
  double eval_return_mean = kUnknown;  // of an evaluation after this update
};

// A field by name; exactly one of `real` and `count` is set.
struct MetricsField {
  std::string_view name;
  std::string_view group;  // the TensorBoard tag is group/name; empty: the axis, not a curve
  double MetricsRow::*real = nullptr;
  uint64_t MetricsRow::*count = nullptr;

  constexpr MetricsField(std::string_view name, std::string_view group, double MetricsRow::*field)
      : name(name), group(group), real(field) {}
  constexpr MetricsField(std::string_view name, std::string_view group, uint64_t MetricsRow::*field)
      : name(name), group(group), count(field) {}
  double Value(const MetricsRow& row) const {
    return real != nullptr ? row.*real : static_cast<double>(row.*count);
  }
};

inline constexpr std::array kMetricsFields = {
    MetricsField("update", "", &MetricsRow::update),
    MetricsField("steps", "", &MetricsRow::steps),
    MetricsField("seconds", "time", &MetricsRow::seconds),
    MetricsField("steps_per_second", "time", &MetricsRow::steps_per_second),
    MetricsField("ms_per_update", "time", &MetricsRow::ms_per_update),
    MetricsField("ms_rollout", "time", &MetricsRow::ms_rollout),
    MetricsField("ms_inference", "time", &MetricsRow::ms_inference),
    MetricsField("ms_update", "time", &MetricsRow::ms_update),
    MetricsField("ms_rest", "time", &MetricsRow::ms_rest),
    MetricsField("return_mean", "train", &MetricsRow::return_mean),
    MetricsField("return_min", "train", &MetricsRow::return_min),
    MetricsField("return_max", "train", &MetricsRow::return_max),
    MetricsField("length_mean", "train", &MetricsRow::length_mean),
    MetricsField("episodes", "train", &MetricsRow::episodes),
    MetricsField("policy_loss", "loss", &MetricsRow::policy_loss),
    MetricsField("value_loss", "loss", &MetricsRow::value_loss),
    MetricsField("entropy", "loss", &MetricsRow::entropy),
    MetricsField("approx_kl", "loss", &MetricsRow::approx_kl),
    MetricsField("approx_kl_k1", "loss", &MetricsRow::approx_kl_k1),
    MetricsField("clip_fraction", "loss", &MetricsRow::clip_fraction),
    MetricsField("rho_clip_fraction", "loss", &MetricsRow::rho_clip_fraction),
    MetricsField("policy_lag_mean", "async", &MetricsRow::policy_lag_mean),
    MetricsField("policy_lag_max", "async", &MetricsRow::policy_lag_max),
    MetricsField("explained_variance", "loss", &MetricsRow::explained_variance),
    MetricsField("grad_norm", "loss", &MetricsRow::grad_norm),
    MetricsField("learning_rate", "schedule", &MetricsRow::learning_rate),
    MetricsField("clip_range", "schedule", &MetricsRow::clip_range),
    MetricsField("resident_mb", "system", &MetricsRow::resident_mb),
    MetricsField("cpu_share", "system", &MetricsRow::cpu_share),
    MetricsField("updates_skipped", "system", &MetricsRow::updates_skipped),
    MetricsField("eval_return_mean", "eval", &MetricsRow::eval_return_mean),
};

// Enough for every row: the names and some thirty numbers of at most 24 characters.
inline constexpr size_t kMaxMetricsLine = 2048;

// The row as one line of JSON with its newline, in `buffer`; numbers as short as reads back to the same bits.
std::string_view FormatMetrics(const MetricsRow& row, std::span<char, kMaxMetricsLine> buffer);

class MetricsWriter {
 public:
  // Goes on in the file at `path`, created where it is missing. Lines of updates after `last_update`, the
  // update that the run resumes from (0 for a new run), are cut off, and so is a torn last line and all that
  // follows one. `fs` is used in Open only.
  static StatusOr<MetricsWriter> Open(FileSystem& fs, const std::string& path, uint64_t last_update);

  // Writes the line in one call, so a reader of the live file sees whole lines. A disk that fills up is an
  // error, and the part of the line that went in is taken back.
  Status Append(const MetricsRow& row);

 private:
  explicit MetricsWriter(UpdateLines lines)
      : lines_(std::move(lines)), buffer_(std::make_unique<std::array<char, kMaxMetricsLine>>()) {}

  UpdateLines lines_;
  std::unique_ptr<std::array<char, kMaxMetricsLine>> buffer_;
};

}  // namespace millrace
