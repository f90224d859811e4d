#include "actor/uniform_actions.h"

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {
constexpr int kWords = 4;  // of one Philox block

// One of the options that the mask allows, and its log-prob.
float Choose(float uniform, int options, const uint8_t* mask, int32_t* action) {
  int allowed = options;
  if (mask != nullptr)
    allowed = static_cast<int>(std::count_if(mask, mask + options, [](uint8_t m) { return m != 0; }));
  if (allowed == 0) {
    *action = 0;
    return 0;
  }
  int left = std::min(static_cast<int>(uniform * static_cast<float>(allowed)), allowed - 1);
  int chosen = 0;
  while (mask != nullptr && (mask[chosen] == 0 || left-- > 0)) ++chosen;
  *action = mask != nullptr ? chosen : left;
  return -std::log(static_cast<float>(allowed));
}
}  // namespace

UniformActions::UniformActions(const ActionSpec& action) : action_(action) {
  for (int d = 0; action_.box() && d < action_.width(); ++d) {
    log_density_ -= std::log(action_.high[static_cast<size_t>(d)] - action_.low[static_cast<size_t>(d)]);
  }
}

void UniformActions::Act(const SegmentView& segment, int t, uint64_t seed, Purpose purpose,
                         uint32_t first_row, uint64_t step) const {
  const int rows = segment.layout().rows(), width = action_.width();
  const size_t offset = static_cast<size_t>(t) * static_cast<size_t>(rows);
  for (int r = 0; r < rows; ++r) {
    const size_t at = offset + static_cast<size_t>(r);
    float log_prob = action_.box() ? log_density_ : 0.0f;
    const uint8_t* mask = segment.mask();
    if (mask != nullptr) mask += at * static_cast<size_t>(action_.outputs());
    Philox4 words{};
    for (int d = 0; d < width; ++d) {
      if (d % kWords == 0) {
        words = PhiloxAt(seed, purpose, first_row + static_cast<uint32_t>(r), step,
                         static_cast<uint32_t>(d / kWords));
      }
      const float uniform = UniformFloat(words.v[d % kWords]);
      const size_t to = at * static_cast<size_t>(width) + static_cast<size_t>(d);
      if (action_.box()) {
        const float low = action_.low[static_cast<size_t>(d)], high = action_.high[static_cast<size_t>(d)];
        static_cast<float*>(segment.action())[to] = low + uniform * (high - low);
      } else {
        const int options = action_.nvec[static_cast<size_t>(d)];
        log_prob += Choose(uniform, options, mask, static_cast<int32_t*>(segment.action()) + to);
        if (mask != nullptr) mask += options;
      }
    }
    segment.log_prob()[at] = log_prob;
  }
}

}  // namespace millrace
