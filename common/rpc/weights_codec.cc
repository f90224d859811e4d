#include "common/rpc/weights_codec.h"

#include <limits>
#include <utility>

#include "common/rpc/wire.h"
#include "common/text.h"
#include "millrace/v1/trajectory.pb.h"

namespace millrace {

std::string EncodeWeightsPrefix(const WeightsBlob& blob, size_t offset, size_t bytes) {
  v1::WeightsChunk chunk;
  chunk.set_version(blob.version);
  chunk.set_total_bytes(blob.bytes.size());
  chunk.set_offset(offset);
  chunk.set_checksum(blob.checksum);
  std::string prefix = chunk.SerializeAsString();
  AppendBytesTag(prefix, v1::WeightsChunk::kDataFieldNumber);
  AppendVarint(prefix, bytes);
  return prefix;
}

StatusOr<LearnerFrame> ParseWeightsFrame(std::string_view bytes) {
  v1::WeightsChunk chunk;
  if (bytes.size() > static_cast<size_t>(std::numeric_limits<int>::max()) ||
      !chunk.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError("weights: malformed");
  }
  MILL_ASSIGN_OR_RETURN(WeightsChunk parsed, FromProto(chunk));
  return LearnerMessage(std::move(parsed));
}

StatusOr<WeightsChunk> FromProto(v1::WeightsChunk& from) {
  if (from.data().size() > kWeightsChunkBytes) {
    return absl::InvalidArgumentError(
        Cat("weights.data: ", from.data().size(), " bytes, at most ", kWeightsChunkBytes, " are allowed"));
  }
  if (from.offset() > from.total_bytes() || from.data().size() > from.total_bytes() - from.offset()) {
    return absl::InvalidArgumentError(Cat("weights.offset: ", from.data().size(), " bytes at ", from.offset(),
                                          " reach beyond the total of ", from.total_bytes()));
  }
  WeightsChunk chunk;
  chunk.version = from.version();
  chunk.total_bytes = from.total_bytes();
  chunk.offset = from.offset();
  chunk.checksum = from.checksum();
  chunk.data = std::move(*from.mutable_data());
  return chunk;
}

}  // namespace millrace
