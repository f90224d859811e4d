// What a configuration of algorithm sac must satisfy beyond the (rule) of each field.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <type_traits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/config/config.h"
#include "common/config/fields.h"
#include "common/config/validate.h"
#include "common/row_groups.h"

namespace millrace::config_internal {
namespace {

const char* Whose(const Origins& origins, const char* key) {
  return origins.Given(key) ? "" : " (the default)";
}

// Settings of no consequence under the other algorithm: whole sections (they end with a point) and single
// keys.
constexpr std::array kPpoOnly = {"env.scale_reward", "env.clip_reward",     "ppo.",
                                 "policy.shared",    "policy.log_std_init", "learner.correction",
                                 "learner.rho_bar",  "learner.c_bar"};
constexpr std::array kSacOnly = {"sac.", "replay.", "checkpoint.replay"};
// Of the draws by priority. (sac.alpha_learning_rate is no such setting of automatic alpha: presets give the
// three rates together, and alpha may be fixed over them.)
constexpr std::array kPrioritizedOnly = {"replay.alpha", "replay.beta", "replay.beta_end",
                                         "replay.priority_eps"};

template <size_t N>
bool Among(const std::array<const char*, N>& list, absl::string_view path) {
  return std::any_of(list.begin(), list.end(), [path](absl::string_view entry) {
    return absl::EndsWith(entry, ".") ? absl::StartsWith(path, entry) : path == entry;
  });
}

// Beside which setting this one is of no consequence, and what to do; empty: it is read.
std::string Unread(const RunOptions& o, absl::string_view path) {
  if (IsSac(o) ? Among(kPpoOnly, path) : Among(kSacOnly, path)) {
    return absl::StrCat("with algorithm ", o.algorithm, "; remove it, or set algorithm to ",
                        IsSac(o) ? "ppo" : "sac");
  }
  if (!o.replay.prioritized && Among(kPrioritizedOnly, path)) {
    return "without replay.prioritized; remove it, or set that to true";
  }
  if (path != "sac.target_entropy") return "";
  if (!o.sac.auto_alpha) return "without sac.auto_alpha; remove it, or set that to true";
  if (o.sac.auto_target_entropy) return "with sac.auto_target_entropy; remove it, or set that to false";
  return "";
}

// A run's config.yaml has every key, so only a value that differs from the default counts as a wish.
Status CheckReadSettings(const RunOptions& o, const Origins& origins) {
  const RunOptions defaults;
  Status status;
  VisitFields(o, [&](absl::string_view path, const auto& value) {
    const std::string key(path), unread = status.ok() ? Unread(o, path) : "";
    if (unread.empty() || !origins.Given(key)) return;
    VisitFields(defaults, [&](absl::string_view other, const auto& usual) {
      if constexpr (std::is_same_v<decltype(value), decltype(usual)>) {
        if (other != path || value == usual) return;
        status = origins.Error(key, absl::StrCat("has no effect ", unread));
      }
    });
  });
  return status;
}

Status CheckNetworks(const RunOptions& o, const Origins& origins) {
  constexpr size_t kMostLayers = 16;
  if (o.sac.critic_hidden.size() > kMostLayers) {
    return origins.Error("sac.critic_hidden",
                         absl::StrCat("has ", o.sac.critic_hidden.size(), " layers; at most ", kMostLayers));
  }
  if (o.sac.critic_subset > o.sac.critics) {
    return origins.Error(
        "sac.critic_subset",
        absl::StrCat(o.sac.critic_subset, Whose(origins, "sac.critic_subset"), " is more than sac.critics, ",
                     o.sac.critics, "; lower sac.critic_subset or raise sac.critics"));
  }
  return absl::OkStatus();
}

Status CheckAlpha(const RunOptions& o, const Origins& origins) {
  if (o.sac.auto_alpha && o.sac.alpha == 0) {
    return origins.Error(
        "sac.alpha",
        "0 cannot be tuned, for its logarithm is; give a start above 0, or sac.auto_alpha=false");
  }
  if (o.sac.alpha > o.sac.max_alpha) {
    return origins.Error(
        "sac.alpha",
        absl::StrCat(FormatNumber(o.sac.alpha), Whose(origins, "sac.alpha"), " is more than sac.max_alpha, ",
                     FormatNumber(o.sac.max_alpha), "; lower sac.alpha or raise sac.max_alpha"));
  }
  return absl::OkStatus();
}

Status CheckAdaptiveBatch(const RunOptions& o, const Origins& origins) {
  const uint32_t low = o.sac.batch_min, high = o.sac.batch_max;
  if (low == 0 && high == 0) return absl::OkStatus();
  const char* key = origins.Given("sac.batch_min") ? "sac.batch_min" : "sac.batch_max";
  if (o.mode != RunMode::kAsync) {
    return origins.Error(
        key,
        "a batch of what is ready differs from run to run, so mode sync excludes it; set mode "
        "to async, or remove it and choose sac.batch_size");
  }
  if (low == 0 || high == 0) {
    return origins.Error(key, "needs the other of sac.batch_min and sac.batch_max; set both, or neither");
  }
  if (low > high) {
    return origins.Error("sac.batch_min", absl::StrCat(low, " is more than sac.batch_max, ", high));
  }
  return absl::OkStatus();
}

double Groups(const RunOptions& o) {
  return static_cast<double>(
      GroupRows(static_cast<int>(o.env.rows), static_cast<int>(o.env.group_rows)).size());
}

// Of segments no more can be ready than the lag lets there be.
Status CheckBatchInReach(const RunOptions& o, const Origins& origins) {
  if (o.sac.batch_max == 0) return absl::OkStatus();
  const double most = static_cast<double>(MostSegments(o)), ready = o.learner.max_policy_lag * Groups(o);
  if (most <= ready) return absl::OkStatus();
  return origins.Error(
      "sac.batch_max",
      absl::StrCat(o.sac.batch_max, " is never reached: it takes ", FormatNumber(most),
                   " segments, and with learner.max_policy_lag ", o.learner.max_policy_lag,
                   Whose(origins, "learner.max_policy_lag"), " at most ", FormatNumber(ready),
                   " can be ready; raise learner.max_policy_lag to ",
                   FormatNumber(std::ceil(most / Groups(o))), " or more, or lower sac.batch_max"));
}

// The replay must hold what one step of training asks of it.
Status CheckCapacity(const RunOptions& o, const Origins& origins) {
  const ReplaySection& r = o.replay;
  const auto refuse = [&](const std::string& what, uint64_t least) {
    return origins.Error("replay.capacity",
                         absl::StrCat(r.capacity, Whose(origins, "replay.capacity"), " is less than ", what,
                                      "; raise it to ", least, " or more"));
  };
  const uint64_t batch = std::max(o.sac.batch_size, o.sac.batch_max);
  if (r.capacity < batch) return refuse(absl::StrCat("a batch, ", batch, " transitions"), batch);
  // A row's newest n transitions wait for their last reward while its next segment comes in, and of its
  // oldest the older frames are gone.
  const uint64_t rows = KnownRows(o), frames = o.env.frame_stack;
  const uint64_t window = rows * (uint64_t{o.sac.horizon} + r.n_step + frames - 1);
  if (r.capacity < window) {
    return refuse(
        absl::StrCat("the n-step window, env.rows ", o.env.rows,
                     rows > o.env.rows ? absl::StrCat(" x actors.processes ", o.actors.processes) : "",
                     " x (sac.horizon ", o.sac.horizon, " + replay.n_step ", r.n_step,
                     frames > 1 ? absl::StrCat(" + env.frame_stack ", frames, " - 1") : "", ") = ", window,
                     " transitions"),
        window);
  }
  if (r.capacity < r.min_size) {
    return refuse(absl::StrCat("replay.min_size, ", r.min_size, Whose(origins, "replay.min_size"),
                               ": the first gradient step would never come"),
                  r.min_size);
  }
  return absl::OkStatus();
}

// The key by which the user sets how many transitions are drawn for each one added, and that number in words.
struct Draws {
  const char* key;
  std::string text;
};
Draws DescribeDraws(const RunOptions& o, const Origins& origins) {
  if (o.replay.samples_per_insert > 0) {
    return {"replay.samples_per_insert", FormatNumber(o.replay.samples_per_insert)};
  }
  const std::string updates = FormatNumber(o.sac.updates_per_step);
  const std::string draws = absl::StrCat(" = ", UpdatesPerStep(o) * o.sac.batch_size);
  if (!origins.Given("sac.updates_per_step") && origins.Given("sac.batch_size")) {
    return {"sac.batch_size", absl::StrCat(o.sac.batch_size, " x sac.updates_per_step ", updates, draws)};
  }
  return {"sac.updates_per_step", absl::StrCat(updates, " x sac.batch_size ", o.sac.batch_size, draws)};
}

// The limiter counts in whole parts of a sample, a millionth at the least, in 64 bits.
Status CheckCounts(const RunOptions& o, const Origins& origins, double ratio, double inserts) {
  constexpr double kMost = 1e12;
  const Draws draws = DescribeDraws(o, origins);
  if (ratio * static_cast<double>(o.replay.min_size) + inserts > kMost) {
    return origins.Error(draws.key,
                         absl::StrCat(draws.text, " transitions drawn for each of replay.min_size ",
                                      o.replay.min_size, Whose(origins, "replay.min_size"),
                                      ", or of one update's, are more than the 1e+12 in all that can be "
                                      "counted; lower one of them"));
  }
  if (o.replay.error_band <= kMost) return absl::OkStatus();
  return origins.Error(
      "replay.error_band",
      absl::StrCat(FormatNumber(o.replay.error_band),
                   " samples are more than the 1e+12 that can be counted; lower it, or set it "
                   "to 0, which chooses it"));
}

// A run that is done before its first gradient step is due would end without having trained. What begins with
// an update is finished, so the last one may go beyond run.steps.
Status CheckTrains(const RunOptions& o, const Origins& origins) {
  const uint64_t transitions = uint64_t{o.env.rows} * o.sac.horizon, repeat = o.env.action_repeat;
  const auto updates = [&](uint64_t of, uint64_t each) { return of / each + (of % each != 0 ? 1 : 0); };
  const uint64_t done = updates(o.run.steps, transitions * repeat);
  if (done >= updates(o.replay.min_size, transitions)) return absl::OkStatus();
  return origins.Error("run.steps",
                       absl::StrCat(o.run.steps, Whose(origins, "run.steps"),
                                    " end before the first gradient step: they give ", done * transitions,
                                    " transitions, and it waits for replay.min_size, ", o.replay.min_size,
                                    Whose(origins, "replay.min_size"), "; raise run.steps to ",
                                    o.replay.min_size * repeat, " or more, or lower replay.min_size"));
}

Status CheckRatio(const RunOptions& o, const Origins& origins) {
  const double per_insert = o.replay.samples_per_insert, updates = o.sac.updates_per_step;
  if (per_insert > 0 && updates > 0) {
    return origins.Error("replay.samples_per_insert",
                         absl::StrCat("sac.updates_per_step, ", FormatNumber(updates),
                                      ", sets this ratio too; set one of them to 0"));
  }
  if (per_insert == 0 && updates == 0) {
    return origins.Error(
        "sac.updates_per_step",
        "0 never takes a gradient step; give a ratio above 0 here or in replay.samples_per_insert");
  }
  const double ratio = UpdatesPerStep(o) * o.sac.batch_size;
  if (constexpr double kLeast = 1e-6, kMost = 1e11; ratio < kLeast || ratio > kMost) {
    const Draws draws = DescribeDraws(o, origins);
    return origins.Error(draws.key, absl::StrCat(draws.text,
                                                 " transitions drawn for each one added; from "
                                                 "1e-06 to 1e+11 are possible"));
  }
  // As the limiter counts them: in whole transitions.
  const double inserts = ratio * std::ceil(static_cast<double>(o.env.rows) * o.sac.horizon *
                                           static_cast<double>(MostSegments(o)) / Groups(o));
  MILL_RETURN_IF_ERROR(CheckCounts(o, origins, ratio, inserts));
  // A side may go on while the ratio stays within the band: a band below one batch of either stops both.
  const double batch = std::max(o.sac.batch_size, o.sac.batch_max);
  const double least = std::max(inserts, batch);
  if (o.replay.error_band > 0 && o.replay.error_band < least) {
    return origins.Error("replay.error_band",
                         absl::StrCat(FormatNumber(o.replay.error_band),
                                      " samples can never be kept, for one batch of inserts asks for ",
                                      FormatNumber(std::ceil(inserts)), " and one gradient step takes ",
                                      FormatNumber(batch), "; raise it to ", FormatNumber(std::ceil(least)),
                                      " or more, or to 0, which chooses it"));
  }
  return absl::OkStatus();
}

Status CheckSac(const RunOptions& o, const Origins& origins) {
  const uint64_t batch = uint64_t{o.env.rows} * o.sac.horizon;
  constexpr uint64_t kMostSamples = std::numeric_limits<int32_t>::max();
  if (batch > kMostSamples) {
    return origins.Error("sac.horizon",
                         absl::StrCat("env.rows ", o.env.rows, " x sac.horizon ", o.sac.horizon, " = ", batch,
                                      " transitions at once are too many; at most ", kMostSamples));
  }
  MILL_RETURN_IF_ERROR(CheckNetworks(o, origins));
  MILL_RETURN_IF_ERROR(CheckAlpha(o, origins));
  MILL_RETURN_IF_ERROR(CheckAdaptiveBatch(o, origins));
  MILL_RETURN_IF_ERROR(CheckCapacity(o, origins));
  MILL_RETURN_IF_ERROR(CheckRatio(o, origins));
  MILL_RETURN_IF_ERROR(CheckBatchInReach(o, origins));
  return CheckTrains(o, origins);
}

}  // namespace

Status CheckAlgorithm(const RunOptions& options, const Origins& origins) {
  if (IsSac(options)) MILL_RETURN_IF_ERROR(CheckSac(options, origins));
  return CheckReadSettings(options, origins);
}

}  // namespace millrace::config_internal
