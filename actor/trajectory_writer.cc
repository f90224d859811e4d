#include "actor/trajectory_writer.h"

#include <xxhash.h>

namespace millrace {

StatusOr<TrajectoryWriter::Parcel*> TrajectoryWriter::Begin(size_t bytes, int32_t slot,
                                                            std::byte* slot_memory) {
  Parcel* parcel = nullptr;
  {
    MutexLock lock(mutex_);
    if (free_.empty()) {
      parcels_.push_back(std::make_unique<Parcel>());
      free_.reserve(parcels_.size());
      sent_.reserve(parcels_.size());
      free_.push_back(parcels_.back().get());
    }
    parcel = free_.back();
    free_.pop_back();
  }
  parcel->header = SegmentHeader();
  parcel->header.bytes = bytes;
  parcel->header.slot = slot;
  parcel->payload = slot_memory;
  if (slot_memory != nullptr) return parcel;
  if (parcel->memory.size() < bytes) {
    StatusOr<AlignedBytes> memory = AlignedBytes::Make(bytes);
    if (!memory.ok()) {
      Discard(parcel);
      return memory.status();
    }
    parcel->memory = *std::move(memory);
  }
  parcel->payload = parcel->memory.data();
  return parcel;
}

void TrajectoryWriter::Discard(Parcel* parcel) {
  MutexLock lock(mutex_);
  free_.push_back(parcel);
}

bool TrajectoryWriter::Send(Parcel* parcel) {
  parcel->header.checksum = XXH3_64bits(parcel->payload, parcel->header.bytes);
  MutexLock sending(send_mutex_);
  if (transport_ == nullptr) return false;
  parcel->header.sequence = ++last_sequence_;
  {
    MutexLock lock(mutex_);
    parcel->acknowledged = false;
    ++parcel->lent;
    sent_.push_back(parcel);
  }
  Transmit(parcel);
  return true;
}

// The acknowledgement may come before this returns; `lent` keeps the memory from being used until then.
void TrajectoryWriter::Transmit(Parcel* parcel) {
  const Status sent =
      transport_->SendSegment(parcel->header, parcel->payload, [this, parcel] { Released(parcel); });
  static_cast<void>(sent);  // who receives learns of the lost connection as well
}

void TrajectoryWriter::Released(Parcel* parcel) {
  MutexLock lock(mutex_);
  --parcel->lent;
  FreeIfDone(parcel);
}

void TrajectoryWriter::FreeIfDone(Parcel* parcel) {
  if (parcel->lent == 0 && parcel->acknowledged) free_.push_back(parcel);
}

void TrajectoryWriter::Attach(ActorTransport* transport) {
  MutexLock sending(send_mutex_);
  transport_ = transport;
  std::vector<Parcel*> again;
  {
    MutexLock lock(mutex_);
    again = sent_;
    for (Parcel* parcel : again) ++parcel->lent;
  }
  // None of them is acknowledged meanwhile: that is done by the caller's thread.
  for (Parcel* parcel : again) Transmit(parcel);
}

void TrajectoryWriter::Detach() {
  MutexLock sending(send_mutex_);
  transport_ = nullptr;
}

void TrajectoryWriter::Acknowledge(uint64_t sequence) {
  MutexLock lock(mutex_);
  size_t count = 0;
  while (count < sent_.size() && sent_[count]->header.sequence <= sequence) {
    sent_[count]->acknowledged = true;
    FreeIfDone(sent_[count]);
    ++count;
  }
  sent_.erase(sent_.begin(), sent_.begin() + static_cast<std::ptrdiff_t>(count));
}

size_t TrajectoryWriter::unacknowledged() const {
  MutexLock lock(mutex_);
  return sent_.size();
}

}  // namespace millrace
