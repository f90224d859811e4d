#include "learner/replay/layout.h"

#include "common/text.h"

namespace millrace {
namespace {

const char* TypeName(DType type) {
  if (type == DType::kU8) return "u8";
  return type == DType::kI32 ? "i32" : "f32";
}

}  // namespace

StatusOr<ReplayLayout> ReplayLayout::Make(const EnvSpec& spec, int frames) {
  ReplayLayout layout;
  layout.frames = frames;
  size_t next = 0;
  bool aligned = false;
  layout.arrays.resize(spec.observations.size());
  // Values of four bytes first, so that i32 stands on a multiple of four.
  for (const bool wide : {true, false}) {
    for (size_t a = 0; a < spec.observations.size(); ++a) {
      const ArraySpec& array = spec.observations[a];
      if ((SizeOf(array.dtype) == 4) != wide) continue;
      if (frames > 1 && (array.shape.empty() || array.shape[0] != frames)) {
        return absl::InvalidArgumentError(Cat("env.frame_stack is ", frames, ", but observation `",
                                              array.name, "` is no stack of so many"));
      }
      Array& out = layout.arrays[a];
      out.dtype = array.dtype;
      out.row_bytes = array.bytes();
      out.frame_bytes = array.bytes() / static_cast<size_t>(frames);
      out.frame_elements = array.elements() / frames;
      out.at = next;
      next += out.frame_bytes;
      aligned |= array.dtype == DType::kI32;
      CatTo(layout.text, array.name, " ", TypeName(array.dtype), "x", out.frame_elements, "@", out.at, " ");
    }
  }
  layout.observation_bytes = next;
  layout.action_at = next;
  layout.action_bytes = static_cast<size_t>(spec.action.width()) * sizeof(float);
  layout.reward_at = layout.action_at + layout.action_bytes;
  layout.mask_at = layout.reward_at + sizeof(float);
  layout.mask_bytes = spec.action_mask ? static_cast<size_t>(spec.action.outputs()) : 0;
  layout.stride = layout.mask_at + layout.mask_bytes;
  if (aligned) layout.stride = (layout.stride + 3) / 4 * 4;
  CatTo(layout.text, "frames ", frames, ", action ", spec.action.box() ? "f32" : "i32", "x",
        spec.action.width(), "@", layout.action_at, ", mask ", layout.mask_bytes, ", slot ", layout.stride,
        " B");
  return layout;
}

}  // namespace millrace
