#include "actor/row_group.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "kernels/ops/philox.h"

namespace millrace {
namespace {

// True when any of n floats is infinite or NaN; a plain integer loop, so that it vectorizes.
bool AnyNonfinite(const float* x, size_t n) {
  uint32_t bad = 0;
  for (size_t i = 0; i < n; ++i) bad |= static_cast<uint32_t>((BitsOf(x[i]) & 0x7f800000u) == 0x7f800000u);
  return bad != 0;
}

template <class T>
void Put(std::byte*& out, const T& value) {
  std::memcpy(out, &value, sizeof(T));
  out += sizeof(T);
}
template <class T>
void Get(const std::byte*& in, T& value) {
  std::memcpy(&value, in, sizeof(T));
  in += sizeof(T);
}

}  // namespace

Status EnvFault::ToStatus() const {
  return absl::DataLossError(
      absl::StrCat(env, ": ", what, " of row ", row, " is not finite at step ", step,
                   " of its episode; run.on_nonfinite=skip drops such updates and counts them"));
}

StatusOr<std::unique_ptr<RowGroup>> RowGroup::Make(const EnvSection& options, uint64_t seed,
                                                   uint32_t first_row, int rows) {
  MILL_ASSIGN_OR_RETURN(auto env, MakeEnv(options.id, rows, options.params));
  return Wrap(std::move(env), options, seed, first_row);
}

std::unique_ptr<RowGroup> RowGroup::Wrap(std::unique_ptr<Env> env, const EnvSection& options, uint64_t seed,
                                         uint32_t first_row) {
  auto group = std::unique_ptr<RowGroup>(new RowGroup);
  group->env_ = std::move(env);
  const EnvSpec& raw = group->env_->spec();
  const int rows = group->env_->rows();
  group->spec_ = raw;
  group->seed_ = seed;
  group->first_row_ = first_row;
  group->rows_ = rows;
  group->action_repeat_ = static_cast<int>(options.action_repeat);
  group->frame_stack_ = static_cast<int>(options.frame_stack);
  group->time_limit_ = options.time_limit < 0 ? raw.max_episode_steps : options.time_limit;
  group->step_wait_ = std::chrono::microseconds(options.step_wait_us);
  group->clip_actions_ = options.clip_actions && raw.action.box();
  group->spec_.max_episode_steps = (group->time_limit_ + group->action_repeat_ - 1) / group->action_repeat_;
  const auto n = static_cast<size_t>(rows);
  for (ArraySpec& array : group->spec_.observations) {
    group->frame_bytes_.push_back(array.bytes());
    if (group->frame_stack_ > 1) array.shape.insert(array.shape.begin(), group->frame_stack_);
    group->obs_strides_.push_back(array.bytes());
    group->ended_obs_.emplace_back(group->action_repeat_ > 1 ? n * array.bytes() : 0);
  }
  group->obs_pointers_.resize(group->frame_bytes_.size());
  group->clipped_.resize(group->clip_actions_ ? n * static_cast<size_t>(raw.action.width()) : 0);
  group->reward_.resize(n);
  group->sub_reward_.resize(n);
  group->ended_.resize(n);
  group->sub_terminated_.resize(n);
  group->sub_truncated_.resize(n);
  group->episode_return_.resize(n);
  group->episode_length_.resize(n);
  group->episode_.resize(n);
  return group;
}

// The environment writes only the newest frame of a stack: the last of its k.
ObsOut RowGroup::NewestFrame(const SegmentView& segment, int t) {
  for (size_t a = 0; a < obs_pointers_.size(); ++a) {
    obs_pointers_[a] = segment.obs(static_cast<int>(a), t) + obs_strides_[a] - frame_bytes_[a];
  }
  return ObsOut{obs_pointers_.data(), obs_strides_.data()};
}

void RowGroup::ResetRow(const SegmentView& segment, int t, int row) {
  const auto r = static_cast<size_t>(row);
  const Philox4 words =
      PhiloxAt(seed_, Purpose::kEpisode, first_row_ + static_cast<uint32_t>(row), episode_[r]++);
  const uint64_t episode_seed = static_cast<uint64_t>(words.v[0]) << 32 | words.v[1];
  const size_t outputs = static_cast<size_t>(spec_.action.outputs());
  uint8_t* mask = segment.mask();
  if (mask != nullptr) mask += (static_cast<size_t>(t) * static_cast<size_t>(rows_) + r) * outputs;
  env_->ResetRow(row, episode_seed, NewestFrame(segment, t), mask);
  for (size_t a = 0; a < frame_bytes_.size() && frame_stack_ > 1; ++a) {
    std::byte* stack = segment.obs(static_cast<int>(a), t) + r * obs_strides_[a];
    const std::byte* newest = stack + obs_strides_[a] - frame_bytes_[a];
    for (int k = 0; k + 1 < frame_stack_; ++k) {
      std::memcpy(stack + static_cast<size_t>(k) * frame_bytes_[a], newest, frame_bytes_[a]);
    }
  }
  episode_return_[r] = 0;
  episode_length_[r] = 0;
  CheckFirstObs(segment, t, row);
}

// A bad first observation can't be cured by another reset: it is named, and replaced by zeros.
void RowGroup::CheckFirstObs(const SegmentView& segment, int t, int row) {
  for (size_t a = 0; a < spec_.observations.size(); ++a) {
    const ArraySpec& array = spec_.observations[a];
    if (array.dtype != DType::kF32) continue;
    const auto elements = static_cast<size_t>(array.elements());
    auto* obs =
        reinterpret_cast<float*>(segment.obs(static_cast<int>(a), t)) + static_cast<size_t>(row) * elements;
    if (!AnyNonfinite(obs, elements)) continue;
    NoteFault(row, absl::StrCat("the first observation `", array.name, "`"));
    std::fill(obs, obs + elements, 0.0f);
  }
}

void RowGroup::Reset(const SegmentView& segment, int t) {
  for (int row = 0; row < rows_; ++row) ResetRow(segment, t, row);
}

void RowGroup::BeginSegment(const SegmentView& next, const SegmentView& previous) {
  const int last = previous.layout().steps();
  for (size_t a = 0; a < obs_strides_.size(); ++a) {
    const int array = static_cast<int>(a);
    std::memcpy(next.obs(array, 0), previous.obs(array, last), static_cast<size_t>(rows_) * obs_strides_[a]);
  }
  if (next.mask() != nullptr) {
    const size_t bytes = static_cast<size_t>(rows_) * static_cast<size_t>(spec_.action.outputs());
    std::memcpy(next.mask(), previous.mask() + static_cast<size_t>(last) * bytes, bytes);
  }
  next.final_count() = 0;
  next.episode_count() = 0;
}

void RowGroup::ClipActions(const SegmentView& segment, int t) {
  const ActionSpec& space = spec_.action;
  const auto width = static_cast<size_t>(space.width());
  const float* action = static_cast<const float*>(segment.action()) +
                        static_cast<size_t>(t) * static_cast<size_t>(rows_) * width;
  for (size_t r = 0; r < static_cast<size_t>(rows_); ++r) {
    for (size_t d = 0; d < width; ++d) {
      clipped_[r * width + d] = std::clamp(action[r * width + d], space.low[d], space.high[d]);
    }
  }
}

void RowGroup::ShiftFrames(const SegmentView& segment, int t) {
  for (size_t a = 0; a < obs_strides_.size(); ++a) {
    const std::byte* from = segment.obs(static_cast<int>(a), t);
    std::byte* to = segment.obs(static_cast<int>(a), t + 1);
    for (size_t r = 0; r < static_cast<size_t>(rows_); ++r) {
      std::memcpy(to + r * obs_strides_[a], from + r * obs_strides_[a] + frame_bytes_[a],
                  obs_strides_[a] - frame_bytes_[a]);
    }
  }
}

void RowGroup::StepEnv(const SegmentView& segment, int t) {
  const auto n = static_cast<size_t>(rows_);
  const auto width = static_cast<size_t>(spec_.action.width());
  const size_t offset = static_cast<size_t>(t) * n;
  const void* action = static_cast<const float*>(segment.action()) + offset * width;  // i32 has the same size
  if (clip_actions_) {
    ClipActions(segment, t);
    action = clipped_.data();
  }
  if (frame_stack_ > 1) ShiftFrames(segment, t);
  uint8_t* mask = segment.mask();
  if (mask != nullptr) mask += (offset + n) * static_cast<size_t>(spec_.action.outputs());
  StepArgs args{action,
                NewestFrame(segment, t + 1),
                reward_.data(),
                segment.terminated() + offset,
                segment.truncated() + offset,
                mask};
  if (action_repeat_ == 1) {
    env_->Step(args);
    for (size_t r = 0; r < n; ++r) ++episode_length_[r];
  } else {
    RepeatAction(segment, t, args);
  }
}

// Rewards add up until a row ends; what the row does after that within the repeat is thrown away.
void RowGroup::RepeatAction(const SegmentView& segment, int t, StepArgs& args) {
  const auto n = static_cast<size_t>(rows_);
  uint8_t* terminated = args.terminated;
  uint8_t* truncated = args.truncated;
  args.reward = sub_reward_.data();
  args.terminated = sub_terminated_.data();
  args.truncated = sub_truncated_.data();
  std::fill(ended_.begin(), ended_.end(), uint8_t{0});
  std::fill(reward_.begin(), reward_.end(), 0.0);
  std::fill(terminated, terminated + n, uint8_t{0});
  std::fill(truncated, truncated + n, uint8_t{0});
  for (int k = 0; k < action_repeat_; ++k) {
    env_->Step(args);
    for (size_t r = 0; r < n; ++r) {
      if (ended_[r] != 0) continue;
      reward_[r] += sub_reward_[r];
      const bool limit = ++episode_length_[r] == time_limit_;
      if ((sub_terminated_[r] | sub_truncated_[r]) == 0 && !limit) continue;
      ended_[r] = 1;
      terminated[r] = sub_terminated_[r];
      truncated[r] = sub_truncated_[r];
      for (size_t a = 0; a < obs_strides_.size(); ++a) {
        std::memcpy(ended_obs_[a].data() + r * obs_strides_[a],
                    segment.obs(static_cast<int>(a), t + 1) + r * obs_strides_[a], obs_strides_[a]);
      }
    }
  }
  for (size_t r = 0; r < n; ++r) {
    for (size_t a = 0; a < obs_strides_.size() && ended_[r] != 0; ++a) {
      std::memcpy(segment.obs(static_cast<int>(a), t + 1) + r * obs_strides_[a],
                  ended_obs_[a].data() + r * obs_strides_[a], obs_strides_[a]);
    }
  }
}

void RowGroup::Step(const SegmentView& segment, int t) {
  const auto n = static_cast<size_t>(rows_);
  const size_t offset = static_cast<size_t>(t) * n;
  StepEnv(segment, t);
  if (step_wait_.count() > 0) std::this_thread::sleep_for(step_wait_);
  uint8_t* terminated = segment.terminated() + offset;
  uint8_t* truncated = segment.truncated() + offset;
  float* reward = segment.reward() + offset;
  std::memset(segment.valid() + offset, 1, n);
  uint8_t any = 0;
  const int32_t limit = time_limit_ > 0 ? time_limit_ : INT32_MAX;
  for (size_t r = 0; r < n; ++r) {
    reward[r] = static_cast<float>(reward_[r]);
    episode_return_[r] += reward_[r];
    truncated[r] |= static_cast<uint8_t>(episode_length_[r] >= limit);
    any |= terminated[r] | truncated[r];
  }
  CheckFinite(segment, t);
  if (any == 0) return;
  for (int row = 0; row < rows_; ++row) {
    const bool faulty = segment.valid()[offset + static_cast<size_t>(row)] == 0;  // has been reset already
    if ((terminated[row] | truncated[row]) != 0 && !faulty) FinishRow(segment, t, row);
  }
}

void RowGroup::FinishRow(const SegmentView& segment, int t, int row) {
  const auto r = static_cast<size_t>(row);
  const int32_t index = t * rows_ + row;
  if (segment.terminated()[index] == 0) KeepFinalObs(segment, t, row);
  segment.episodes()[segment.episode_count()++] =
      EpisodeRecord{index, episode_length_[r], episode_return_[r]};
  ResetRow(segment, t + 1, row);
}

void RowGroup::KeepFinalObs(const SegmentView& segment, int t, int row) {
  const int32_t index = t * rows_ + row;
  int32_t& count = segment.final_count();
  if (count == segment.layout().final_capacity()) {
    segment.valid()[index] = 0;  // nothing to bootstrap from, so the step must not be trained on
    return;
  }
  for (size_t a = 0; a < obs_strides_.size(); ++a) {
    std::memcpy(segment.final_obs(static_cast<int>(a), count),
                segment.obs(static_cast<int>(a), t + 1) + static_cast<size_t>(row) * obs_strides_[a],
                obs_strides_[a]);
  }
  segment.final_index()[count++] = index;
}

void RowGroup::CheckFinite(const SegmentView& segment, int t) {
  const auto n = static_cast<size_t>(rows_);
  const float* reward = segment.reward() + static_cast<size_t>(t) * n;
  if (AnyNonfinite(reward, n)) {
    for (int row = 0; row < rows_; ++row) {
      if (!IsFinite(reward[row])) AddFault(segment, t, row, "the reward");
    }
  }
  for (size_t a = 0; a < spec_.observations.size(); ++a) {
    const ArraySpec& array = spec_.observations[a];
    if (array.dtype != DType::kF32) continue;
    const auto elements = static_cast<size_t>(array.elements());
    const auto* obs = reinterpret_cast<const float*>(segment.obs(static_cast<int>(a), t + 1));
    if (!AnyNonfinite(obs, n * elements)) continue;
    for (int row = 0; row < rows_; ++row) {
      for (size_t e = 0; e < elements; ++e) {
        if (IsFinite(obs[static_cast<size_t>(row) * elements + e])) continue;
        AddFault(segment, t, row, absl::StrCat("observation `", array.name, "`[", e, "]"));
        break;
      }
    }
  }
}

void RowGroup::NoteFault(int row, std::string what) {
  if (fault_ != nullptr) return;
  const uint64_t step = static_cast<uint64_t>(episode_length_[static_cast<size_t>(row)]);
  fault_ = std::make_unique<EnvFault>(
      EnvFault{spec_.id, std::move(what), first_row_ + static_cast<uint32_t>(row), step});
}

// The row's episode is cut off here; the step is never trained on, and the learner lets nothing pass it.
void RowGroup::AddFault(const SegmentView& segment, int t, int row, std::string what) {
  const int32_t index = t * rows_ + row;
  NoteFault(row, std::move(what));
  segment.valid()[index] = 0;
  segment.reward()[index] = 0;
  segment.terminated()[index] = 0;
  segment.truncated()[index] = 1;
  ResetRow(segment, t + 1, row);
}

size_t RowGroup::row_state_bytes() const {
  size_t bytes = env_->row_state_bytes() + sizeof(double) + sizeof(int32_t) + sizeof(uint64_t);
  for (size_t stride : obs_strides_) bytes += stride;
  if (spec_.action_mask) bytes += static_cast<size_t>(spec_.action.outputs());
  return bytes;
}

void RowGroup::SaveRows(const SegmentView& segment, int t, std::byte* out) const {
  const auto outputs = static_cast<size_t>(spec_.action.outputs());
  for (int row = 0; row < rows_; ++row) {
    const auto r = static_cast<size_t>(row);
    env_->SaveRow(row, out);
    out += env_->row_state_bytes();
    Put(out, episode_return_[r]);
    Put(out, episode_length_[r]);
    Put(out, episode_[r]);
    for (size_t a = 0; a < obs_strides_.size(); ++a) {
      std::memcpy(out, segment.obs(static_cast<int>(a), t) + r * obs_strides_[a], obs_strides_[a]);
      out += obs_strides_[a];
    }
    if (spec_.action_mask) {
      std::memcpy(out, segment.mask() + (static_cast<size_t>(t) * static_cast<size_t>(rows_) + r) * outputs,
                  outputs);
      out += outputs;
    }
  }
}

void RowGroup::LoadRows(const SegmentView& segment, int t, const std::byte* in) {
  const auto outputs = static_cast<size_t>(spec_.action.outputs());
  for (int row = 0; row < rows_; ++row) {
    const auto r = static_cast<size_t>(row);
    env_->LoadRow(row, in);
    in += env_->row_state_bytes();
    Get(in, episode_return_[r]);
    Get(in, episode_length_[r]);
    Get(in, episode_[r]);
    for (size_t a = 0; a < obs_strides_.size(); ++a) {
      std::memcpy(segment.obs(static_cast<int>(a), t) + r * obs_strides_[a], in, obs_strides_[a]);
      in += obs_strides_[a];
    }
    if (spec_.action_mask) {
      std::memcpy(segment.mask() + (static_cast<size_t>(t) * static_cast<size_t>(rows_) + r) * outputs, in,
                  outputs);
      in += outputs;
    }
  }
}

}  // namespace millrace
