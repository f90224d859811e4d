// Chunks of the Weights service as bytes and back. Station: weight_publisher ==> weight_subscriber. Pure
// functions, any thread; input is as hostile as codec.h's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/messages.h"
#include "common/rpc/codec.h"
#include "common/status.h"
#include "common/weights.h"

namespace millrace {

namespace v1 {
class WeightsChunk;
}

// The chunk of `bytes` bytes at `offset` of the blob: this prefix, then those bytes.
std::string EncodeWeightsPrefix(const WeightsBlob& blob, size_t offset, size_t bytes);

// A chunk that stands alone, as the Weights service sends it; as a LearnerMessage, which it is elsewhere.
StatusOr<LearnerFrame> ParseWeightsFrame(std::string_view bytes);

// Takes the data out of `from`. InvalidArgument when it is too long or reaches beyond the total.
StatusOr<WeightsChunk> FromProto(v1::WeightsChunk& from);

}  // namespace millrace
