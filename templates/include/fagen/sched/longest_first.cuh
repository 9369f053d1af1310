// Longest processing time first, for masks under which the last query blocks see the most keys.
//
// The shortest quarter of all blocks goes last, so that only short ones are left when CTAs run out of work.
// The rest goes group by group of (batch, head) pairs that run side by side, longest first in each group: few
// pairs, so that their K and V stay in L2 and long blocks, which compute, mix with short ones, which load.
#pragma once

#include "fagen/sched/work.cuh"

namespace fagen::sched {

template <typename Params>
__device__ __forceinline__ Work longest_first(const Params& p, uint32_t item) {
  const uint32_t pairs = uint32_t(p.batch) * p.heads_q;
  const uint32_t shortest = p.q_tiles / 4, others = p.q_tiles - shortest;
  if (item >= pairs * others) {
    const uint32_t rest = item - pairs * others;
    return Work::of(p, rest % pairs, shortest - 1 - rest / pairs);
  }
  const uint32_t group = item / (p.heads_abreast * others);
  const uint32_t first = group * p.heads_abreast;
  const uint32_t size = min(uint32_t(p.heads_abreast), pairs - first);
  const uint32_t rest = item - first * others;
  return Work::of(p, first + rest % size, p.q_tiles - 1 - rest / size);
}

}  // namespace fagen::sched
