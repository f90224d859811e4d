// ReplayBatchMemory: a ReplayBatch with memory of its own for everything that can be written. Station:
// replay. Owner: whoever draws. No thread of its own; who fills it and who reads it take turns.
#pragma once

#include <cstdint>
#include <vector>

#include "learner/replay/replay.h"

namespace millrace {

struct ReplayBatchMemory {
  // ld: floats of a row of x, which begins as `fill`. actions: choices in a step of the discrete kinds, 0 for
  // Box. outputs: bytes of an action mask, 0 without one.
  ReplayBatchMemory(int rows, int ld, int actions = 0, int outputs = 0, float fill = 0) {
    const auto n = static_cast<size_t>(rows);
    x.resize(n * static_cast<size_t>(ld), fill);
    next_x = x;
    for (std::vector<float>* v : {&reward, &discount, &weight}) v->resize(n);
    index.resize(n);
    action.resize(n * static_cast<size_t>(actions));
    mask.resize(n * static_cast<size_t>(outputs));
    next_mask = mask;
    view.rows = rows;
    view.ld = ld;
    view.x = x.data();
    view.next_x = next_x.data();
    view.action = action.empty() ? nullptr : action.data();
    view.reward = reward.data();
    view.discount = discount.data();
    view.weight = weight.data();
    view.index = index.data();
    view.mask = mask.empty() ? nullptr : mask.data();
    view.next_mask = next_mask.empty() ? nullptr : next_mask.data();
  }
  // Of such a batch.
  static uint64_t Bytes(int rows, int ld, int actions, int outputs) {
    const auto floats = 2 * static_cast<uint64_t>(ld) + 3 + 1 + static_cast<uint64_t>(actions);
    return static_cast<uint64_t>(rows) * (sizeof(float) * floats + 2 * static_cast<uint64_t>(outputs));
  }
  // A copy's view would be of the other's memory.
  ReplayBatchMemory(const ReplayBatchMemory&) = delete;
  ReplayBatchMemory& operator=(const ReplayBatchMemory&) = delete;

  std::vector<float> x, next_x, reward, discount, weight;
  std::vector<uint32_t> index;
  std::vector<int32_t> action;
  std::vector<uint8_t> mask, next_mask;
  ReplayBatch view;
};

}  // namespace millrace
