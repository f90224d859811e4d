// Numbers as people read them. Appends to a string, so that callers with room in it allocate nothing. Any
// thread.
#pragma once

#include <string>

namespace millrace {

// 950, 12.3k, 245k, 1.24M, 3.50G: three figures from a thousand on.
void AppendCount(std::string& out, double count);
// 0.84s, 12s, 3m05s, 2h04m, 3d04h.
void AppendDuration(std::string& out, double seconds);
// Four figures: 475, 21.32, -199.9, 1.235e+05; "-" for what is not known.
void AppendReal(std::string& out, double value);

std::string FormatCount(double count);
std::string FormatDuration(double seconds);
std::string FormatReal(double value);

}  // namespace millrace
