// RolloutSource: where the learner's batches come from - the environments of this process, or actors behind
// the trajectory service. Station: between rollout_buffer and batch_assembler. Called from the learner's
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/segment.h"
#include "common/status.h"
#include "kernels/net/policy_view.h"

namespace millrace {

// One batch, valid until the next call of Collect.
struct Rollout {
  std::span<const SegmentView> segments;
  std::span<const uint32_t> groups;  // [segments] the row group of each
  Status fault;                      // the first environment fault, in row order
  double inference_seconds =
      0;  // wall seconds of the rollout that went into the network, an estimate; NaN: unknown
  double wait_seconds = 0;  // the learner waited for it
};

// The environments' state at the end of what was trained on, and how far each group has come.
struct RowStates {
  size_t row_bytes = 0;
  std::vector<std::byte> bytes;      // [rows, row_bytes], groups in order
  std::vector<uint32_t> group_rows;  // [groups]
  std::vector<uint64_t> next_step;   // [groups] agent steps done
  std::vector<uint8_t> known;        // [groups] 0: no state; its episodes begin anew
};

class RolloutSource {
 public:
  virtual ~RolloutSource() = default;

  // Publishes `policy` and returns the batch of the next update, acted by it (sync) or by recent ones
  // (async). Cancelled when `Stop` ended the wait: nothing was taken.
  virtual StatusOr<Rollout> Collect(const PolicyView& policy) = 0;

  // The states after the last batch that was collected.
  virtual RowStates SaveRows() const = 0;
  // Before the first Collect. InvalidArgument when they are of another environment or other rows.
  virtual Status LoadRows(const RowStates& states) = 0;

  // Makes a Collect that waits, and every later one, return Cancelled. Any thread.
  virtual void Stop() = 0;
};

}  // namespace millrace
