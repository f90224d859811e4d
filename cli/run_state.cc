#include "cli/run_state.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/config/config.h"
#include "common/row_groups.h"

namespace millrace {
namespace {

using Json = nlohmann::json;

constexpr const char* kReplayPrefix = "replay/";  // of its tensors' names

// Doubles must come back as the same bits; JSON numbers of nlohmann do, but not infinities.
double Number(const Json& json, const char* key) {
  const auto it = json.find(key);
  return it != json.end() && it->is_number() ? it->get<double>() : 0.0;
}
uint64_t Count(const Json& json, const char* key) {
  const auto it = json.find(key);
  return it != json.end() && it->is_number_unsigned() ? it->get<uint64_t>() : 0;
}

Status OtherRun(const Checkpoint& checkpoint, const Status& status) {
  return absl::InvalidArgumentError(
      absl::StrCat(checkpoint.path, ": ", status.message(),
                   "; the checkpoint is of another network or environment: policy.* and "
                   "env.* must be as they were"));
}

// What the learner says of its own state: it names the tensor and the remedy.
Status InFile(const Checkpoint& checkpoint, const Status& status) {
  return status.ok() ? status : Status(status.code(), absl::StrCat(checkpoint.path, ": ", status.message()));
}

// A tensor of the checkpoint is missing, of another shape, or has no place: which settings made it.
Status OtherTensor(const Checkpoint& checkpoint, absl::string_view name, const Status& status) {
  const char* cause = nullptr;
  if (absl::StartsWith(name, kReplayPrefix)) {
    cause =
        "the checkpoint is of another replay: env.* and replay.* must be as they were; or set "
        "checkpoint.replay=false to go on with an empty one";
  } else if (absl::StrContains(name, "/critic")) {
    cause =
        "the checkpoint is of other critics: algorithm, sac.critics, sac.critic_hidden, sac.layer_norm, "
        "policy.hidden (where sac.critic_hidden is empty) and env.* must be as they were";
  }
  if (cause == nullptr) return OtherRun(checkpoint, status);
  return absl::InvalidArgumentError(absl::StrCat(checkpoint.path, ": ", status.message(), "; ", cause));
}

Status CopyState(const Checkpoint& checkpoint, const StateTensor& tensor) {
  const size_t n = tensor.elements();
  const NamedTensor* found = checkpoint.content.Find(tensor.name);
  if (found != nullptr && found->shape != tensor.shape) {
    return OtherTensor(
        checkpoint, tensor.name,
        absl::InvalidArgumentError(absl::StrCat("tensor ", tensor.name, " is ", DescribeTensor(*found))));
  }
  const auto copy = [&](auto* to) {
    using T = std::remove_pointer_t<decltype(to)>;
    return CopyTensor(checkpoint.content, tensor.name, std::span<T>(to, n));
  };
  const Status status = tensor.f32 != nullptr   ? copy(tensor.f32)
                        : tensor.f64 != nullptr ? copy(tensor.f64)
                        : tensor.i64 != nullptr ? copy(tensor.i64)
                                                : copy(reinterpret_cast<uint8_t*>(tensor.bytes));
  return status.ok() ? status : OtherTensor(checkpoint, tensor.name, status);
}

// Fewer critics, or none with a normalisation, find all their own tensors in the checkpoint of more.
Status CheckNoWeightsLeft(const Checkpoint& checkpoint, const std::vector<StateTensor>& state) {
  for (const NamedTensor& tensor : checkpoint.content.tensors) {
    if (!absl::StartsWith(tensor.name, "weights/")) continue;
    const auto same = [&](const StateTensor& own) { return own.name == tensor.name; };
    if (std::any_of(state.begin(), state.end(), same)) continue;
    return OtherTensor(
        checkpoint, tensor.name,
        absl::InvalidArgumentError(absl::StrCat("tensor ", tensor.name, " has no place in this network")));
  }
  return absl::OkStatus();
}

NamedTensor View(const StateTensor& tensor) {
  const auto view = [&](const auto* from) {
    return MakeTensor(tensor.name, std::span(from, tensor.elements()), tensor.shape);
  };
  if (tensor.f32 != nullptr) return view(tensor.f32);
  if (tensor.f64 != nullptr) return view(tensor.f64);
  if (tensor.i64 != nullptr) return view(tensor.i64);
  return view(reinterpret_cast<const uint8_t*>(tensor.bytes));
}

}  // namespace

void EpisodeWindow::Add(double ret, double length) {
  const size_t at = static_cast<size_t>(total_ % returns_.size());
  returns_[at] = ret;
  lengths_[at] = length;
  ++total_;
}

double EpisodeWindow::Mean(const std::vector<double>& values, size_t n, Known& known) const {
  if (known.n == n && known.total == total_) return known.mean;
  double sum = 0;
  for (size_t i = 1; i <= n; ++i) sum += values[static_cast<size_t>((total_ - i) % values.size())];
  known = {total_, n, sum / static_cast<double>(n)};
  return known.mean;
}

std::vector<double> EpisodeWindow::InOrder(const std::vector<double>& ring) const {
  std::vector<double> ordered(count());
  for (size_t i = 0; i < ordered.size(); ++i) {
    ordered[i] = ring[static_cast<size_t>((total_ - ordered.size() + i) % ring.size())];
  }
  return ordered;
}

void EpisodeWindow::Fill(const std::vector<double>& returns, const std::vector<double>& lengths,
                         uint64_t total) {
  const size_t n = std::min(returns.size(), returns_.size());
  total_ = total - n;
  return_mean_ = length_mean_ = {};
  for (size_t i = returns.size() - n; i < returns.size(); ++i) Add(returns[i], lengths[i]);
}

bool RunState::InStep(const RunOptions& options, const RowStates& rows) {
  int count = 0;
  for (const uint32_t n : rows.group_rows) count += static_cast<int>(n);
  const std::vector<int> usual = GroupRows(count, static_cast<int>(options.env.group_rows));
  return std::all_of(rows.known.begin(), rows.known.end(), [](uint8_t known) { return known != 0; }) &&
         std::equal(rows.next_step.begin() + (rows.next_step.empty() ? 0 : 1), rows.next_step.end(),
                    rows.next_step.begin()) &&
         std::equal(usual.begin(), usual.end(), rows.group_rows.begin(), rows.group_rows.end(),
                    [](int a, uint32_t b) { return static_cast<uint32_t>(a) == b; });
}

CheckpointCopy RunState::Copy(const RunOptions& options, Learner& learner, const RolloutSource& source) {
  const std::vector<StateTensor> state = learner.Snapshot();
  return WithData(options, learner, state, source, [&](const CheckpointData& data) {
    CheckpointCopy copy{data, nullptr};
    // The learner's tensors come first, in its order.
    const auto stands = [&](size_t i) { return i < state.size() && state[i].copy; };
    size_t bytes = 0;
    for (size_t i = 0; i < data.tensors.size(); ++i) bytes += stands(i) ? 0 : data.tensors[i].bytes.size();
    copy.bytes = std::make_unique_for_overwrite<std::byte[]>(bytes);
    std::byte* to = copy.bytes.get();
    for (size_t i = 0; i < data.tensors.size(); ++i) {
      if (stands(i)) continue;
      const std::span<const std::byte> from = data.tensors[i].bytes;
      copy.data.tensors[i].bytes = {to, from.size()};
      to = std::copy(from.begin(), from.end(), to);
    }
    return copy;
  });
}

CheckpointData RunState::Pack(const RunOptions& options, const Learner& learner,
                              const std::vector<StateTensor>& state, const RowStates& rows) const {
  CheckpointData data;
  for (const StateTensor& tensor : state) data.tensors.push_back(View(tensor));
  uint64_t row_count = 0, agent_steps = 0;
  for (const uint32_t n : rows.group_rows) row_count += n;
  for (const uint64_t step : rows.next_step) agent_steps = std::max(agent_steps, step);
  MILL_CHECK(rows.bytes.size() == row_count * rows.row_bytes);
  data.tensors.push_back({"env/rows", TensorType::kU8, {row_count, rows.row_bytes}, rows.bytes});
  data.metadata["config"] = SerializeConfig(options);
  const Json counters = {
      {"updates", learner.updates()},
      {"optimizer_steps", learner.optimizer_steps()},
      {"steps", steps},
      {"agent_steps", agent_steps},
      {"seconds", seconds},
      {"updates_skipped", updates_skipped},
      {"target_reached", target_reached},
      {"target_steps", target_steps},
      {"target_seconds", target_seconds},
      {"has_eval", has_eval},
      {"eval_return_mean", eval_return_mean},
      {"eval_return_std", eval_return_std},
      {"eval_episodes", eval_episodes},
      {"has_best", has_best},
      {"best_return", best_return},
      {"next_eval", next_eval},
      {"episodes", episodes.total()},
  };
  data.metadata["counters"] = counters.dump();
  return data;
}

bool HasReplay(const Checkpoint& checkpoint) {
  const std::vector<NamedTensor>& tensors = checkpoint.content.tensors;
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const NamedTensor& t) { return absl::StartsWith(t.name, kReplayPrefix); });
}

