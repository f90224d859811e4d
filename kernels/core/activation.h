// Activation functions as functors, so that a loop holds no switch: DispatchActivation picks one outside of
// it. Pure, any thread. Station: GEMM epilogues and network ops, host and device.
//
// gelu is the tanh form of Hendrycks and Gimpel (2016): 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
#pragma once

#include "common/options.h"
#include "kernels/core/math.h"

namespace millrace {

// Forward(pre): the activation. Grad(y, pre): its derivative, given its result y and its input pre; kNeedsPre
// says whether pre is read (where it isn't, callers need not keep it).
template <Activation kind>
struct Act;

template <>
struct Act<Activation::kNone> {
  static constexpr bool kNeedsPre = false;
  static MILL_HD float Forward(float pre) { return pre; }
  static MILL_HD float Grad(float, float) { return 1.0f; }
};

template <>
struct Act<Activation::kTanh> {
  static constexpr bool kNeedsPre = false;
  static MILL_HD float Forward(float pre) { return Tanh(pre); }
  static MILL_HD float Grad(float y, float) { return Fma(-y, y, 1.0f); }
};

// A NaN stays a NaN.
template <>
struct Act<Activation::kRelu> {
  static constexpr bool kNeedsPre = false;
  static MILL_HD float Forward(float pre) { return AtLeast(pre, 0.0f); }
  static MILL_HD float Grad(float y, float) { return y > 0.0f ? 1.0f : 0.0f; }
};

template <>
struct Act<Activation::kGelu> {
  static constexpr bool kNeedsPre = true;
  static constexpr float kRoot = 0.797884561f;    // sqrt(2 / pi)
  static constexpr float kCubic = 0.0356774081f;  // 0.044715 sqrt(2 / pi)
  static MILL_HD float Inner(float x) { return x * Fma(x * x, kCubic, kRoot); }
  static MILL_HD float Forward(float pre) {
    const float half = 0.5f * pre;
    return Fma(half, Tanh(Inner(pre)), half);
  }
  static MILL_HD float Grad(float, float pre) {
    const float x = AtMost(AtLeast(pre, -16.0f), 16.0f);  // constant beyond; keeps x * x finite
    const float t = Tanh(Inner(x));
    const float slope = Fma(x * x, 3.0f * kCubic, kRoot);  // d Inner / d x
    return Fma(0.5f * x * Fma(-t, t, 1.0f), slope, Fma(0.5f, t, 0.5f));
  }
};

template <>
struct Act<Activation::kSilu> {
  static constexpr bool kNeedsPre = true;
  static MILL_HD float Forward(float pre) { return pre * Sigmoid(pre); }
  static MILL_HD float Grad(float, float pre) {
    const float s = Sigmoid(pre);
    return s * Fma(pre, 1.0f - s, 1.0f);
  }
};

// f(Act<kind>{}) for the activation that is only known at run time.
template <class F>
inline auto DispatchActivation(Activation kind, F&& f) {
  switch (kind) {
    case Activation::kTanh:
      return f(Act<Activation::kTanh>{});
    case Activation::kRelu:
      return f(Act<Activation::kRelu>{});
    case Activation::kGelu:
      return f(Act<Activation::kGelu>{});
    case Activation::kSilu:
      return f(Act<Activation::kSilu>{});
    case Activation::kNone:
      break;
  }
  return f(Act<Activation::kNone>{});
}

inline bool NeedsPreActivation(Activation kind) {
  return DispatchActivation(kind, [](auto act) { return decltype(act)::kNeedsPre; });
}

// One element; for loops, dispatch outside.
inline float ActForward(Activation kind, float pre) {
  return DispatchActivation(kind, [pre](auto act) { return decltype(act)::Forward(pre); });
}
inline float ActGrad(Activation kind, float y, float pre) {
  return DispatchActivation(kind, [y, pre](auto act) { return decltype(act)::Grad(y, pre); });
}

}  // namespace millrace
