#include "actor/weight_subscriber.h"

#include <xxhash.h>

#include <cstring>

#include "common/text.h"
#include "common/weights.h"

namespace millrace {

struct WeightSubscriber::Version {
  explicit Version(ObsEncoder e) : encoder(std::move(e)) {}
  uint64_t version = 0, checksum = 0;
  AlignedBytes blob;    // as WeightsBlob has it; parameters [P] f32 come first
  AlignedBytes packed;  // [packed_floats] f32
  ObsEncoder encoder;
  int holders = 0;  // readers, the newest's place, and who fills it; under the subscriber's lock
};

WeightSubscriber::WeightSubscriber(const EnvSpec& spec, const RunOptions& options)
    : spec_(spec), env_(options.env), net_(NetSpecFor(spec, options)) {
  const auto inputs = static_cast<size_t>(spec.observation_elements());
  blob_bytes_ =
      net_.parameter_floats() * sizeof(float) + (env_.normalize_obs ? 2 * inputs * sizeof(double) : 0);
}

WeightSubscriber::~WeightSubscriber() = default;

// A version that nobody holds, its memory ready to be filled.
Status WeightSubscriber::Begin(const WeightsChunk& chunk) {
  if (chunk.total_bytes != blob_bytes_) {
    return absl::InvalidArgumentError(Cat("weights of version ", chunk.version, " have ", chunk.total_bytes,
                                          " bytes; this network's have ", blob_bytes_));
  }
  if (filling_ == nullptr) {
    MutexLock lock(mutex_);
    for (auto& version : versions_) {
      if (version->holders == 0) filling_ = version.get();
    }
    if (filling_ == nullptr) {
      auto made =
          std::make_unique<Version>(ObsEncoder(spec_, env_.normalize_obs, static_cast<float>(env_.clip_obs)));
      MILL_ASSIGN_OR_RETURN(made->blob, AlignedBytes::Make(blob_bytes_));
      MILL_ASSIGN_OR_RETURN(made->packed, AlignedBytes::Make(net_.packed_floats() * sizeof(float)));
      filling_ = made.get();
      versions_.push_back(std::move(made));
    }
    filling_->holders = 1;
  }
  filling_->version = chunk.version;
  filling_->checksum = chunk.checksum;
  filled_ = 0;
  begun_ = true;
  return absl::OkStatus();
}

StatusOr<bool> WeightSubscriber::Take(const WeightsChunk& chunk) {
  if (chunk.offset == 0) MILL_RETURN_IF_ERROR(Begin(chunk));
  if (!begun_ || filling_->version != chunk.version || filled_ != chunk.offset ||
      chunk.data.size() > blob_bytes_ - filled_) {
    return absl::DataLossError(Cat("weights of version ", chunk.version, ": a piece of ", chunk.data.size(),
                                   " bytes at ", chunk.offset, " does not follow on what has come"));
  }
  std::memcpy(filling_->blob.data() + filled_, chunk.data.data(), chunk.data.size());
  filled_ += chunk.data.size();
  if (filled_ < blob_bytes_) return false;
  begun_ = false;
  Version& made = *filling_;
  if (WeightsChecksum(made.version, made.blob.data(), blob_bytes_) != made.checksum) {
    return absl::DataLossError(
        Cat("weights of version ", chunk.version, " were damaged on their way: another checksum"));
  }
  net_.PackAll(reinterpret_cast<const float*>(made.blob.data()), reinterpret_cast<float*>(made.packed.data()),
               false);
  if (made.encoder.normalizes()) {
    // A tensor is a multiple of 64 bytes, so the statistics are aligned.
    const auto* mean =
        reinterpret_cast<const double*>(made.blob.data() + net_.parameter_floats() * sizeof(float));
    made.encoder.SetStatistics(mean, mean + made.encoder.width());
  }
  MutexLock lock(mutex_);
  if (newest_ != nullptr) --newest_->holders;
  newest_ = filling_;  // and the filler's hold with it
  filling_ = nullptr;
  turn_.fetch_add(1, std::memory_order_release);
  return true;
}

bool WeightSubscriber::newest(uint64_t* version) const {
  MutexLock lock(mutex_);
  if (newest_ == nullptr) return false;
  *version = newest_->version;
  return true;
}

WeightSubscriber::Version* WeightSubscriber::Swap(Version* held, uint64_t* turn) {
  MutexLock lock(mutex_);
  if (newest_ == nullptr) return nullptr;
  if (held != nullptr) --held->holders;
  ++newest_->holders;
  *turn = turn_.load(std::memory_order_relaxed);
  return newest_;
}

void WeightSubscriber::Release(Version* held) {
  MutexLock lock(mutex_);
  --held->holders;
}

WeightSubscriber::Reader::~Reader() {
  if (version_ != nullptr) subscriber_.Release(version_);
}

PolicyView WeightSubscriber::Reader::Newest() {
  if (subscriber_.turn_.load(std::memory_order_acquire) != turn_) {
    version_ = subscriber_.Swap(version_, &turn_);
  }
  return Same();
}

PolicyView WeightSubscriber::Reader::Same() const {
  if (version_ == nullptr) return {};
  return {&subscriber_.net_, &version_->encoder, reinterpret_cast<const float*>(version_->blob.data()),
          reinterpret_cast<const float*>(version_->packed.data()), version_->version};
}

}  // namespace millrace
