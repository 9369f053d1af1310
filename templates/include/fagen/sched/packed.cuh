// Sequences of any length, one behind the other in tensors without a batch dimension: sequence b has rows
// [cu_seqlens[b], cu_seqlens[b + 1]).
//
// Tensor maps are (column, row, end, wrap, head), with F = 2^30 rows, whatever the tensor has. `row` and
// `end` step by one row, and `wrap` = F takes F rows back: its stride is 2^34 bytes less one row, and F times
// 2^34 is 2^64. With `end` a sequence's end and `row` = F less what is left of it, the wanted row is their
// sum less F, and rows past the sequence's end are outside of the map's second dimension: loaded as zeros,
// not stored.
#pragma once

#include "fagen/base/types.cuh"
#include "fagen/pipe/tma_tile.cuh"
#include "fagen/ptx/global.cuh"
#include "fagen/sched/one_head.cuh"

namespace fagen::sched {

struct Packed : OneHead {
  using QRows = pipe::PackedRows;
  using KvRows = pipe::PackedRows;

  int seqlen_q, seqlen_k;
  int begin_q, end_q, end_k;
  int tokens_q;

  __device__ __forceinline__ Packed() {}

  template <typename Params>
  __device__ __forceinline__ Packed(const Params& p, int batch)
      : begin_q(ptx::ld_global(p.cu_seqlens_q + batch)),
        end_q(ptx::ld_global(p.cu_seqlens_q + batch + 1)),
        end_k(ptx::ld_global(p.cu_seqlens_k + batch + 1)),
        tokens_q(p.tokens_q) {
    seqlen_q = end_q - begin_q;
    seqlen_k = end_k - ptx::ld_global(p.cu_seqlens_k + batch);
  }

  // Where row `row` of a head is in the tensor maps of Q and O, and of K and V.
  __device__ __forceinline__ QRows q_rows(int head, int row) const { return {seqlen_q - row, end_q, head}; }
  __device__ __forceinline__ KvRows kv_rows(int head, int row) const { return {seqlen_k - row, end_k, head}; }

  // A head's first row in the LSE, [heads_q, tokens_q].
  template <typename Params>
  __device__ __forceinline__ float* lse(const Params& p, int head) const {
    return p.lse + int64_t(head) * tokens_q + begin_q;
  }

  // A head's first key.
  template <typename Params>
  __device__ __forceinline__ auto k(const Params& p, int head) const {
    return p.k + (end_k - seqlen_k) * p.k_row_stride + head * p.k_head_stride;
  }

  // A head's first row in O.
  template <typename Params>
  __device__ __forceinline__ auto out(const Params& p, int head) const {
    return p.out + begin_q * p.out_row_stride + head * p.out_head_stride;
  }
};

}  // namespace fagen::sched
