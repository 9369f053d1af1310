// Longest processing time first, for masks under which the last tiles of a (batch, head) pair have the most
// to do.
//
// The shortest quarter of all tiles goes last, so that only short ones are left when CTAs run out of work.
// The rest goes group by group of pairs that run side by side, longest first in each group: few pairs, so
// that what they read stays in L2 and long tiles, which compute, mix with short ones, which load.
#pragma once

#include "fagen/sched/work.cuh"

namespace fagen::sched {

__device__ __forceinline__ Place longest_first(const Tiles& tiles, uint32_t item) {
  const uint32_t shortest = tiles.of_pair / 4, others = tiles.of_pair - shortest;
  if (item >= tiles.pairs * others) {
    const uint32_t rest = item - tiles.pairs * others;
    return {rest % tiles.pairs, shortest - 1 - rest / tiles.pairs};
  }
  const uint32_t group = item / (tiles.abreast * others);
  const uint32_t first = group * tiles.abreast;
  const uint32_t size = min(tiles.abreast, tiles.pairs - first);
  const uint32_t rest = item - first * others;
  return {first + rest % size, tiles.of_pair - 1 - rest / size};
}

}  // namespace fagen::sched
