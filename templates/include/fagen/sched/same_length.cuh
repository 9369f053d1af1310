// One sequence of a batch whose sequences have one length each, in tensors with a batch dimension: where its
// rows are, for kernels that load by pointers.
#pragma once

#include "fagen/base/types.cuh"

namespace fagen::sched {

struct SameLength {
  int batch;
  const int32_t& seqlen_q;  // in the kernel's parameters, where they take no registers
  const int32_t& seqlen_k;
  static constexpr int begin_q = 0, begin_k = 0;  // first row in tensors without a batch dimension

  template <typename Params>
  __device__ __forceinline__ SameLength(const Params& p, int batch)
      : batch(batch), seqlen_q(p.seqlen_q), seqlen_k(p.seqlen_k) {}

  // Index of a head's first row in the LSE, [batch, heads_q, seqlen_q].
  template <typename Params>
  __device__ __forceinline__ int64_t lse(const Params& p, int head) const {
    return (int64_t(batch) * p.heads_q + head) * seqlen_q;
  }

  // Index of a head's first Q tile of `tile_rows` rows in the workspaces of the backward, where a head has
  // `p.head_tiles`.
  template <typename Params>
  __device__ __forceinline__ int64_t first_tile(const Params& p, int head, int tile_rows) const {
    return (int64_t(batch) * p.heads_q + head) * p.head_tiles;
  }
};

}  // namespace fagen::sched
