#include "common/metrics.h"

#include <cmath>
#include <utility>

namespace millrace {

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
