// ExpectSameBits: one op, every team. It runs the op with the serial team and with teams of 1, 2, 3 and 5
// threads, each time from the same bytes in the outputs, and demands the same bits. Test code only.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/core/launch.h"
#include "kernels/testing/thread_team.h"

namespace millrace {

// Memory that an op writes.
struct Output {
  template <class T>
  Output(std::vector<T>& v) : data(v.data()), bytes(v.size() * sizeof(T)) {}  // NOLINT: meant to convert
  template <class T>
  Output(T* p, size_t n) : data(p), bytes(n * sizeof(T)) {}

  void* data;
  size_t bytes;
};

using Bytes = std::vector<unsigned char>;

inline Bytes CopyOut(const std::vector<Output>& outputs) {
  Bytes all;
  for (const Output& o : outputs) {
    const auto* p = static_cast<const unsigned char*>(o.data);
    all.insert(all.end(), p, p + o.bytes);
  }
  return all;
}

inline void CopyIn(const Bytes& all, const std::vector<Output>& outputs) {
  size_t at = 0;
  for (const Output& o : outputs) {
    if (o.bytes != 0) std::memcpy(o.data, all.data() + at, o.bytes);
    at += o.bytes;
  }
}

// Leaves the serial team's result in the outputs. `outputs` must name all that the op writes.
template <class Op>
void ExpectSameBits(const typename Op::Params& params, const std::vector<Output>& outputs) {
  const Bytes before = CopyOut(outputs);
  RunSerial<Op>(params);
  const Bytes serial = CopyOut(outputs);
  for (const int size : {1, 2, 3, 5}) {
    CopyIn(before, outputs);
    RunThreads<Op>(params, size);
    const Bytes threads = CopyOut(outputs);
    size_t differing = 0;
    for (size_t i = 0; i < serial.size(); ++i) differing += serial[i] != threads[i];
    EXPECT_EQ(differing, 0u) << "bytes differ between the serial team and one of " << size << " threads";
  }
  CopyIn(serial, outputs);
}

}  // namespace millrace
