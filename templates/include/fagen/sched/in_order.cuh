// CTAs in the order of their query blocks: neighbours share a head, so K and V are read from HBM once.
#pragma once

#include "fagen/sched/work.cuh"

namespace fagen::sched {

template <typename Params>
__device__ __forceinline__ Work in_order(const Params& p, uint32_t cta) {
  return Work::of(p, cta / p.q_tiles, cta % p.q_tiles);
}

}  // namespace fagen::sched
