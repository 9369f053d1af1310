// Sequences as in batched.cuh, and Q tiles whose rows are a group's heads, for query after query: the query
// heads of one K/V head, so a work item's head is a K/V head. Groups have 2^group_log2 heads, at most as many
// as a warpgroup has rows. Tensor maps of Q and O are (column, head of the group, query, K/V head, batch).
#pragma once

#include "fagen/base/types.cuh"
#include "fagen/pipe/tma_tile.cuh"

namespace fagen::sched {

struct Grouped {
  using QRows = pipe::GroupedRows;
  using KvRows = pipe::Rows;

  int batch, seqlen_q, seqlen_k, group_log2;

  __device__ __forceinline__ Grouped() {}

  template <typename Params>
  __device__ __forceinline__ Grouped(const Params& p, int batch)
      : batch(batch), seqlen_q(p.seqlen_q), seqlen_k(p.seqlen_k), group_log2(p.group_log2) {}

  // Of rows and queries counted from a tile's first: the query of a row, and the rows of so many queries; of
  // more than a tile has, at least as many as it has.
  __device__ __forceinline__ int query(int row) const { return row >> group_log2; }
  __device__ __forceinline__ int rows(int queries) const { return min(queries, kMany) << group_log2; }

  // Where query `query` of a group is in the tensor maps of Q and O, and row `row` of a head in those of K
  // and V.
  __device__ __forceinline__ QRows q_rows(int head, int query) const { return {query, head, batch}; }
  __device__ __forceinline__ KvRows kv_rows(int head, int row) const { return {row, head, batch}; }

  // A head's first key.
  template <typename Params>
  __device__ __forceinline__ auto k(const Params& p, int head) const {
    return p.k + batch * p.k_batch_stride + head * p.k_head_stride;
  }

  // A group's first row in the LSE, [batch, query heads, seqlen_q], and how far behind that a tile's row is.
  template <typename Params>
  __device__ __forceinline__ float* lse(const Params& p, int head) const {
    return p.lse + ((int64_t(batch) * p.heads_q + head) << group_log2) * seqlen_q;
  }
  template <typename Params>
  __device__ __forceinline__ static int64_t lse_offset(const Params& p, int row) {
    return int64_t(head_of(p, row)) * p.seqlen_q + (row >> p.group_log2);
  }

  // The same in O.
  template <typename Params>
  __device__ __forceinline__ auto out(const Params& p, int head) const {
    return p.out + batch * p.out_batch_stride + (int64_t(head) << group_log2) * p.out_head_stride;
  }
  template <typename Params>
  __device__ __forceinline__ static int64_t out_offset(const Params& p, int row) {
    return (row >> p.group_log2) * p.out_row_stride + head_of(p, row) * p.out_head_stride;
  }

 private:
  static constexpr int kMany = 1 << 16;  // queries: more than a tile has

  template <typename Params>
  __device__ __forceinline__ static int head_of(const Params& p, int row) {
    return row & ((1 << p.group_log2) - 1);
  }
};

}  // namespace fagen::sched