// The window may have another size than when it was saved: the newest that fit are kept.
Status RunState::RestoreEpisodes(const Checkpoint& checkpoint, uint64_t total) {
  std::vector<double> values[2];
  const char* const names[2] = {"episodes/returns", "episodes/lengths"};
  for (int i = 0; i < 2; ++i) {
    const NamedTensor* tensor = checkpoint.content.Find(names[i]);
    values[i].resize(tensor != nullptr && tensor->shape.size() == 1 ? tensor->shape[0] : 0);
    if (Status status = CopyTensor(checkpoint.content, names[i], std::span<double>(values[i]));
        !status.ok()) {
      return OtherRun(checkpoint, status);
    }
  }
  if (values[0].size() != values[1].size() || values[0].size() > total) {
    return OtherRun(checkpoint, absl::InvalidArgumentError("its episodes do not agree with each other"));
  }
  episodes.Fill(values[0], values[1], total);
  return absl::OkStatus();
}

// A checkpoint of rows in step has only the rows; how they are grouped follows from the options.
static StatusOr<RowStates> ReadRows(const Checkpoint& checkpoint, const RunOptions& options,
                                    uint64_t agent_steps) {
  const SafetensorsContent& content = checkpoint.content;
  const NamedTensor* rows = content.Find("env/rows");
  if (rows == nullptr || rows->type != TensorType::kU8 || rows->shape.size() != 2 ||
      rows->shape[0] > static_cast<uint64_t>(std::numeric_limits<int32_t>::max())) {
    return absl::NotFoundError("no tensor env/rows");
  }
  RowStates states;
  states.row_bytes = rows->shape[1];
  states.bytes.assign(rows->bytes.begin(), rows->bytes.end());
  const NamedTensor* groups = content.Find("env/group_rows");
  if (groups == nullptr) {
    const std::vector<int> usual =
        GroupRows(static_cast<int>(rows->shape[0]), static_cast<int>(options.env.group_rows));
    states.group_rows.assign(usual.begin(), usual.end());
    states.next_step.assign(usual.size(), agent_steps);
    states.known.assign(usual.size(), 1);
    return states;
  }
  std::vector<int64_t> group_rows(groups->shape.size() == 1 ? groups->shape[0] : 0);
  std::vector<int64_t> next_step(group_rows.size());
  states.known.resize(group_rows.size());
  MILL_RETURN_IF_ERROR(CopyTensor(content, "env/group_rows", std::span<int64_t>(group_rows)));
  MILL_RETURN_IF_ERROR(CopyTensor(content, "env/next_step", std::span<int64_t>(next_step)));
  MILL_RETURN_IF_ERROR(CopyTensor(content, "env/known", std::span<uint8_t>(states.known)));
  uint64_t left = rows->shape[0];
  const auto fits = [&left](int64_t n) {
    if (n <= 0 || static_cast<uint64_t>(n) > left) return false;
    left -= static_cast<uint64_t>(n);
    return true;
  };
  if (!std::all_of(group_rows.begin(), group_rows.end(), fits) || left != 0) {
    return absl::InvalidArgumentError("env/group_rows does not add up to the rows of env/rows");
  }
  states.group_rows.assign(group_rows.begin(), group_rows.end());
  states.next_step.assign(next_step.begin(), next_step.end());
  return states;
}

