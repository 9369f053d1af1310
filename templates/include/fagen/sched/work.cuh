// What one CTA works on.
#pragma once

#include "fagen/base/types.cuh"

namespace fagen::sched {

struct Work {
  uint32_t pair;  // (batch, query head) pairs are counted with the heads fastest
  int batch, head_q, head_kv, q_tile;

  template <typename Params>
  __device__ __forceinline__ static Work of(const Params& p, uint32_t pair, uint32_t q_tile) {
    int head = pair % p.heads_q;
    return {pair, int(pair / p.heads_q), head, head / p.heads_per_kv, int(q_tile)};
  }
};

}  // namespace fagen::sched
