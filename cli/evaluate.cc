#include "cli/evaluate.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "actor/env_pool.h"

namespace millrace {
namespace {
constexpr int kMaxRows = 128;
constexpr int kHorizon = 64;
constexpr uint64_t kMaxSteps = 1'000'000;
constexpr uint64_t kSeedOffset = 0x6576616cull;  // evaluation never repeats a training episode

// Takes each row's first episodes up to its quota.
class Collector {
 public:
  Collector(int episodes, int rows) : rows_(static_cast<size_t>(rows)) {
    for (int i = 0; i < episodes; ++i) ++rows_[static_cast<size_t>(i % rows)].quota;
    missing_ = episodes;
  }
  void Take(const EnvPool& pool) {
    for (size_t g = 0; g < pool.groups().size(); ++g) {
      const SegmentView& segment = pool.segments()[g];
      for (int e = 0; e < segment.episode_count(); ++e) {
        const EpisodeRecord& record = segment.episodes()[e];
        Row& row = rows_[pool.groups()[g]->first_row() +
                         static_cast<size_t>(record.index % segment.layout().rows())];
        if (row.returns.size() == row.quota) continue;
        row.returns.push_back(record.ret);
        row.lengths.push_back(record.length);
        --missing_;
      }
    }
  }
  int missing() const { return missing_; }
  EvalResult Finish() const {
    EvalResult result;
    for (const Row& row : rows_) {
      result.returns.insert(result.returns.end(), row.returns.begin(), row.returns.end());
      result.lengths.insert(result.lengths.end(), row.lengths.begin(), row.lengths.end());
    }
    const auto n = static_cast<double>(result.returns.size());
    for (size_t i = 0; i < result.returns.size(); ++i) {
      result.return_mean += result.returns[i] / n;
      result.length_mean += result.lengths[i] / n;
    }
    for (double r : result.returns)
      result.return_std += (r - result.return_mean) * (r - result.return_mean) / n;
    result.return_std = std::sqrt(result.return_std);
    const auto [low, high] = std::minmax_element(result.returns.begin(), result.returns.end());
    result.return_min = *low;
    result.return_max = *high;
    return result;
  }

 private:
  struct Row {
    size_t quota = 0;
    std::vector<double> returns, lengths;
  };
  std::vector<Row> rows_;
  int missing_ = 0;
};

}  // namespace

StatusOr<EvalResult> Evaluate(const EnvSection& env, const PolicyView& policy, int episodes, uint64_t seed,
                              ThreadPool& threads, bool (*stop)()) {
  EnvSection own = env;
  own.rows = static_cast<uint32_t>(std::min(episodes, kMaxRows));
  own.group_rows = 0;
  MILL_ASSIGN_OR_RETURN(auto pool, EnvPool::Make(own, seed ^ kSeedOffset, kHorizon, threads));
  Collector collector(episodes, static_cast<int>(own.rows));
  const uint64_t most_steps = kMaxSteps * ((static_cast<uint64_t>(episodes) + own.rows - 1) / own.rows);
  for (uint64_t step = 0; collector.missing() > 0; step += kHorizon) {
    if (stop != nullptr && stop()) return absl::CancelledError("stopped before its episodes had ended");
    if (step > most_steps) {
      return absl::DeadlineExceededError(absl::StrCat(env.id, ": ", collector.missing(), " of ", episodes,
                                                      " evaluation episodes did not end within ", kMaxSteps,
                                                      " steps; set env.time_limit"));
    }
    pool->Collect(policy, step, /*deterministic=*/true);
    if (pool->fault() != nullptr) return pool->fault()->ToStatus();
    collector.Take(*pool);
  }
  return collector.Finish();
}

}  // namespace millrace
