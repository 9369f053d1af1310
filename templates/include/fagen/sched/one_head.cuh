// Q tiles whose rows are queries of one head.
#pragma once

#include "fagen/base/types.cuh"
#include "fagen/pipe/tma_tile.cuh"

namespace fagen::sched {

struct OneHead {
  using QRows = pipe::Rows;
  using KvRows = pipe::Rows;

  // Of rows and queries counted from a tile's first: the query of a row, and the rows of so many queries.
  __device__ __forceinline__ int query(int row) const { return row; }
  __device__ __forceinline__ int rows(int queries) const { return queries; }

  // How far behind a tile's first row another is in the LSE and in O.
  template <typename Params>
  __device__ __forceinline__ static int lse_offset(const Params&, int row) {
    return row;
  }
  template <typename Params>
  __device__ __forceinline__ static int64_t out_offset(const Params& p, int row) {
    return row * p.out_row_stride;
  }
};

}  // namespace fagen::sched