Status RunState::Restore(const Checkpoint& checkpoint, const RunOptions& options, Learner& learner,
                         RolloutSource& source) {
  for (const NamedTensor& tensor : checkpoint.content.tensors) {
    if (tensor.shape.empty()) continue;
    MILL_RETURN_IF_ERROR(InFile(checkpoint, learner.ResizeState(tensor.name, tensor.shape[0])));
  }
  const bool replay = HasReplay(checkpoint);  // without one it begins empty
  const std::vector<StateTensor> state = learner.State();
  MILL_RETURN_IF_ERROR(CheckNoWeightsLeft(checkpoint, state));
  for (const StateTensor& tensor : state) {
    if (!replay && absl::StartsWith(tensor.name, kReplayPrefix)) continue;
    MILL_RETURN_IF_ERROR(CopyState(checkpoint, tensor));
  }
  const auto it = checkpoint.content.metadata.find("counters");
  const Json counters =
      it == checkpoint.content.metadata.end() ? Json() : Json::parse(it->second, nullptr, false);
  if (!counters.is_object()) return OtherRun(checkpoint, absl::NotFoundError("no counters in its metadata"));
  const StatusOr<RowStates> rows = ReadRows(checkpoint, options, Count(counters, "agent_steps"));
  if (!rows.ok()) return OtherRun(checkpoint, rows.status());
  if (const Status status = source.LoadRows(*rows); !status.ok()) return OtherRun(checkpoint, status);
  steps = Count(counters, "steps");
  seconds = Number(counters, "seconds");
  updates_skipped = Count(counters, "updates_skipped");
  target_reached = counters.value("target_reached", false);
  target_steps = Count(counters, "target_steps");
  target_seconds = Number(counters, "target_seconds");
  has_best = counters.value("has_best", false);
  best_return = Number(counters, "best_return");
  next_eval = Count(counters, "next_eval");
  has_eval = counters.value("has_eval", false);
  eval_return_mean = Number(counters, "eval_return_mean");
  eval_return_std = Number(counters, "eval_return_std");
  eval_episodes = Count(counters, "eval_episodes");
  MILL_RETURN_IF_ERROR(RestoreEpisodes(checkpoint, Count(counters, "episodes")));
  return InFile(checkpoint, learner.Loaded(Count(counters, "updates"), Count(counters, "optimizer_steps")));
}

