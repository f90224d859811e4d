// What a person sees while a run goes on: one live line on a terminal, plain lines elsewhere.
// Owner: the command that trains (cli), which writes the text that it is given. Threads: one. Time is an
// argument. In the steady state nothing is allocated.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace millrace {

// What the output can show.
struct Terminal {
  bool live = false;     // a line can be redrawn in place
  bool unicode = false;  // blocks, braille and lines; else ASCII
  int width = 80;        // columns
};
// Looks at a file descriptor and at TERM, LC_ALL, LC_CTYPE and LANG: TERM=dumb or a locale that is not UTF-8
// means ASCII.
Terminal DetectTerminal(int fd);
// The columns of the terminal at `fd`, which may change while a run goes on; 80 where it does not say.
int TerminalWidth(int fd);

struct ProgressState {
  uint64_t steps = 0;
  uint64_t total_steps = 0;
  double return_mean = std::numeric_limits<double>::quiet_NaN();
};

class Progress {
 public:
  // `steps`: those that a resumed run has behind it. `now`: seconds of any steady clock.
  Progress(const Terminal& terminal, std::string name, uint64_t steps, double now);

  // Call it as often as you like. The text to write now: empty until it is time (live: ten times a second at
  // most; plain: after half a second, then at intervals that double up to five seconds). Good until the next
  // call.
  std::string_view Update(const ProgressState& state, double now);
  // Before another message is written: takes the live line away; the next Update draws it again.
  std::string_view Clear();
  // The last word: the state as it is, and the cursor on a fresh line.
  std::string_view Finish(const ProgressState& state, double now);
  void SetWidth(int columns) { terminal_.width = columns; }

 private:
  void MeasureRate(uint64_t steps, double now);
  void DrawLive(const ProgressState& state);
  void DrawPlain(const ProgressState& state, double now);

  Terminal terminal_;
  std::string name_;
  double start_, due_, interval_;
  double measured_at_;  // the last time that the rate was measured, and the steps then
  uint64_t measured_steps_;
  double rate_ = 0;         // steps a second, smoothed over some seconds; 0: not known yet
  std::string out_, part_;  // kept for their capacity
};

}  // namespace millrace
