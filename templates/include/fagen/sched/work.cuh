// What one CTA works on.
#pragma once

#include "fagen/base/types.cuh"

namespace fagen::sched {

// Tiles that are handed out: so many of each (batch, head) pair, and the pairs that run side by side.
struct Tiles {
  uint32_t pairs, of_pair, abreast;

  // Tiles of queries, of every query head.
  template <typename Params>
  __device__ __forceinline__ static Tiles of_queries(const Params& p) {
    return {uint32_t(p.batch) * p.heads_q, uint32_t(p.q_tiles), uint32_t(p.heads_abreast)};
  }
};

// One of them.
struct Place {
  uint32_t pair;  // (batch, head) pairs are counted with the heads fastest
  uint32_t tile;
};

struct Work {
  uint32_t pair;  // of query heads
  int batch, head_q, head_kv, q_tile;

  template <typename Params>
  __device__ __forceinline__ static Work of(const Params& p, Place at) {
    int head = at.pair % p.heads_q;
    return {at.pair, int(at.pair / p.heads_q), head, head / p.heads_per_kv, int(at.tile)};
  }
};

}  // namespace fagen::sched