Status RestoreWeights(const Checkpoint& checkpoint, Learner& learner) {
  const std::vector<StateTensor> state = learner.State();
  MILL_RETURN_IF_ERROR(CheckNoWeightsLeft(checkpoint, state));
  for (const StateTensor& tensor : state) {
    if (tensor.warm) MILL_RETURN_IF_ERROR(CopyState(checkpoint, tensor));
  }
  return InFile(checkpoint, learner.Loaded(0, 0));
}

StatusOr<Checkpoint> OpenCheckpoint(FileSystem& fs, const std::string& run_or_file, const std::string& which,
                                    std::vector<SkippedCheckpoint>* skipped) {
  if (absl::EndsWith(run_or_file, ".safetensors")) return LoadCheckpoint(fs, run_or_file);
  const std::string dir = JoinPath(run_or_file, "checkpoints");
  if (!FileExists(fs, dir)) {
    return absl::NotFoundError(absl::StrCat(run_or_file,
                                            ": not a run's folder, for it has no checkpoints/; `millrace "
                                            "train` says where it writes to"));
  }
  if (absl::EndsWith(which, ".safetensors")) {
    const std::string inside = JoinPath(dir, which);
    return LoadCheckpoint(fs, FileExists(fs, inside) ? inside : which);
  }
  if (which == "best" && FileExists(fs, BestCheckpointPath(dir))) {
    auto best = LoadCheckpoint(fs, BestCheckpointPath(dir));
    if (best.ok()) return best;
    return absl::InvalidArgumentError(
        absl::StrCat(best.status().message(), "; --checkpoint latest takes another"));
  }
  if (which != "best" && which != "latest") {
    return absl::InvalidArgumentError(
        absl::StrCat("--checkpoint ", which, ": must be best, latest or the name of a .safetensors file"));
  }
  return LoadLatestCheckpoint(fs, dir, skipped);
}

}  // namespace millrace
