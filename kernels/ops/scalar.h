// Small helpers that the ops share beside core/math.h; host and device, branch-free so that loops over them
// vectorize.
#pragma once

#include "kernels/core/math.h"

namespace millrace {

MILL_HD float MinOf(float a, float b) {
  return a < b ? a : b;
}
MILL_HD float MaxOf(float a, float b) {
  return a > b ? a : b;
}
MILL_HD int MinOf(int a, int b) {
  return a < b ? a : b;
}
// NaN passes through.
MILL_HD float ClampTo(float x, float lo, float hi) {
  return AtMost(AtLeast(x, lo), hi);
}
MILL_HD int CeilDiv(int a, int b) {
  return (a + b - 1) / b;
}

}  // namespace millrace
