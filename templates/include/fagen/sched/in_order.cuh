// CTAs in the order of tiles: neighbours share a head, so what it reads comes from HBM once.
#pragma once

#include "fagen/sched/work.cuh"

namespace fagen::sched {

__device__ __forceinline__ Place in_order(const Tiles& tiles, uint32_t item) {
  return {item / tiles.of_pair, item % tiles.of_pair};
}

}  // namespace fagen::sched
