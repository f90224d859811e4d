// Codec: messages as bytes and back, in the schema of proto/millrace/v1/trajectory.proto. Plain C++ here;
// generated types stay in codec.cc. Station: under every transport that leaves the process. Pure functions,
// any thread. Input is hostile until proven otherwise: nothing here allocates more than a small multiple of
// what it was given. DataLoss: the bytes are not those that were sent, or are framed as no message of ours
// is. InvalidArgument, naming the field: they arrived as they were sent, and mean nothing.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "common/messages.h"
#include "common/status.h"

namespace millrace {

std::string Encode(const ActorMessage& message);
std::string Encode(const LearnerMessage& message);

// A segment's ActorMessage up to its payload: these bytes, then header.bytes of payload (none where the
// header names a slot), are the message.
std::string EncodeSegmentPrefix(const SegmentHeader& header);

// Appends the field `check` of the schema: what ends every control message and every segment's header.
void AppendCheck(std::string& bytes);

// A segment's message, its payload at [payload_offset, payload_offset + header.bytes) of the message; in
// shared memory there is none.
struct SegmentFrame {
  SegmentHeader header;
  size_t payload_offset = 0;
};
struct UnknownMessage {};  // of a later protocol; to be ignored

// `head` is the first bytes of a message of `total` bytes: all of it, or at least kMaxControlBytes. A segment
// is known by its head alone; anything else must be whole.
using ActorFrame = std::variant<UnknownMessage, ActorMessage, SegmentFrame>;
StatusOr<ActorFrame> ParseActorFrame(std::string_view head, size_t total);

// Over a Unix socket, a descriptor comes with it.
struct RingOffer {
  uint32_t slots = 0;
  uint64_t stride = 0;  // bytes
};
std::string Encode(const RingOffer& ring);
using LearnerFrame = std::variant<UnknownMessage, LearnerMessage, RingOffer>;
StatusOr<LearnerFrame> ParseLearnerFrame(std::string_view bytes);

}  // namespace millrace
