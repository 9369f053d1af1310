// What one CTA works on.
#pragma once

#include "fagen/base/types.cuh"

namespace fagen::sched {

struct Work {
  int batch, head_q, head_kv, q_tile;

  // `pair` counts (batch, query head) pairs, heads fastest.
  template <typename Params>
  __device__ __forceinline__ static Work of(const Params& p, uint32_t pair, uint32_t q_tile) {
    int head = pair % p.heads_q;
    return {int(pair / p.heads_q), head, head / p.heads_per_kv, int(q_tile)};
  }
};

}  // namespace fagen::sched
