#include <cmath>
#include <cstring>
#include <string_view>

#include "common/segment.h"
#include "common/text.h"

namespace millrace {
namespace {

Status Refused(std::string_view column, size_t index, std::string_view what) {
  return absl::InvalidArgumentError(Cat("segment: ", column, "[", index, "] ", what));
}

// The loops over whole columns only gather bits, so that they vectorize; the place is looked for afterwards.
Status CheckBits(std::string_view column, const uint8_t* x, size_t n) {
  uint8_t all = 0;
  for (size_t i = 0; i < n; ++i) all |= x[i];
  if (all <= 1) return absl::OkStatus();
  size_t i = 0;
  while (x[i] <= 1) ++i;
  return Refused(column, i, Cat("is ", static_cast<int>(x[i]), "; it must be 0 or 1"));
}

Status CheckFinite(std::string_view column, const std::byte* bytes, size_t n) {
  const auto* x = reinterpret_cast<const float*>(bytes);
  uint32_t bad = 0;
  for (size_t i = 0; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, x + i, sizeof(bits));
    bad |= static_cast<uint32_t>((bits & 0x7f800000u) == 0x7f800000u);
  }
  if (bad == 0) return absl::OkStatus();
  size_t i = 0;
  while (std::isfinite(x[i])) ++i;
  return Refused(column, i, "is not finite");
}

Status CheckCounts(const SegmentView& segment) {
  const SegmentLayout& layout = segment.layout();
  if (segment.final_count() < 0 || segment.final_count() > layout.final_capacity()) {
    return absl::InvalidArgumentError(Cat("segment: final_count is ", segment.final_count(),
                                          "; the table holds ", layout.final_capacity()));
  }
  if (segment.episode_count() < 0 || segment.episode_count() > layout.samples()) {
    return absl::InvalidArgumentError(Cat("segment: episode_count is ", segment.episode_count(),
                                          "; the segment has ", layout.samples(), " steps"));
  }
  return absl::OkStatus();
}

Status CheckObservations(const SegmentView& segment) {
  const SegmentLayout& layout = segment.layout();
  for (size_t a = 0; a < layout.spec().observations.size(); ++a) {
    const ArraySpec& array = layout.spec().observations[a];
    if (array.dtype != DType::kF32) continue;
    const auto elements = static_cast<size_t>(array.elements());
    const auto rows = static_cast<size_t>(layout.samples() + layout.rows());
    const int i = static_cast<int>(a);
    MILL_RETURN_IF_ERROR(
        CheckFinite(Cat("observation `", array.name, "`"), segment.obs(i, 0), rows * elements));
    if (segment.final_count() == 0) continue;
    MILL_RETURN_IF_ERROR(CheckFinite(Cat("final observation `", array.name, "`"), segment.final_obs(i, 0),
                                     static_cast<size_t>(segment.final_count()) * elements));
  }
  return absl::OkStatus();
}

// A masked action is refused only where its log-prob is finite: a diverged network may sample one.
Status CheckActions(const SegmentView& segment) {
  const ActionSpec& space = segment.layout().spec().action;
  if (space.box()) return absl::OkStatus();
  const auto* action = static_cast<const int32_t*>(segment.action());
  const uint8_t* mask = segment.mask();
  const auto heads = space.nvec.size(), outputs = static_cast<size_t>(space.outputs());
  for (size_t i = 0; i < static_cast<size_t>(segment.layout().samples()); ++i) {
    size_t first = 0;
    for (size_t h = 0; h < heads; ++h) {
      const int32_t a = action[i * heads + h];
      if (a < 0 || a >= space.nvec[h]) {
        return Refused("action", i * heads + h, Cat("is ", a, "; there are ", space.nvec[h]));
      }
      if (mask != nullptr && mask[i * outputs + first + static_cast<size_t>(a)] == 0 &&
          std::isfinite(segment.log_prob()[i])) {
        return Refused("action", i * heads + h, Cat("is ", a, ", which the mask forbids"));
      }
      first += static_cast<size_t>(space.nvec[h]);
    }
  }
  return absl::OkStatus();
}

// The table has each valid step that was truncated only, once and in order; other entries are refused.
Status CheckFinals(const SegmentView& segment) {
  const int32_t* index = segment.final_index();
  const int32_t count = segment.final_count();
  int32_t entry = 0;
  for (int32_t i = 0; i < segment.layout().samples(); ++i) {
    const bool listed = entry < count && index[entry] == i;
    const bool bootstraps = segment.truncated()[i] != 0 && segment.terminated()[i] == 0;
    if (listed && !bootstraps) {
      return Refused("final_index", static_cast<size_t>(entry),
                     Cat("is step ", i, ", which was not truncated"));
    }
    if (!listed && bootstraps && segment.valid()[i] != 0) {
      return Refused("truncated", static_cast<size_t>(i), "has no final observation");
    }
    entry += listed ? 1 : 0;
  }
  if (entry == count) return absl::OkStatus();
  return Refused("final_index", static_cast<size_t>(entry),
                 Cat("is ", index[entry], "; steps of the segment in rising order belong here"));
}

Status CheckEpisodes(const SegmentView& segment) {
  int32_t last = -1;
  for (int32_t e = 0; e < segment.episode_count(); ++e) {
    const EpisodeRecord& episode = segment.episodes()[e];
    const auto at = static_cast<size_t>(e);
    if (episode.index <= last || episode.index >= segment.layout().samples()) {
      return Refused(
          "episodes", at,
          Cat("ends at step ", episode.index, "; steps rise, up to ", segment.layout().samples() - 1));
    }
    if ((segment.terminated()[episode.index] | segment.truncated()[episode.index]) == 0) {
      return Refused("episodes", at, Cat("ends at step ", episode.index, ", where no episode ended"));
    }
    if (episode.length < 1 || !std::isfinite(episode.ret)) {
      return Refused("episodes", at, "has no length, or a return that is not finite");
    }
    last = episode.index;
  }
  return absl::OkStatus();
}

Status CheckVersions(const SegmentView& segment) {
  const uint64_t* version = segment.policy_version();
  for (int t = 1; t < segment.layout().steps(); ++t) {
    if (version[t] < version[t - 1]) {
      return Refused("policy_version", static_cast<size_t>(t), "is older than the one before it");
    }
  }
  return absl::OkStatus();
}

}  // namespace

Status CheckSegment(const SegmentView& segment) {
  const SegmentLayout& layout = segment.layout();
  const auto samples = static_cast<size_t>(layout.samples());
  MILL_RETURN_IF_ERROR(CheckCounts(segment));
  MILL_RETURN_IF_ERROR(CheckBits("terminated", segment.terminated(), samples));
  MILL_RETURN_IF_ERROR(CheckBits("truncated", segment.truncated(), samples));
  MILL_RETURN_IF_ERROR(CheckBits("valid", segment.valid(), samples));
  if (segment.mask() != nullptr) {
    MILL_RETURN_IF_ERROR(CheckBits("mask", segment.mask(),
                                   (samples + static_cast<size_t>(layout.rows())) *
                                       static_cast<size_t>(layout.spec().action.outputs())));
  }
  MILL_RETURN_IF_ERROR(CheckFinite("reward", reinterpret_cast<std::byte*>(segment.reward()), samples));
  MILL_RETURN_IF_ERROR(CheckObservations(segment));
  MILL_RETURN_IF_ERROR(CheckActions(segment));
  MILL_RETURN_IF_ERROR(CheckVersions(segment));
  MILL_RETURN_IF_ERROR(CheckFinals(segment));
  return CheckEpisodes(segment);
}

}  // namespace millrace
