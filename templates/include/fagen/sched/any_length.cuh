// One of the sequences of any length that lie one behind the other in tensors without a batch dimension:
// sequence b has rows [cu_seqlens[b], cu_seqlens[b + 1]). For kernels that load by pointers.
#pragma once

#include "fagen/base/types.cuh"
#include "fagen/ptx/global.cuh"

namespace fagen::sched {

struct AnyLength {
  int batch, seqlen_q, seqlen_k;
  int begin_q, begin_k;  // first row in the packed tensors

  template <typename Params>
  __device__ __forceinline__ AnyLength(const Params& p, int batch)
      : batch(batch),
        begin_q(ptx::ld_global(p.cu_seqlens_q + batch)),
        begin_k(ptx::ld_global(p.cu_seqlens_k + batch)) {
    seqlen_q = ptx::ld_global(p.cu_seqlens_q + batch + 1) - begin_q;
    seqlen_k = ptx::ld_global(p.cu_seqlens_k + batch + 1) - begin_k;
  }

  // Index of a head's first row in the LSE, [heads_q, tokens_q].
  template <typename Params>
  __device__ __forceinline__ int64_t lse(const Params& p, int head) const {
    return int64_t(head) * p.tokens_q + begin_q;
  }

  // Index of a head's first Q tile of `tile_rows` rows in the workspaces of the backward, where a head has
  // `p.head_tiles`: with one tile more for each sequence before, ranges of sequences never overlap.
  template <typename Params>
  __device__ __forceinline__ int64_t first_tile(const Params& p, int head, int tile_rows) const {
    return int64_t(head) * p.head_tiles + begin_q / tile_rows + batch;
  }
};

}  // namespace fagen::sched
