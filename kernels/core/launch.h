// How the CPU runs an op: all tiles of it, one after another, with a team of one. An op is a struct with
//   struct Params; struct Shared; static int Tiles(const Params&);
//   template <class Team> void operator()(Team&, int tile, const Params&, Shared&) const;
#pragma once

#include "kernels/core/team.h"

namespace millrace {

template <class Op>
inline void RunSerial(const typename Op::Params& params) {
  SerialTeam team;
  typename Op::Shared shared;
  const int tiles = Op::Tiles(params);
  for (int tile = 0; tile < tiles; ++tile) Op{}(team, tile, params, shared);
}

// One tile of it, for callers that spread tiles over threads.
template <class Op>
inline void RunTile(int tile, const typename Op::Params& params) {
  SerialTeam team;
  typename Op::Shared shared;
  Op{}(team, tile, params, shared);
}

}  // namespace millrace
