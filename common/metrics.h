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

// Whose a number is; a line has those of its run's algorithm.
enum class MetricsOf : uint64_t { kAny, kPpo, kSac };

// What the learner measures in an update. A NaN is "not known" or another algorithm's.
struct LearnerMetrics {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

  MetricsOf algorithm = MetricsOf::kPpo;
  double entropy = kUnknown;
  double grad_norm = kUnknown;        // before clipping; sac: of the critics
  double policy_lag_mean = kUnknown;  // mode: async
  double policy_lag_max = kUnknown;

  double policy_loss = kUnknown;
  double value_loss = kUnknown;
  double approx_kl = kUnknown;
  double approx_kl_k1 = kUnknown;
  double clip_fraction = kUnknown;
  double rho_clip_fraction = kUnknown;  // mode: async with V-trace
  double explained_variance = kUnknown;
  double learning_rate = 0;
  double clip_range = 0;

  double critic_loss = kUnknown;
  double actor_loss = kUnknown;
  double alpha = kUnknown;
  double q_mean = kUnknown;
  double batch_mean = kUnknown;  // transitions of a gradient step, over those of the update
  double batch_min = kUnknown;
  double batch_max = kUnknown;
  uint64_t gradient_steps = 0;           // since the run began
  uint64_t replay_size = 0;              // transitions
  uint64_t q_exploded = 0;               // since the run began: gradient steps with Q beyond its bound
  uint64_t alpha_limited = 0;            // since the run began: gradient steps with alpha beyond its limit
  double samples_per_insert = kUnknown;  // since the run began
  double insert_wait_share = kUnknown;   // of the update's time: what came in waited for gradient steps
  double sample_wait_share = kUnknown;   // gradient steps waited for what was to come in
  double prefetch_share = kUnknown;      // batches were gathered, beside gradient steps
};

// One update, or the mean of several.
struct MetricsRow : LearnerMetrics {
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
  uint64_t episodes = 0;               // that ended in this update
  double resident_mb = 0;              // MiB
  double cpu_share = 0;                // CPU seconds a second of wall time and usable CPU: 0 to 1
  uint64_t updates_skipped = 0;        // since the run began, by on_nonfinite: skip
  double eval_return_mean = kUnknown;  // of an evaluation after this update
};

// What a line that stands for several updates has of them. A NaN counts for nothing.
enum class MetricsMerge : uint8_t {
  kLast,
  kMean,
  kSum,
  kMin,
  kMax,
  kRate
};  // kRate: a mean by ms_per_update

// A field by name; exactly one of `real` and `count` is set.
struct MetricsField {
  std::string_view name;
  std::string_view group;  // the TensorBoard tag is group/name; empty: the axis, not a curve
  double MetricsRow::*real = nullptr;
  uint64_t MetricsRow::*count = nullptr;
  MetricsMerge merge = MetricsMerge::kLast;
  MetricsOf of = MetricsOf::kAny;

  constexpr MetricsField(std::string_view name, std::string_view group, double MetricsRow::*field,
                         MetricsMerge merge, MetricsOf of = MetricsOf::kAny)
      : name(name), group(group), real(field), merge(merge), of(of) {}
  constexpr MetricsField(std::string_view name, std::string_view group, uint64_t MetricsRow::*field,
                         MetricsMerge merge, MetricsOf of = MetricsOf::kAny)
      : name(name), group(group), count(field), merge(merge), of(of) {}
  bool In(const MetricsRow& row) const { return of == MetricsOf::kAny || of == row.algorithm; }
  double Value(const MetricsRow& row) const {
    return real != nullptr ? row.*real : static_cast<double>(row.*count);
  }
};

