#include "common/run_summary.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/strings/str_format.h"
#include "common/human.h"
#include "common/text.h"

namespace millrace {
namespace {

std::string Headline(const RunSummary& s) {
  switch (s.end) {
    case RunSummary::End::kDone:
      return Cat(s.name, ": done");
    case RunSummary::End::kTargetReached:
      return Cat(s.name, ": done, the target is reached");
    case RunSummary::End::kStopped:
      return Cat(s.name, ": stopped; the run can go on");
    case RunSummary::End::kFailed:
      return Cat(s.name, ": failed");  // why is standard error's to say, once
  }
  return "";
}

void AddLine(std::string& out, const std::string& label, const std::string& text) {
  absl::StrAppendFormat(&out, "  %-11s %s\n", label, text);
}

void AddReturns(std::string& out, const RunSummary& s) {
  if (std::isfinite(s.return_mean)) {
    AddLine(
        out, "return",
        Cat(FormatReal(s.return_mean), " over the last ", s.window, s.window == 1 ? " episode" : " episodes",
            " of ", s.episodes, std::isfinite(s.length_mean) ? ", length " : "",
            std::isfinite(s.length_mean) ? FormatReal(s.length_mean) : ""));
  } else {
    AddLine(out, "return", "no episode has ended");
  }
  if (std::isfinite(s.eval_return_mean)) {
    AddLine(out, "evaluation",
            Cat(FormatReal(s.eval_return_mean), " +- ", FormatReal(s.eval_return_std), " over ",
                s.eval_episodes, " episodes", std::isfinite(s.best_return) ? ", best " : "",
                std::isfinite(s.best_return) ? FormatReal(s.best_return) : ""));
  }
  if (std::isfinite(s.target_return)) {
    AddLine(out, Cat("target ", FormatReal(s.target_return)),
            s.target_reached ? Cat("reached after ", FormatCount(static_cast<double>(s.target_steps)),
                                   " steps, ", FormatDuration(s.target_seconds))
                             : std::string("not reached"));
  }
}

}  // namespace

std::string NameOf(RunSummary::End end) {
  switch (end) {
    case RunSummary::End::kDone:
      return "done";
    case RunSummary::End::kTargetReached:
      return "target_reached";
    case RunSummary::End::kStopped:
      return "stopped";
    case RunSummary::End::kFailed:
      return "failed";
  }
  return "";
}

std::string SummaryText(const RunSummary& s, std::span<const CurvePoint> curve, bool unicode) {
  std::string out = Headline(s) + "\n";
  AddLine(out, "steps",
          Cat(FormatCount(static_cast<double>(s.steps)), " in ", s.updates,
              s.updates == 1 ? " update" : " updates",
              s.updates_skipped > 0 ? Cat(", ", s.updates_skipped, " skipped") : ""));
  AddLine(out, "time", Cat(FormatDuration(s.seconds), ", ", FormatCount(s.steps_per_second), " steps/s"));
  if (std::isfinite(s.peak_resident_mb))
    AddLine(out, "memory", absl::StrFormat("%.0f MiB at most", s.peak_resident_mb));
  AddReturns(out, s);
  if (const std::string plot = PlotCurve(curve, {.unicode = unicode}); !plot.empty()) {
    CatTo(out, "\n  return over steps\n", plot, "\n");
  }
  if (!s.run_dir.empty()) AddLine(out, "run", s.run_dir);
  if (!s.checkpoint.empty()) AddLine(out, "checkpoint", s.checkpoint);
  if (!s.best_checkpoint.empty()) AddLine(out, "best", s.best_checkpoint);
  for (size_t i = 0; i < s.next.size(); ++i) AddLine(out, i == 0 ? "next" : "", s.next[i]);
  return out;
}

std::string SummaryJson(const RunSummary& s) {
  // A double that is NaN becomes null.
  nlohmann::ordered_json json;
  json["end"] = NameOf(s.end);
  if (!s.error.empty()) json["error"] = s.error;
  json["name"] = s.name;
  json["env"] = s.env;
  json["algorithm"] = s.algorithm;
  json["seed"] = s.seed;
  json["threads"] = s.threads;
  json["steps"] = s.steps;
  json["updates"] = s.updates;
  json["updates_skipped"] = s.updates_skipped;
  json["seconds"] = s.seconds;
  json["steps_per_second"] = s.steps_per_second;
  json["peak_resident_mb"] = s.peak_resident_mb;
  json["episodes"] = s.episodes;
  json["return_mean"] = s.return_mean;
  json["length_mean"] = s.length_mean;
  json["window"] = s.window;
  json["eval_return_mean"] = s.eval_return_mean;
  json["eval_return_std"] = s.eval_return_std;
  json["eval_episodes"] = s.eval_episodes;
  json["best_return"] = s.best_return;
  json["target_return"] = s.target_return;
  json["target_reached"] = s.target_reached;
  json["target_steps"] = s.target_reached ? nlohmann::ordered_json(s.target_steps) : nullptr;
  json["target_seconds"] = s.target_reached ? nlohmann::ordered_json(s.target_seconds) : nullptr;
  json["run_dir"] = s.run_dir;
  json["checkpoint"] = s.checkpoint;
  json["best_checkpoint"] = s.best_checkpoint;
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace millrace
