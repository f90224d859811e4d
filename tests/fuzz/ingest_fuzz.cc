// What comes from outside, as libFuzzer likes it: frames of actors and of the learner, and the content of
// segments. Built by the preset `fuzz`, run by `./mill fuzz SECONDS`; its corpus is in corpus/ beside this.
//
// The first byte of an input says what the rest is.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "common/rpc/codec.h"
#include "common/rpc/weights_codec.h"
#include "common/segment.h"

namespace millrace {
namespace {

// A message that was taken is one that we could have sent: it encodes, and to something stable.
template <typename Frame, typename Parse>
void CheckStable(const Frame& message, Parse parse) {
  const std::string once = Encode(message);
  const auto again = parse(once);
  MILL_CHECK(again.ok());
  const auto* same = std::get_if<Frame>(&*again);
  MILL_CHECK(same != nullptr && Encode(*same) == once);
}

StatusOr<ActorFrame> ParseWhole(std::string_view bytes) {
  return ParseActorFrame(bytes, bytes.size());
}

// `more`: bytes of the message that the head does not show.
void FuzzActor(std::string_view head, size_t more) {
  const size_t total = head.size() + more;
  const auto frame = ParseActorFrame(head, total);
  if (!frame.ok()) {
    // What is framed as nothing of ours is, may have been damaged on its way.
    MILL_CHECK(absl::IsInvalidArgument(frame.status()) || absl::IsDataLoss(frame.status()));
    return;
  }
  if (const auto* segment = std::get_if<SegmentFrame>(&*frame)) {
    const bool in_slot = segment->header.slot >= 0;
    MILL_CHECK(segment->payload_offset <= head.size() || more > 0);
    MILL_CHECK(segment->payload_offset + (in_slot ? 0 : segment->header.bytes) == total);
    const std::string prefix = EncodeSegmentPrefix(segment->header);
    const auto again = ParseActorFrame(prefix, prefix.size() + (in_slot ? 0 : segment->header.bytes));
    MILL_CHECK(again.ok() && EncodeSegmentPrefix(std::get<SegmentFrame>(*again).header) == prefix);
  } else if (const auto* message = std::get_if<ActorMessage>(&*frame)) {
    MILL_CHECK(more == 0);
    CheckStable(*message, ParseWhole);
  }
}

void FuzzLearner(const StatusOr<LearnerFrame>& frame) {
  if (!frame.ok()) {
    MILL_CHECK(absl::IsInvalidArgument(frame.status()));
  } else if (const auto* message = std::get_if<LearnerMessage>(&*frame)) {
    CheckStable(*message, ParseLearnerFrame);
  } else if (const auto* ring = std::get_if<RingOffer>(&*frame)) {
    CheckStable(*ring, ParseLearnerFrame);
  }
}

// A layout with every column: two arrays, a mask, room for final observations.
const SegmentLayout& Layout(bool discrete) {
  const auto make = [](bool with_mask) {
    EnvSpec spec;
    spec.id = "Fuzz";
    spec.observations = {ArraySpec{"pixels", DType::kU8, {3}}, ArraySpec{"state", DType::kF32, {2}}};
    spec.action.kind = with_mask ? ActionSpec::Kind::kDiscrete : ActionSpec::Kind::kBox;
    if (with_mask) {
      spec.action.nvec = {3};
      spec.action_mask = true;
    } else {
      spec.action.low = {-1};
      spec.action.high = {1};
    }
    return SegmentLayout(spec, 4, 3, 2);
  };
  static const SegmentLayout with_mask = make(true), with_box = make(false);
  return discrete ? with_mask : with_box;
}

void FuzzSegment(std::string_view bytes, bool discrete) {
  const SegmentLayout& layout = Layout(discrete);
  std::vector<uint64_t> memory(layout.bytes() / sizeof(uint64_t) + 1);
  std::memcpy(memory.data(), bytes.data(), std::min(bytes.size(), layout.bytes()));
  const SegmentView view(&layout, reinterpret_cast<std::byte*>(memory.data()));
  const Status status = CheckSegment(view);
  if (!status.ok()) {
    MILL_CHECK(absl::IsInvalidArgument(status));
    return;
  }
  MILL_CHECK(view.final_count() >= 0 && view.final_count() <= layout.final_capacity());
  MILL_CHECK(view.episode_count() >= 0 && view.episode_count() <= layout.samples());
  for (int i = 0; i < view.final_count(); ++i) {
    const int32_t sample = view.final_index()[i];
    MILL_CHECK(sample >= 0 && sample < layout.samples() && view.truncated()[sample] == 1);
  }
  if (discrete) {
    for (int i = 0; i < layout.samples(); ++i) {
      const int32_t action = static_cast<const int32_t*>(view.action())[i];
      MILL_CHECK(action >= 0 && action < 3);
    }
  }
}

void FuzzOne(std::string_view input) {
  if (input.empty()) return;
  const auto kind = static_cast<uint8_t>(input[0]);
  input.remove_prefix(1);
  switch (kind % 6) {
    case 0:
      return FuzzActor(input, 0);
    case 1:
      return FuzzActor(input, 300);
    case 2:
      return FuzzLearner(ParseLearnerFrame(input));
    case 3:
      return FuzzLearner(ParseWeightsFrame(input));
    case 4:
      return FuzzSegment(input, true);
    default:
      return FuzzSegment(input, false);
  }
}

}  // namespace
}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  millrace::FuzzOne({reinterpret_cast<const char*>(data), size});
  return 0;
}
