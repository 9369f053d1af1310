// Sequences of one length each, in tensors with a batch dimension; tensor maps are (column, row, head,
// batch).
#pragma once

#include "fagen/base/types.cuh"
#include "fagen/pipe/tma_tile.cuh"
#include "fagen/sched/one_head.cuh"

namespace fagen::sched {

struct Batched : OneHead {
  int batch, seqlen_q, seqlen_k;

  __device__ __forceinline__ Batched() {}

  template <typename Params>
  __device__ __forceinline__ Batched(const Params& p, int batch)
      : batch(batch), seqlen_q(p.seqlen_q), seqlen_k(p.seqlen_k) {}

  // Where row `row` of a head is in the tensor maps of Q and O, and of K and V.
  __device__ __forceinline__ QRows q_rows(int head, int row) const { return {row, head, batch}; }
  __device__ __forceinline__ KvRows kv_rows(int head, int row) const { return {row, head, batch}; }

  // A head's first row in the LSE, [batch, heads_q, seqlen_q].
  template <typename Params>
  __device__ __forceinline__ float* lse(const Params& p, int head) const {
    return p.lse + (int64_t(batch) * p.heads_q + head) * seqlen_q;
  }

  // A head's first key.
  template <typename Params>
  __device__ __forceinline__ auto k(const Params& p, int head) const {
    return p.k + batch * p.k_batch_stride + head * p.k_head_stride;
  }

  // A head's first row in O.
  template <typename Params>
  __device__ __forceinline__ auto out(const Params& p, int head) const {
    return p.out + batch * p.out_batch_stride + head * p.out_head_stride;
  }
};

}  // namespace fagen::sched
