// ReplayLayout: where the fields of a stored step stand in its slot. Station: replay. Immutable; any thread.
//
//   slot: [ observation, newest frame only | action | reward f32 | mask u8 ]
//
// What the critic reads, observation and action, lies side by side, so a transition of one step is one
// stretch of memory: its own slot and the observation of the slot behind it. Only where an observation is i32
// are slots padded, to four bytes; all else is read by memcpy.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/spec.h"
#include "common/status.h"

namespace millrace {

struct ReplayLayout {
  struct Array {
    DType dtype = DType::kF32;
    size_t at = 0;           // in the slot
    size_t frame_bytes = 0;  // one frame
    size_t row_bytes = 0;    // as segments have it: all frames of the stack
    int frame_elements = 0;
  };

  // InvalidArgument where the observations are not stacks of `frames` frames.
  static StatusOr<ReplayLayout> Make(const EnvSpec& spec, int frames);

  int frames = 1;  // env.frame_stack; each frame is stored once
  std::vector<Array> arrays;
  size_t observation_bytes = 0;
  size_t action_at = 0, action_bytes = 0;
  size_t reward_at = 0;
  size_t mask_at = 0, mask_bytes = 0;  // 0: no mask
  size_t stride = 0;                   // bytes of a slot
  std::string text;                    // all of the above in one line; two of the same text are alike
};

}  // namespace millrace
