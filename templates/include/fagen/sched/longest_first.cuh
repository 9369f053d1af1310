// Longest processing time first, for causal masks: the last query block sees the most keys, so all last
// blocks start first and the short ones fill the tail. Done group by group of (batch, head) pairs, as many
// as keep their K and V in L2 together.
#pragma once

#include "fagen/sched/work.cuh"

namespace fagen::sched {

template <typename Params>
__device__ __forceinline__ Work longest_first(const Params& p, uint32_t cta) {
  uint32_t pairs = uint32_t(p.batch) * p.heads_q;
  uint32_t group = cta / (p.heads_in_l2 * p.q_tiles);
  uint32_t first = group * p.heads_in_l2;
  uint32_t size = min(uint32_t(p.heads_in_l2), pairs - first);
  uint32_t rest = cta - first * p.q_tiles;
  return Work::of(p, first + rest % size, p.q_tiles - 1 - rest / size);
}

}  // namespace fagen::sched
