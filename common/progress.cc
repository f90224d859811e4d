#include "common/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "common/human.h"
#include "common/status.h"

namespace millrace {
namespace {

constexpr double kLiveInterval = 0.1;
constexpr double kFirstPlainInterval = 0.5;
constexpr double kLastPlainInterval = 5.0;
constexpr double kSmoothing = 3.0;  // seconds over which the rate is averaged
constexpr int kBarMin = 8, kBarMax = 40;
constexpr std::string_view kEraseLine = "\r\x1b[K";

std::string_view Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : value;
}

// The locale's encoding by the rule of POSIX: LC_ALL, else LC_CTYPE, else LANG.
bool LocaleIsUtf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    std::string locale(Environment(name));
    if (locale.empty()) continue;
    for (char& c : locale) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    return locale.find("utf-8") != locale.npos || locale.find("utf8") != locale.npos;
  }
  return false;
}

double Fraction(const ProgressState& state) {
  if (state.total_steps == 0) return 0;
  return std::min(1.0, static_cast<double>(state.steps) / static_cast<double>(state.total_steps));
}

// `width` columns that are filled from the left; in Unicode the last filled one in eighths.
void AppendBar(std::string& out, double fraction, int width, bool unicode) {
  const int eighths = static_cast<int>(std::floor(fraction * width * 8));
  for (int column = 0; column < width; ++column) {
    const int fill = std::clamp(eighths - 8 * column, 0, 8);
    if (fill == 0) {
      out += ' ';
    } else if (!unicode) {
      out += fill == 8 ? '=' : '>';
    } else {
      // U+2588 is the full block; each code point on takes an eighth away.
      out += "\xe2\x96";
      out += static_cast<char>(0x88 + 8 - fill);
    }
  }
}

}  // namespace

int TerminalWidth(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

Terminal DetectTerminal(int fd) {
  const std::string_view term = Environment("TERM");
  const bool dumb = term.empty() || term == "dumb";
  Terminal terminal;
  terminal.live = !dumb && ::isatty(fd) == 1;
  terminal.unicode = !dumb && LocaleIsUtf8();
  terminal.width = TerminalWidth(fd);
  return terminal;
}

Progress::Progress(const Terminal& terminal, std::string name, uint64_t steps, double now)
    : terminal_(terminal),
      name_(std::move(name)),
      start_(now),
      interval_(terminal.live ? kLiveInterval : kFirstPlainInterval),
      measured_at_(now),
      measured_steps_(steps) {
  due_ = now + interval_;
  out_.reserve(1024);
  part_.reserve(256);
}

void Progress::MeasureRate(uint64_t steps, double now) {
  const double elapsed = now - measured_at_;
  if (elapsed <= 0 || steps < measured_steps_) return;
  const double rate = static_cast<double>(steps - measured_steps_) / elapsed;
  rate_ = rate_ == 0 ? rate : rate_ + (rate - rate_) * (1 - std::exp(-elapsed / kSmoothing));
  measured_at_ = now;
  measured_steps_ = steps;
}

std::string_view Progress::Update(const ProgressState& state, double now) {
  out_.clear();
  if (now < due_) return out_;
  MeasureRate(state.steps, now);
  if (terminal_.live) {
    DrawLive(state);
  } else {
    interval_ = std::min(2 * interval_, kLastPlainInterval);
    DrawPlain(state, now);
  }
  due_ = now + interval_;
  return out_;
}

std::string_view Progress::Clear() {
  out_.clear();
  due_ = 0;
  if (terminal_.live) out_ += kEraseLine;
  return out_;
}

std::string_view Progress::Finish(const ProgressState& state, double now) {
  out_.clear();
  MeasureRate(state.steps, now);
  if (terminal_.live) {
    DrawLive(state);
    out_ += '\n';
  } else {
    DrawPlain(state, now);
  }
  return out_;
}

// name [bar]  62%  845k steps/s  return 312.4  left 12s  1.24M/2.00M. What does not fit goes, the last part
// first.
void Progress::DrawLive(const ProgressState& state) {
  const double fraction = Fraction(state);
  part_.clear();
  std::array<size_t, 6> ends{};  // of the parts in part_, in the order of their worth
  size_t parts = 0;
  const auto end_part = [&] { ends[parts++] = part_.size(); };
  part_ += ' ';
  if (fraction < 0.0995) part_ += ' ';
  AppendCount(part_, std::floor(fraction * 100));
  part_ += '%';
  end_part();
  part_ += "  return ";
  AppendReal(part_, state.return_mean);
  end_part();
  part_ += "  left ";
  AppendDuration(
      part_, rate_ > 0
                 ? static_cast<double>(state.total_steps - std::min(state.steps, state.total_steps)) / rate_
                 : std::numeric_limits<double>::infinity());
  end_part();
  part_ += "  ";
  AppendCount(part_, rate_);
  part_ += " steps/s";
  end_part();
  part_ += "  ";
  AppendCount(part_, static_cast<double>(state.steps));
  part_ += '/';
  AppendCount(part_, static_cast<double>(state.total_steps));
  end_part();

  // The last column stays empty: some terminals wrap when it is written.
  const int room = terminal_.width - 1;
  const int name = static_cast<int>(name_.size()) + 1;
  while (parts > 1 && name + 2 + kBarMin + static_cast<int>(ends[parts - 1]) > room) --parts;
  const int tail = static_cast<int>(ends[parts - 1]);
  const int bar = std::min(kBarMax, room - name - 2 - tail);
  out_ += '\r';
  if (bar >= kBarMin) {
    out_ += name_;
    out_ += " [";
    AppendBar(out_, fraction, bar, terminal_.unicode);
    out_ += ']';
  }
  out_.append(part_, 0, static_cast<size_t>(std::clamp(room, 0, tail)));
  out_ += "\x1b[K";
}

// 12s  245k of 500k steps (49%)  812k steps/s  return 231.5  left 3s
void Progress::DrawPlain(const ProgressState& state, double now) {
  AppendDuration(out_, now - start_);
  out_ += "  ";
  AppendCount(out_, static_cast<double>(state.steps));
  out_ += " of ";
  AppendCount(out_, static_cast<double>(state.total_steps));
  out_ += " steps (";
  AppendCount(out_, std::floor(Fraction(state) * 100));
  out_ += "%)  ";
  AppendCount(out_, rate_);
  out_ += " steps/s  return ";
  AppendReal(out_, state.return_mean);
  if (rate_ > 0 && state.steps < state.total_steps) {
    out_ += "  left ";
    AppendDuration(out_, static_cast<double>(state.total_steps - state.steps) / rate_);
  }
  out_ += '\n';
}

}  // namespace millrace
