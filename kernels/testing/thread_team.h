// ThreadTeam: a Team of real threads and a real barrier, for tests only. ThreadSanitizer sees its accesses,
// so a Sync missing from an op's body is named to the line, though every serial run passes.
#pragma once

#include <barrier>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace millrace {

class ThreadTeam {
 public:
  static constexpr bool size_is_one = false;

  ThreadTeam(int rank, int size, std::barrier<>* barrier) : rank_(rank), size_(size), barrier_(barrier) {}
  int rank() const { return rank_; }
  int size() const { return size_; }
  void Sync() const { barrier_->arrive_and_wait(); }

 private:
  int rank_;
  int size_;
  std::barrier<>* barrier_;
};

// The tiles of Op from `first` to `last` by steps of `step`, each by `size` threads together; Shared is one
// object full of NaN, for a device's block finds there what the block before it left.
template <class Op>
void RunThreads(const typename Op::Params& params, int size, int first, int last, int step) {
  using Shared = typename Op::Shared;
  std::barrier<> barrier(size);
  const auto shared = std::make_unique<Shared>();
  std::memset(static_cast<void*>(shared.get()), 0xFF, sizeof(Shared));
  const auto work = [&](int rank) {
    ThreadTeam team(rank, size, &barrier);
    for (int tile = first; tile != last + step; tile += step) {
      Op{}(team, tile, params, *shared);
      team.Sync();
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 1; rank < size; ++rank) threads.emplace_back(work, rank);
  work(0);
  for (std::thread& t : threads) t.join();
}

// All tiles in order.
template <class Op>
void RunThreads(const typename Op::Params& params, int size) {
  const int tiles = Op::Tiles(params);
  if (tiles > 0) RunThreads<Op>(params, size, 0, tiles - 1, 1);
}

}  // namespace millrace
