// WeightSubscriber: puts the learner's weights together from the pieces in which they come, makes of them
// what acting needs, and hands the newest to the acting threads. Station: weight_subscriber. Owner:
// actor_crew.
//
// Threads: Take from one (the one that receives); a Reader belongs to one acting thread. A version
// in use stays as it is until its last reader has moved on; then its memory takes up the next one, so that
// nothing is allocated once every thread has acted.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "common/aligned_bytes.h"
#include "common/messages.h"
#include "common/mutex.h"
#include "common/options.h"
#include "common/status.h"
#include "kernels/net/policy_view.h"

namespace millrace {

class WeightSubscriber {
 public:
  WeightSubscriber(const EnvSpec& spec, const RunOptions& options);
  ~WeightSubscriber();

  const ActorCritic& net() const { return net_; }

  // Takes in one piece; true when a version is complete and from now on the newest. InvalidArgument when its
  // size is not that of this network, DataLoss when a piece is missing or the checksum is another one; both
  // name the version, and what was the newest stays so.
  StatusOr<bool> Take(const WeightsChunk& chunk);

  // The newest version; false: none has come yet.
  bool newest(uint64_t* version) const;

 private:
  struct Version;

 public:
  // One acting thread's hold on the version that it acts by.
  class Reader {
   public:
    explicit Reader(WeightSubscriber& subscriber) : subscriber_(subscriber) {}
    ~Reader();
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;

    // The newest policy: one atomic read where nothing has changed. Without a network before the first.
    PolicyView Newest();
    // The policy of the last call of Newest.
    PolicyView Same() const;

   private:
    WeightSubscriber& subscriber_;
    Version* version_ = nullptr;
    uint64_t turn_ = 0;
  };

 private:
  Status Begin(const WeightsChunk& chunk);
  Version* Swap(Version* held, uint64_t* turn);
  void Release(Version* held);

  const EnvSpec spec_;
  const EnvSection env_;
  const ActorCritic net_;
  size_t blob_bytes_ = 0;

  Version* filling_ = nullptr;  // of the receiving thread
  size_t filled_ = 0;           // bytes of it
  bool begun_ = false;          // a piece at offset 0 has come, and the last one has not

  std::atomic<uint64_t> turn_{0};  // rises with each version that becomes the newest
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<Version>> versions_ MILL_GUARDED_BY(mutex_);
  Version* newest_ MILL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace millrace