inline constexpr std::array kMetricsFields = {
    MetricsField("update", "", &MetricsRow::update, MetricsMerge::kLast),
    MetricsField("steps", "", &MetricsRow::steps, MetricsMerge::kLast),
    MetricsField("seconds", "time", &MetricsRow::seconds, MetricsMerge::kLast),
    MetricsField("steps_per_second", "time", &MetricsRow::steps_per_second, MetricsMerge::kRate),
    MetricsField("ms_per_update", "time", &MetricsRow::ms_per_update, MetricsMerge::kMean),
    MetricsField("ms_rollout", "time", &MetricsRow::ms_rollout, MetricsMerge::kMean),
    MetricsField("ms_inference", "time", &MetricsRow::ms_inference, MetricsMerge::kMean),
    MetricsField("ms_update", "time", &MetricsRow::ms_update, MetricsMerge::kMean),
    MetricsField("ms_rest", "time", &MetricsRow::ms_rest, MetricsMerge::kMean),
    MetricsField("return_mean", "train", &MetricsRow::return_mean, MetricsMerge::kLast),
    MetricsField("return_min", "train", &MetricsRow::return_min, MetricsMerge::kMin),
    MetricsField("return_max", "train", &MetricsRow::return_max, MetricsMerge::kMax),
    MetricsField("length_mean", "train", &MetricsRow::length_mean, MetricsMerge::kLast),
    MetricsField("episodes", "train", &MetricsRow::episodes, MetricsMerge::kSum),
    MetricsField("policy_loss", "loss", &MetricsRow::policy_loss, MetricsMerge::kMean, MetricsOf::kPpo),
    MetricsField("value_loss", "loss", &MetricsRow::value_loss, MetricsMerge::kMean, MetricsOf::kPpo),
    MetricsField("entropy", "loss", &MetricsRow::entropy, MetricsMerge::kMean),
    MetricsField("approx_kl", "loss", &MetricsRow::approx_kl, MetricsMerge::kMean, MetricsOf::kPpo),
    MetricsField("approx_kl_k1", "loss", &MetricsRow::approx_kl_k1, MetricsMerge::kMean, MetricsOf::kPpo),
    MetricsField("clip_fraction", "loss", &MetricsRow::clip_fraction, MetricsMerge::kMean, MetricsOf::kPpo),
    MetricsField("rho_clip_fraction", "loss", &MetricsRow::rho_clip_fraction, MetricsMerge::kMean,
                 MetricsOf::kPpo),
    MetricsField("policy_lag_mean", "async", &MetricsRow::policy_lag_mean, MetricsMerge::kMean),
    MetricsField("policy_lag_max", "async", &MetricsRow::policy_lag_max, MetricsMerge::kMax),
    MetricsField("explained_variance", "loss", &MetricsRow::explained_variance, MetricsMerge::kMean,
                 MetricsOf::kPpo),
    MetricsField("grad_norm", "loss", &MetricsRow::grad_norm, MetricsMerge::kMean),
    MetricsField("learning_rate", "schedule", &MetricsRow::learning_rate, MetricsMerge::kLast,
                 MetricsOf::kPpo),
    MetricsField("clip_range", "schedule", &MetricsRow::clip_range, MetricsMerge::kLast, MetricsOf::kPpo),
    MetricsField("critic_loss", "loss", &MetricsRow::critic_loss, MetricsMerge::kMean, MetricsOf::kSac),
    MetricsField("actor_loss", "loss", &MetricsRow::actor_loss, MetricsMerge::kMean, MetricsOf::kSac),
    MetricsField("alpha", "loss", &MetricsRow::alpha, MetricsMerge::kLast, MetricsOf::kSac),
    MetricsField("q_mean", "loss", &MetricsRow::q_mean, MetricsMerge::kMean, MetricsOf::kSac),
    MetricsField("batch_mean", "replay", &MetricsRow::batch_mean, MetricsMerge::kMean, MetricsOf::kSac),
    MetricsField("batch_min", "replay", &MetricsRow::batch_min, MetricsMerge::kMin, MetricsOf::kSac),
    MetricsField("batch_max", "replay", &MetricsRow::batch_max, MetricsMerge::kMax, MetricsOf::kSac),
    MetricsField("gradient_steps", "replay", &MetricsRow::gradient_steps, MetricsMerge::kLast,
                 MetricsOf::kSac),
    MetricsField("q_exploded", "system", &MetricsRow::q_exploded, MetricsMerge::kLast, MetricsOf::kSac),
    MetricsField("alpha_limited", "system", &MetricsRow::alpha_limited, MetricsMerge::kLast, MetricsOf::kSac),
    MetricsField("replay_size", "replay", &MetricsRow::replay_size, MetricsMerge::kLast, MetricsOf::kSac),
    MetricsField("samples_per_insert", "replay", &MetricsRow::samples_per_insert, MetricsMerge::kLast,
                 MetricsOf::kSac),
    MetricsField("insert_wait_share", "replay", &MetricsRow::insert_wait_share, MetricsMerge::kMean,
                 MetricsOf::kSac),
    MetricsField("sample_wait_share", "replay", &MetricsRow::sample_wait_share, MetricsMerge::kMean,
                 MetricsOf::kSac),
    MetricsField("prefetch_share", "replay", &MetricsRow::prefetch_share, MetricsMerge::kMean,
                 MetricsOf::kSac),
    MetricsField("resident_mb", "system", &MetricsRow::resident_mb, MetricsMerge::kLast),
    MetricsField("cpu_share", "system", &MetricsRow::cpu_share, MetricsMerge::kLast),
    MetricsField("updates_skipped", "system", &MetricsRow::updates_skipped, MetricsMerge::kLast),
    MetricsField("eval_return_mean", "eval", &MetricsRow::eval_return_mean, MetricsMerge::kLast),
};

// The updates since the last line, as one row.
class MetricsWindow {
 public:
  void Add(const MetricsRow& row);
  bool empty() const { return rows_ == 0; }
  // Begins anew. There must be one.
  MetricsRow Take();

 private:
  MetricsRow merged_;
  std::array<double, kMetricsFields.size()> weight_{};  // of what is summed, by field
  uint64_t rows_ = 0;
};

// Enough for every row: the names and some forty numbers of at most 24 characters.
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
