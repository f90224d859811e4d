#include "common/metrics.h"

#include <cmath>
#include <utility>

namespace millrace {
namespace {

// A running mean: `weight` is of what `mean` already has.
void MergeMean(double value, double added, double& mean, double& weight) {
  if (std::isnan(value)) return;
  weight += added;
  mean = weight > added ? mean + (value - mean) * (added / weight) : value;
}

void Merge(const MetricsField& field, const MetricsRow& row, MetricsRow& merged, double& weight) {
  if (field.count != nullptr) {
    const uint64_t before = field.merge == MetricsMerge::kSum ? merged.*field.count : 0;
    merged.*field.count = before + row.*field.count;
    return;
  }
  const double value = row.*field.real;
  double& to = merged.*field.real;
  switch (field.merge) {
    case MetricsMerge::kMean:
      return MergeMean(value, 1, to, weight);
    case MetricsMerge::kRate:
      return MergeMean(value, row.ms_per_update, to, weight);
    case MetricsMerge::kMin:
      to = std::fmin(to, value);
      return;
    case MetricsMerge::kMax:
      to = std::fmax(to, value);
      return;
    case MetricsMerge::kLast:
    case MetricsMerge::kSum:
      to = value;
  }
}

}  // namespace

void MetricsWindow::Add(const MetricsRow& row) {
  if (rows_++ == 0) {
    merged_ = row;
    weight_.fill(0);
    for (size_t i = 0; i < weight_.size(); ++i) {
      const MetricsField& field = kMetricsFields[i];
      if (field.merge == MetricsMerge::kMean) weight_[i] = std::isnan(field.Value(row)) ? 0 : 1;
      if (field.merge == MetricsMerge::kRate) weight_[i] = row.ms_per_update;
    }
    return;
  }
  merged_.algorithm = row.algorithm;
  for (size_t i = 0; i < weight_.size(); ++i) Merge(kMetricsFields[i], row, merged_, weight_[i]);
}

// The first row stands as it is where it is the only one.
MetricsRow MetricsWindow::Take() {
  rows_ = 0;
  return merged_;
}

std::string_view FormatMetrics(const MetricsRow& row, std::span<char, kMaxMetricsLine> buffer) {
  TextCursor out(buffer);
  for (const MetricsField& field : kMetricsFields) {
    if (!field.In(row)) continue;
    out.Put(out.text().empty() ? "{\"" : ",\"");
    out.Put(field.name);
    out.Put("\":");
    if (field.count != nullptr) {
      out.PutNumber(row.*field.count);
    } else if (const double value = row.*field.real; std::isfinite(value)) {
      out.PutNumber(value);
    } else {
      out.Put("null");
    }
  }
  out.Put("}\n");
  return out.text();
}

StatusOr<MetricsWriter> MetricsWriter::Open(FileSystem& fs, const std::string& path, uint64_t last_update) {
  MILL_ASSIGN_OR_RETURN(auto lines, UpdateLines::Open(fs, path, last_update));
  return MetricsWriter(std::move(lines));
}

Status MetricsWriter::Append(const MetricsRow& row) {
  return lines_.Append(FormatMetrics(row, *buffer_));
}

}  // namespace millrace
